"""Reads a run's HDF5 file with the readers that people use: h5py, xarray over netCDF4, h5dump, h5ls.

The file is $PALIMPSEST_RUN_FILE, or the record of a small run that this test makes with $PALIMPSEST_BINARY.
"""

import os
import shutil
import subprocess
import tempfile
import unittest

import h5py
import numpy as np

CONFIG = """\
name: records
task:
  name: mqar
  vocabulary: 64
  train: [{length: 16, pairs: 2, examples: 2000}]
  test: [{length: 16, pairs: 2, examples: 200}, {length: 32, pairs: 4, examples: 200}]
model: {width: 16, depth: 1, mixer: softmax}
train: {steps: 40, batch: 16, eval_every: 20}
run: {log_every: 2}
"""

# The library's own attributes on dimension scales hold references and compounds; every reader knows these.
SCALE_ATTRIBUTES = {"DIMENSION_LIST", "REFERENCE_LIST", "CLASS", "NAME"}


def setUpModule():
    global run_file, folder
    folder = None
    run_file = os.environ.get("PALIMPSEST_RUN_FILE")
    if run_file:
        return
    binary = os.environ.get("PALIMPSEST_BINARY")
    if not binary:
        raise RuntimeError("set PALIMPSEST_BINARY to the program, or PALIMPSEST_RUN_FILE to a run.h5")
    folder = tempfile.mkdtemp(prefix="palimpsest-records-")
    config = os.path.join(folder, "records.yaml")
    with open(config, "w") as f:
        f.write(CONFIG)
    results = os.path.join(folder, "results")
    command = [binary, "run", config, "--results", results, "train.lr=1e-3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} gave {done.returncode}\n{done.stdout}\n{done.stderr}")
    found = [os.path.join(d, "run.h5") for d, _, files in os.walk(results) if "run.h5" in files]
    if len(found) != 1:
        raise RuntimeError(f"expected one run.h5 under {results}, found {found}")
    run_file = found[0]


def tearDownModule():
    if folder:
        shutil.rmtree(folder)


def objects(file):
    """Every group and dataset of an open file, by path."""
    found = {"/": file["/"]}
    file.visititems(lambda name, item: found.__setitem__("/" + name, item))
    return found


def is_text(kind):
    return kind.get_class() == h5py.h5t.STRING


class Walker(unittest.TestCase):
    """Only integers, floats and variable-length UTF-8: what every reader in the field takes."""

    def check_type(self, where, kind):
        kind_class = kind.get_class()
        self.assertIn(kind_class, (h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.STRING), where)
        if kind_class == h5py.h5t.STRING:
            self.assertTrue(kind.is_variable_str(), f"{where}: fixed-length text")
            self.assertEqual(kind.get_cset(), h5py.h5t.CSET_UTF8, f"{where}: not UTF-8")
        else:
            widths = (1, 4, 8) if kind_class == h5py.h5t.INTEGER else (4, 8)
            self.assertIn(kind.get_size(), widths, where)

    def test_types_and_spaces(self):
        with h5py.File(run_file, "r") as file:
            datasets = attributes = 0
            for path, item in objects(file).items():
                if isinstance(item, h5py.Dataset):
                    datasets += 1
                    self.check_type(path, item.id.get_type())
                    self.assertNotEqual(item.id.get_space().get_simple_extent_type(), h5py.h5s.NULL, path)
                for name in item.attrs:
                    if name in SCALE_ATTRIBUTES:
                        continue
                    attributes += 1
                    attribute = item.attrs.get_id(name)
                    self.check_type(f"{path}@{name}", attribute.get_type())
                    self.assertNotEqual(attribute.get_space().get_simple_extent_type(), h5py.h5s.NULL, f"{path}@{name}")
            self.assertGreater(datasets, 30)
            self.assertGreater(attributes, 50)

    def test_the_walker_notices_each_forbidden_kind(self):
        with h5py.File("forbidden", "w", driver="core", backing_store=False) as file:
            file["bool"] = np.array([True])
            file["fixed"] = np.array([b"abc"])
            file["compound"] = np.zeros(1, dtype=[("a", "i4")])
            file["reference"] = np.array([file.ref], dtype=h5py.ref_dtype)
            file["half"] = np.zeros(1, dtype="f2")
            for name in file:
                with self.assertRaises(AssertionError, msg=name):
                    self.check_type(name, file[name].id.get_type())

    def test_texts_decode(self):
        with h5py.File(run_file, "r") as file:
            for path, item in objects(file).items():
                if isinstance(item, h5py.Dataset) and is_text(item.id.get_type()):
                    for text in np.atleast_1d(item.asstr()[()]):
                        self.assertIsInstance(text, str, path)
                for name, value in item.attrs.items():
                    if name not in SCALE_ATTRIBUTES:
                        self.assertNotIsInstance(value, bytes, f"{path}@{name}")

    def test_creation_order_is_tracked(self):
        wanted = h5py.h5p.CRT_ORDER_TRACKED | h5py.h5p.CRT_ORDER_INDEXED
        with h5py.File(run_file, "r") as file:
            for path, item in objects(file).items():
                properties = item.id.get_create_plist()
                self.assertEqual(properties.get_attr_creation_order(), wanted, path)
                if isinstance(item, h5py.Group):
                    self.assertEqual(properties.get_link_creation_order(), wanted, path)

    def test_filters(self):
        """Shuffle and deflate alone: browsers and old libraries have no others."""
        with h5py.File(run_file, "r") as file:
            self.assertEqual(file["/train/loss"].compression, "gzip")
            for path, item in objects(file).items():
                if isinstance(item, h5py.Dataset):
                    self.assertIn(item.compression, (None, "gzip"), path)
                    self.assertFalse(item.fletcher32 or item.scaleoffset, path)

    def test_many_attributes_can_be_renamed_and_deleted(self):
        copy = shutil.copy(run_file, tempfile.mkdtemp(prefix="palimpsest-records-"))
        try:
            with h5py.File(copy, "a") as file:
                for path, item in objects(file).items():
                    for i in range(20):
                        item.attrs[f"extra_{i}"] = i
                for path, item in objects(file).items():
                    h5py.h5a.rename(item.id, b"extra_3", b"renamed")
                    del item.attrs["extra_7"]
            with h5py.File(copy, "r") as file:
                for path, item in objects(file).items():
                    self.assertEqual(item.attrs["renamed"], 3, path)
                    self.assertNotIn("extra_7", item.attrs, path)
        finally:
            shutil.rmtree(os.path.dirname(copy))


class Layout(unittest.TestCase):
    def test_superblock(self):
        with open(run_file, "rb") as file:
            self.assertIn(file.read(9)[8], (0, 2))

    def test_root(self):
        with h5py.File(run_file, "r") as file:
            self.assertEqual(file.attrs["format"], "palimpsest-run")
            self.assertEqual(file.attrs["format_version"].split(".")[0], "1")
            self.assertEqual(file.attrs["status"], "finished")
            self.assertEqual(file.attrs["status_code"], 2)
            self.assertTrue(file.attrs["run_id"])
            for name in ("created", "finished"):
                self.assertRegex(file.attrs[name], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")

    def test_columns_have_equal_length(self):
        indices = {"train": "step", "eval": "eval_step", "system": "time_step", "starts": "start", "artifacts": "artifact"}
        with h5py.File(run_file, "r") as file:
            for group, index in indices.items():
                rows = len(file[group][index])
                if group != "artifacts":
                    self.assertGreater(rows, 0, group)
                for name, column in file[group].items():
                    if column.maxshape and column.maxshape[0] is None:
                        self.assertEqual(column.shape[0], rows, f"{group}/{name}")

    def test_steps_increase(self):
        with h5py.File(run_file, "r") as file:
            for path in ("train/step", "eval/eval_step", "system/time_step"):
                self.assertTrue((np.diff(file[path][:]) > 0).all(), path)

    def test_answers_have_their_axes(self):
        with h5py.File(run_file, "r") as file:
            evaluation = file["eval"]
            shape = tuple(len(evaluation[name]) for name in ("eval_step", "slice", "answer_class"))
            self.assertEqual(evaluation["answers"].shape, shape)
            self.assertEqual(evaluation["loss_sum"].shape, shape[:2])
            self.assertEqual(evaluation["answer_class"].asstr()[0], "correct")
            self.assertTrue((evaluation["answers"][:] >= 0).all())
            self.assertLessEqual(set(evaluation["slice_split"][:]), {0, 1})

    def test_every_axis_has_a_scale(self):
        with h5py.File(run_file, "r") as file:
            for path, item in objects(file).items():
                if isinstance(item, h5py.Dataset) and not item.is_scale:
                    for axis in range(item.ndim):
                        self.assertEqual(len(item.dims[axis]), 1, f"{path} axis {axis}")

    def test_default_plot(self):
        """What h5web draws without a click: default -> signal and axes, each there, with lengths that agree."""
        with h5py.File(run_file, "r") as file:
            self.assertEqual(file.attrs["NX_class"], "NXroot")
            self.assertIn(file.attrs["default"], file)
            for group in (file["train"], file["eval"], file["system"]):
                self.assertEqual(group.attrs["NX_class"], "NXdata")
                signal = group[group.attrs["signal"]]
                axes = np.atleast_1d(group.attrs["axes"])
                self.assertEqual(len(axes), signal.ndim)
                for axis, name in enumerate(axes):
                    self.assertEqual(len(group[name]), signal.shape[axis])
                for name in group.attrs.get("auxiliary_signals", []):
                    self.assertEqual(group[name].shape, signal.shape)

    def test_units_and_descriptions(self):
        with h5py.File(run_file, "r") as file:
            for group in ("train", "system"):
                for name, column in file[group].items():
                    self.assertTrue(column.attrs["units"], name)
                    self.assertTrue(column.attrs["long_name"], name)

    def test_config(self):
        with h5py.File(run_file, "r") as file:
            resolved = file["config/resolved_yaml"].asstr()[()]
            self.assertIn("name:", resolved)
            self.assertEqual(file["config/overrides"].dtype, h5py.string_dtype())
            self.assertGreater(len(file["config"].attrs), 3)


class OtherReaders(unittest.TestCase):
    def test_xarray_names_every_dimension(self):
        try:
            import netCDF4  # noqa: F401
            import xarray
        except ImportError as missing:
            self.skipTest(f"{missing}")
        expected = {
            "train": {"step"},
            "eval": {"eval_step", "slice", "answer_class", "policy"},
            "system": {"time_step"},
            "starts": {"start"},
            "artifacts": {"artifact"},
            "config": {"overrides"},
            "provenance": set(),
            "summary": set(),
        }
        with h5py.File(run_file, "r") as file:
            self.assertEqual(set(file), set(expected))
        for group, names in expected.items():
            with xarray.open_dataset(run_file, group=group, engine="netcdf4") as data:
                self.assertLessEqual(set(data.sizes), names, group)
                self.assertFalse([name for name in data.sizes if "phony" in name], group)
                data.load()
        with xarray.open_dataset(run_file, group="eval", engine="netcdf4") as data:
            self.assertEqual(data["answers"].dims, ("eval_step", "slice", "answer_class"))
            self.assertEqual(data["answers"].dtype.kind, "i")
            self.assertEqual(str(data["answer_class"].values[0]), "correct")
            correct = data["answers"].sel(answer_class="correct").sum("slice") / data["answers"].sum(("slice", "answer_class"))
            self.assertTrue(((correct >= 0) & (correct <= 1)).all())
        with xarray.open_dataset(run_file, group="train", engine="netcdf4") as data:
            self.assertEqual(data["loss"].dims, ("step",))
            self.assertEqual(data["loss"].attrs["units"], "1")

    def test_command_line_tools(self):
        for command in (["h5dump", "-H", run_file], ["h5ls", "-r", run_file], ["ncdump", "-h", run_file]):
            if shutil.which(command[0]) is None:
                if command[0] == "ncdump":
                    continue
                self.skipTest(f"{command[0]} is not installed (hdf5-tools)")
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, f"{command}: {done.stderr}")
            self.assertIn("eval_step", done.stdout)
            self.assertNotIn("phony", done.stdout)


if __name__ == "__main__":
    unittest.main()
