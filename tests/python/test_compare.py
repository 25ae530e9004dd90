#!/usr/bin/env python3
"""compare and export from outside: their tables against what h5py, csv and json read from the same runs."""

import csv
import io
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

BINARY = os.environ["PALIMPSEST_BINARY"]
SOURCE = Path(os.environ["PALIMPSEST_SOURCE_DIR"])

CONFIG = """
task:
  name: overwrite
  vocabulary: 32
  length: 16
  pairs: 2
  train: [{overwrites: 0..1, examples: 100}]
  test: [{overwrites: 0, examples: 40}, {overwrites: 1, examples: 40}]
data: {check_overlap: false}
model: {width: 8, depth: 1, mixer: delta}
mixers: {delta: {heads: 1}}
train: {steps: 30, batch: 4, lr: 1e-3, eval_every: 15}
run: {log_every: 10, threads: 1}
"""
GRID = CONFIG + "sweep: {grid: {model.mixer: [delta, softmax], train.lr: [1e-3, 3e-2]}, seeds: 2}\n"
OTHER = CONFIG + "sweep: {grid: {model.mixer: [linear], model.width: [8, 16]}}\n"


def read_runs(folder):
    """By run id: config, summary, training log and evaluations, as h5py has them."""
    runs = {}
    for path in sorted(folder.rglob("run.h5")):
        with h5py.File(path) as file:
            runs[file.attrs["run_id"]] = {
                "config": {key: value.item() if isinstance(value, np.generic) else value for key, value in file["config"].attrs.items()},
                "summary": {name: item[()] for name, item in file["summary"].items()},
                "train": {name: item[:] for name, item in file["train"].items()},
                "eval": {name: item.asstr()[:] if h5py.check_string_dtype(item.dtype) else item[:] for name, item in file["eval"].items()},
            }
    return runs


def mean(values):
    return sum(values) / len(values)


class Base(unittest.TestCase):
    """Both sweeps are trained once, for all tests."""

    folder, runs = None, {}

    @classmethod
    def setUpClass(cls):
        if Base.folder is None:
            Base.folder = Path(tempfile.mkdtemp(prefix="palimpsest-compare-"))
            unittest.addModuleCleanup(shutil.rmtree, Base.folder)
            (Base.folder / "grid.yaml").write_text(GRID)
            (Base.folder / "other.yaml").write_text(OTHER)
            for config in ("grid.yaml", "other.yaml"):
                subprocess.run([BINARY, "sweep", config, "--progress", "never"], cwd=Base.folder, check=True, capture_output=True, timeout=120)
            Base.runs = read_runs(Base.folder / "results/grid")
        assert len(Base.runs) == 8

    def call(self, *arguments, code=0):
        result = subprocess.run([BINARY, *arguments], cwd=self.folder, capture_output=True, text=True, timeout=60)
        self.assertEqual(result.returncode, code, f"{arguments}\n{result.stdout}\n{result.stderr}")
        return result.stdout, result.stderr

    def json(self, *arguments):
        return json.loads(self.call(*arguments)[0])

    def having(self, **wanted):
        keys = {"mixer": "model.mixer", "lr": "train.lr", "seed": "seed"}
        return [run for run in self.runs.values() if all(run["config"][keys[key]] == value for key, value in wanted.items())]


class Compare(Base):
    def test_by_default_what_differs(self):
        out, err = self.call("compare", "grid")
        self.assertEqual(err, "")
        self.assertEqual(re.split("  +", out.splitlines()[0])[:2], ["model.mixer", "train.lr"])
        self.assertEqual(len(out.splitlines()), 5)
        out, _ = self.call("compare", "grid", "--where", "model.mixer=delta")
        self.assertTrue(out.startswith("train.lr  test_accuracy"), out)
        self.assertEqual(len(out.splitlines()), 3)
        rows = self.json("compare", "grid", "--metric", "test_accuracy,seconds", "--json")
        for row in rows:
            runs = self.having(mixer=row["group"]["model.mixer"], lr=float(row["group"]["train.lr"]))
            values = [run["summary"]["test_accuracy"] for run in runs]
            self.assertAlmostEqual(row["metrics"]["test_accuracy"]["mean"], mean(values))
            self.assertAlmostEqual(row["metrics"]["test_accuracy"]["deviation"], statistics.stdev(values))
            self.assertEqual((row["runs"], row["without_result"]), (2, 0))

    def test_best_over_is_chosen_on_the_valid_questions(self):
        rows = self.json("compare", "grid", "--best-over", "train.lr", "--json")
        _, err = self.call("compare", "grid", "--best-over", "train.lr")
        self.assertIn("train.lr: chosen by the mean valid_accuracy (the valid split, never the test questions) of 2 candidates\n", err)
        self.assertEqual([row["group"]["model.mixer"] for row in rows], ["delta", "softmax"])
        for row in rows:
            mixer = row["group"]["model.mixer"]
            valid = {lr: mean([run["summary"]["valid_accuracy"] for run in self.having(mixer=mixer, lr=lr)]) for lr in (1e-3, 3e-2)}
            best = max(valid, key=valid.get)
            self.assertEqual(float(row["group"]["train.lr"]), best)
            self.assertAlmostEqual(row["metrics"]["test_accuracy"]["mean"], mean([run["summary"]["test_accuracy"] for run in self.having(mixer=mixer, lr=best)]))
            end = "smallest" if best == 1e-3 else "largest"
            self.assertIn(f"note: {mixer}: best train.lr {best} is the {end} tried\n", err)
        _, err = self.call("compare", "grid", "--best-over", "train.rl", code=2)
        self.assertIn("did you mean 'train.lr'?", err)

    def test_segments(self):
        rows = self.json("compare", "grid", "--by", "model.mixer", "--segments", "--json")
        self.assertEqual([(row["group"]["model.mixer"], row["metric"]) for row in rows],
                         [("delta", "test_accuracy"), ("softmax", "test_accuracy"), ("delta", "test_stale_rate"), ("softmax", "test_stale_rate")])
        for row in rows:
            self.assertEqual(list(row["columns"]), ["overwrites=0", "overwrites=1"])
            for segment, column in enumerate(row["columns"].values()):
                rates = []
                for run in self.having(mixer=row["group"]["model.mixer"]):
                    evals = run["eval"]
                    chosen = (evals["slice_split"] == 1) & (evals["slice_segment"] == segment)
                    counts = evals["answers"][-1][chosen].sum(0)
                    rates.append(counts[list(evals["answer_class"]).index("correct" if row["metric"] == "test_accuracy" else "stale")] / counts.sum())
                self.assertAlmostEqual(column["mean"], mean(rates))
                self.assertAlmostEqual(column["deviation"], statistics.stdev(rates))
        out, err = self.call("compare", "grid", "--by", "model.mixer", "--segments", "--metric", "test_accuracy")
        self.assertEqual(err, "note: averaged over train.lr too; --by or --where takes them apart\n")
        self.assertRegex(out, r"^test_accuracy\nmodel\.mixer +overwrites=0 +overwrites=1 +runs\ndelta +[01]\.\d{3} ± \d\.\d{3} +[01]\.\d{3} ± \d\.\d{3} +4\nsoftmax .*\n$")
        out, _ = self.call("compare", "grid", "--by", "model.mixer", "--along", "distance", "--metric", "best_policy_accuracy")
        self.assertRegex(out, r"^best_policy_accuracy\nmodel\.mixer +distance=")
        _, err = self.call("compare", "grid", "--segments", "--metric", "seconds", code=2)
        self.assertIn("error: 'seconds' is not counted by question. There are: test_accuracy, valid_accuracy, best_policy_accuracy, test_correct_rate, ", err)

    def test_markdown(self):
        out, _ = self.call("compare", "grid", "--segments", "--metric", "test_accuracy", "--markdown")
        lines = out.splitlines()
        self.assertEqual(lines[:4], ["test_accuracy", "", "| model.mixer | train.lr | overwrites=0 | overwrites=1 | runs |", "|---|---|---|---|---|"])
        self.assertEqual(len(lines), 8)
        self.assertRegex(lines[4], r"^\| delta \| 0\.001 \| [01]\.\d{3} ± \d\.\d{3} \| [01]\.\d{3} ± \d\.\d{3} \| 2 \|$")

    def test_sort(self):
        up = [row["metrics"]["test_accuracy"]["mean"] for row in self.json("compare", "grid", "--sort", "test_accuracy", "--json")]
        down = [row["metrics"]["test_accuracy"]["mean"] for row in self.json("compare", "grid", "--sort", "-test_accuracy", "--json")]
        self.assertEqual(up, sorted(up))
        self.assertEqual(down, up[::-1])
        self.assertEqual([row["group"]["seed"] for row in self.json("compare", "grid", "--by", "seed", "--sort", "-seed", "--json")], ["2", "1"])
        _, err = self.call("compare", "grid", "--sort", "accuracy", code=2)
        self.assertIn("error: the table has no column 'accuracy'", err)

    def test_several_sweeps(self):
        rows = self.json("compare", "grid", "other", "--json")
        self.assertEqual(list(rows[0]["group"]), ["model.mixer", "train.lr", "model.width"])
        self.assertEqual(len(rows), 6)
        rows = self.json("compare", "grid", "results/other", "--by", "sweep", "--json")
        self.assertEqual([(row["group"]["sweep"], row["runs"]) for row in rows], [("grid", 8), ("other", 2)])
        # The same runs elsewhere: told apart by the sweep, or each counted once.
        shutil.copytree(self.folder / "results/grid", self.folder / "again/grid")
        rows = self.json("compare", "results/grid", "again/grid", "--where", "model.mixer=delta", "--json")
        self.assertEqual([row["group"]["sweep"] for row in rows], ["results/grid"] * 2 + ["again/grid"] * 2)
        out, err = self.call("compare", "results/grid", "again/grid", "--by", "model.mixer", "--json")
        self.assertEqual([row["runs"] for row in json.loads(out)], [4, 4])
        self.assertIn("note: 8 runs are in several of these sweeps; each counts once", err)
        shutil.rmtree(self.folder / "again")

    def test_mistakes(self):
        for arguments, message in [
            (["grid", "--where", "train.rl=1"], "no run has the config key 'train.rl'; did you mean 'train.lr'?"),
            (["grid", "--where", "train.lr=5"], "no run has train.lr=5; its values are: 0.001, 0.03"),
            (["grid", "--where", "delta"], "'delta' chooses nothing; write key=value, such as model.mixer=delta"),
            (["gird"], "no folder 'gird', and no sweep of that name in 'results'; did you mean 'grid'?"),
            (["grid", "--segments", "--along", "distance"], "--along excludes --segments"),
        ]:
            with self.subTest(arguments):
                out, err = self.call("compare", *arguments, code=2)
                self.assertEqual(out, "")
                self.assertIn("error: " + message, err)


class Export(Base):
    def number(self, text):
        return float(text) if text != "" else float("nan")

    def test_summary(self):
        out, err = self.call("export", "grid")
        self.assertEqual(err, "")
        rows = list(csv.DictReader(io.StringIO(out)))
        self.assertEqual(list(rows[0])[:5], ["run_id", "model.mixer", "train.lr", "seed", "state"])
        self.assertEqual({row["run_id"] for row in rows}, set(self.runs))
        as_json = {row["run_id"]: row for row in self.json("export", "grid", "--format", "json")}
        for row in rows:
            run, other = self.runs[row["run_id"]], as_json[row["run_id"]]
            self.assertEqual(list(other), list(row))
            self.assertEqual((row["model.mixer"], float(row["train.lr"]), int(row["seed"]), row["state"]),
                             (run["config"]["model.mixer"], run["config"]["train.lr"], run["config"]["seed"], "finished"))
            self.assertEqual((other["train.lr"], other["seed"]), (run["config"]["train.lr"], run["config"]["seed"]))
            self.assertEqual(sorted(run["summary"]), list(row)[5:])
            for name, value in run["summary"].items():  # bit for bit
                np.testing.assert_equal(self.number(row[name]), value)
                self.assertEqual(other[name], None if np.isnan(value) else value)

    def test_train(self):
        rows = list(csv.DictReader(io.StringIO(self.call("export", "grid", "--what", "train")[0])))
        as_json = self.json("export", "grid", "--what", "train", "--format", "json")
        self.assertEqual(len(as_json), len(rows))
        for run_id, run in self.runs.items():
            mine = [row for row in rows if row["run_id"] == run_id]
            self.assertEqual([int(row["step"]) for row in mine], list(run["train"]["step"]))
            for name, column in run["train"].items():
                np.testing.assert_array_equal(np.array([self.number(row[name]) for row in mine], column.dtype), column)
                values = [row[name] for row in as_json if row["run_id"] == run_id]
                np.testing.assert_array_equal(np.array([np.nan if value is None else value for value in values], column.dtype), column)

    def test_evals_and_slices(self):
        for what, by in (("evals", ("split", "segment")), ("slices", ("split", "segment", "overwrites", "distance_from"))):
            rows = self.json("export", "grid", "--what", what, "--format", "json")
            self.assertEqual(len({(row["run_id"], row["step"], *(row[key] for key in by)) for row in rows}), len(rows))
            for run_id, run in self.runs.items():
                evals = run["eval"]
                mine = [row for row in rows if row["run_id"] == run_id]
                self.assertEqual(sorted({row["step"] for row in mine}), list(evals["eval_step"]))
                for row in mine:
                    chosen = np.ones(len(evals["slice_split"]), bool)
                    for key in by:
                        chosen &= evals["slice_" + key] == (row[key] if key != "split" else ("valid", "test").index(row[key]))
                    step = list(evals["eval_step"]).index(row["step"])
                    counts = evals["answers"][step][chosen].sum(0)
                    self.assertEqual([row[name] for name in evals["answer_class"]], list(counts))
                    self.assertEqual(row["answers"], counts.sum())
                    self.assertEqual(row["accuracy"], counts[0] / counts.sum())
                    self.assertAlmostEqual(row["loss"], evals["loss_sum"][step][chosen].sum() / counts.sum(), 12)
                    self.assertEqual(row["label"], f"overwrites={row['segment']}")

    def test_one_run_several_sweeps_and_chosen_keys(self):
        run_id = next(iter(self.runs))
        rows = self.json("export", run_id[:8], "--format", "json")
        self.assertEqual([row["run_id"] for row in rows], [run_id])
        self.assertEqual(rows[0]["seed"], self.runs[run_id]["config"]["seed"])
        rows = self.json("export", "grid", "other", "--format", "json")
        self.assertEqual(list(rows[0])[:6], ["run_id", "sweep", "model.mixer", "train.lr", "model.width", "seed"])
        self.assertEqual([row["sweep"] for row in rows], ["grid"] * 8 + ["other"] * 2)
        rows = self.json("export", "grid", "--keys", "task.name,model.layers", "--where", "seed=1", "--format", "json")
        self.assertEqual(list(rows[0])[:4], ["run_id", "task.name", "model.layers", "state"])
        self.assertEqual([row["model.layers"] for row in rows], ["[]"] * 4)
        _, err = self.call("export", "grid", "--keys", "model.mixr", code=2)
        self.assertIn("did you mean 'model.mixer'?", err)

    def test_a_file_is_never_overwritten_without_force(self):
        file = self.folder / "table.json"
        out, err = self.call("export", "grid", "-o", "table.json")
        self.assertEqual((out, err), ("", ""))
        self.assertEqual(len(json.loads(file.read_text())), 8)
        file.write_text("mine")
        _, err = self.call("export", "grid", "-o", "table.json", code=2)
        self.assertEqual(err, "error: 'table.json' is there already; --force replaces it\n")
        self.assertEqual(file.read_text(), "mine")
        self.call("export", "grid", "-o", "table.json", "--format", "csv", "--force")
        self.assertEqual(file.read_text(), self.call("export", "grid")[0])
        self.assertEqual(self.call("export", "grid", "-o", "-")[0], file.read_text())
        file.unlink()

    def test_unfinished_runs_say_what_is_missing(self):
        copy = self.folder / "part"
        shutil.copytree(self.folder / "results/grid", copy)
        try:
            gone, damaged = sorted(path.parent for path in copy.rglob("run.h5"))[:2]
            shutil.rmtree(gone)
            (damaged / "run.h5").write_bytes(b"no")
            out, err = self.call("export", "part")
            rows = list(csv.DictReader(io.StringIO(out)))
            self.assertEqual(len(rows), 8)
            empty = [row for row in rows if row["test_accuracy"] == ""]
            self.assertEqual({row["run_id"][:8] for row in empty}, {gone.name[:8], damaged.name[:8]})
            for row in empty:  # the plan still says which they are
                self.assertEqual(row["train.lr"], str(self.runs[row["run_id"]]["config"]["train.lr"]))
            self.assertIn("damaged", err)
            self.assertRegex(err, r"note: 2 of 8 runs have no summary yet: ([0-9a-f]{8} \((fresh|finished)\)(, )?){2}\n")
            _, err = self.call("export", "part", "--what", "evals")
            self.assertIn("note: 2 of 8 runs have no evaluation yet: ", err)
        finally:
            shutil.rmtree(copy)


class Plans(Base):
    def test_the_example_of_the_config_page(self):
        page = (SOURCE / "docs/config.md").read_text()
        block = re.search(r"## Sweeps\n\n```yaml\n(.*?)```", page, re.DOTALL)[1]
        (self.folder / "page.yaml").write_text("base: [tasks/overwrite.yaml, models/small.yaml]\n" + block)
        (self.folder / "configs").symlink_to(SOURCE / "configs")
        out, err = self.call("sweep", "page.yaml", "--dry-run")
        told = re.search(r"= (\d+) runs, of which (\d+) are excluded:\n.*lists the other (\d+)\.", page)
        self.assertIn(f"note: {told[2]} of {told[1]} runs left out by sweep.exclude\n", err)
        self.assertEqual(len(out.splitlines()) - 1, int(told[3]))
        self.assertEqual(re.split("  +", out.splitlines()[0])[:7],
                         ["id", "model.mixer", "train.batch", "train.steps", "train.lr", "train.weight_decay", "seed"])


if __name__ == "__main__":
    unittest.main()
