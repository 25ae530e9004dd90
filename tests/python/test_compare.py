#!/usr/bin/env python3
"""ls, show, compare and export from outside: their tables against what h5py, csv and json read from the same runs."""

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
POLICIES = "best_policy_accuracy: in each segment the best of "
SEGMENTS = "note: averaged over the test segments overwrites=0, overwrites=1; --segments takes them apart\n"
SPREAD = "±: the sample deviation of the runs of a row, beside their mean\n"


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
        self.assertTrue(err.startswith(SPREAD + SEGMENTS + POLICIES), err)
        self.assertTrue(err.endswith(", on the same questions\n"), err)
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
            self.assertEqual((row["runs"], row["without_result"], row["metrics"]["test_accuracy"]["runs"]), (2, 0, 2))
            self.assertIs(type(row["group"]["train.lr"]), float)

    def test_sizes_are_an_axis(self):
        rows = self.json("compare", "grid", "--by", "state_bytes", "--json")
        self.assertEqual([(row["group"]["state_bytes"], row["runs"]) for row in rows], [(self.having(mixer=mixer)[0]["summary"]["state_bytes"], 4) for mixer in ("delta", "softmax")])
        _, err = self.call("compare", "grid", "--by", "state_bytes")
        self.assertIn("note: averaged over train.lr too; --by or --where takes them apart\n", err)

    def test_best_over_is_chosen_on_the_valid_questions(self):
        rows = self.json("compare", "grid", "--best-over", "train.lr", "--json")
        _, err = self.call("compare", "grid", "--best-over", "train.lr")
        self.assertIn("train.lr: chosen by the mean valid_accuracy (the valid split, never the test questions) of 2 candidates\n", err)
        self.assertIn("note: valid questions are drawn from the test segments\n", err)
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
        for key, message in [
            ("seed", "--best-over seed would pick luck: a seed is no setting. The mean over seeds is taken by itself"),
            ("run.threads", "--best-over run.threads would pick luck: run.threads makes no other run"),
        ]:
            self.assertEqual(self.call("compare", "grid", "--best-over", key, code=2), ("", f"error: {message}\n"))
        _, err = self.call("compare", "grid", "--best-over", "train.lr", "--by", "train.lr", code=2)
        self.assertEqual(err, "error: train.lr is in --by and in --best-over: a row for each value, or the best value of each row?\n")

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
        self.assertEqual(err, SPREAD + "note: averaged over train.lr too; --by or --where takes them apart\n")
        self.assertRegex(out, r"^test_accuracy\nmodel\.mixer +overwrites=0 +overwrites=1 +runs\ndelta +[01]\.\d{3} ± \d\.\d{3} +[01]\.\d{3} ± \d\.\d{3} +4\nsoftmax .*\n$")
        out, _ = self.call("compare", "grid", "--by", "model.mixer", "--along", "distance", "--metric", "best_policy_accuracy")
        self.assertRegex(out, r"^best_policy_accuracy\nmodel\.mixer +distance=")
        _, err = self.call("compare", "grid", "--along", "distance", "--metric", "test_accuracy")
        self.assertIn("note: test_accuracy: a column averages over the segments overwrites=0, overwrites=1\n", err)
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
        self.assertEqual([row["group"]["seed"] for row in self.json("compare", "grid", "--by", "seed", "--sort", "-seed", "--json")], [2, 1])
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
        self.addCleanup(shutil.rmtree, self.folder / "again")
        rows = self.json("compare", "results/grid", "again/grid", "--where", "model.mixer=delta", "--json")
        self.assertEqual([row["group"]["sweep"] for row in rows], ["results/grid"] * 2 + ["again/grid"] * 2)
        out, err = self.call("compare", "results/grid", "again/grid", "--by", "model.mixer", "--json")
        self.assertEqual([row["runs"] for row in json.loads(out)], [4, 4])
        self.assertRegex(err, r"note: 8 runs are there more than once, such as [0-9a-f]{8} in 'results/grid/.*' and 'again/grid/.*'; each counts once "
                              r"\(--by sweep,… tells them apart\)\n")

    def test_what_is_named_twice_counts_once(self):
        alone = self.json("compare", "grid", "--json")
        for names in (["grid", "grid"], ["grid", "results/grid"], ["results/grid/", "grid"]):
            out, err = self.call("compare", *names, "--json")
            self.assertEqual(json.loads(out), alone)
            self.assertIn("note: 'results/grid' is named twice; it counts once\n", err)
        out, err = self.call("compare", "grid", "results", "--by", "model.mixer", "--json")
        self.assertEqual([row["runs"] for row in json.loads(out)], [4, 4, 2])
        self.assertIn("note: 8 runs are reached by several of these names; each counts once\n", err)

    def test_copies_in_one_folder_count_once(self):
        (self.folder / "here").mkdir()
        self.addCleanup(shutil.rmtree, self.folder / "here")
        shutil.copytree(self.folder / "results/grid", self.folder / "here/one")
        shutil.copytree(self.folder / "results/grid", self.folder / "here/two")
        changed = next((self.folder / "here/two").glob("*/run.h5"))
        with h5py.File(changed, "r+") as file:
            file["summary/test_accuracy"][()] = 2
        one = self.json("compare", "grid", "--by", "model.mixer", "--json")
        out, err = self.call("compare", "here", "--by", "model.mixer", "--json")
        for row, alone in zip(json.loads(out), one, strict=True):  # equal but for the order of a sum
            self.assertEqual(row["runs"], alone["runs"])
            for metric, value in alone["metrics"].items():
                self.assertAlmostEqual(row["metrics"][metric]["mean"], value["mean"])
                self.assertEqual(row["metrics"][metric]["runs"], value["runs"])
        self.assertRegex(err, r"note: 8 runs are there more than once, such as .*; 1 of them with other results in each; each counts once \(--by sweep,… tells them apart\)\n")
        rows = self.json("compare", "here", "--by", "sweep", "--json")
        self.assertEqual([(row["group"]["sweep"], row["runs"]) for row in rows], [("one", 8), ("two", 8)])
        out, err = self.call("export", "here", "--format", "json")
        self.assertEqual([row["run_id"] for row in json.loads(out)], sorted(self.runs))
        self.assertIn("(--keys sweep,… tells them apart)\n", err)
        self.assertEqual(len(self.json("export", "here", "--keys", "sweep,seed", "--format", "json")), 16)

    def test_runs_beside_the_plan_are_named(self):
        folder = self.folder / "results/grid/0123456789ab-other"
        folder.mkdir()
        self.addCleanup(shutil.rmtree, folder)
        (folder / "DONE").touch()
        for verb in ("compare", "export"):
            _, err = self.call(verb, "grid")
            self.assertIn("note: 1 run in 'results/grid' is not in its plan and left out; `palimpsest ls results/grid` lists all\n", err)

    def test_mistakes(self):
        for arguments, message in [
            (["grid", "--where", "lr=1"], "no run has the config key 'lr'; did you mean 'train.lr'?\n"),
            (["grid", "--where", "mixer=delta"], "no run has the config key 'mixer'; did you mean 'model.mixer'?\n"),
            (["grid", "--where", "train.rl=1"], "no run has the config key 'train.rl'; did you mean 'train.lr'?"),
            (["grid", "--where", "train.lr=5"], "no run has train.lr=5; its values are: 0.001, 0.03"),
            (["grid", "--where", "delta"], "'delta' chooses nothing; write key=value, such as model.mixer=delta"),
            (["gird"], "no folder 'gird', and no sweep or run of that name in 'results'; did you mean 'grid'?\n`palimpsest ls --results results` lists what is there"),
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
        rows = self.json("export", "grid", "grid", "--format", "json")
        self.assertEqual(sorted(row["run_id"] for row in rows), sorted(self.runs))
        rows = self.json("export", "grid", "--keys", "task.name,model.norm", "--where", "seed=1", "--format", "json")
        self.assertEqual(list(rows[0])[:4], ["run_id", "task.name", "model.norm", "state"])
        self.assertEqual([row["model.norm"] for row in rows], ["layer"] * 4)
        _, err = self.call("export", "grid", "--keys", "model.layers", code=2)  # these runs have one mixer for every layer
        self.assertIn("no run has the config key 'model.layers'", err)
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

    def test_a_file_is_what_its_name_says(self):
        _, err = self.call("export", "grid", "-o", "table.xlsx", code=2)
        self.assertEqual(err, "error: 'table.xlsx': this program writes csv and json, not 'xlsx'; name the file so, or say --format csv or --format json\n")
        self.assertFalse((self.folder / "table.xlsx").exists())
        self.call("export", "grid", "-o", "table.tab", "--format", "csv")
        self.assertEqual((self.folder / "table.tab").read_text(), self.call("export", "grid")[0])
        self.assertEqual(self.call("export", "grid", "--force", code=2), ("", "error: --force replaces a file; name it with -o FILE\n"))
        self.assertEqual(self.call("export", "grid", "--keys", "seed,seed", code=2), ("", "error: --keys names a key twice: seed,seed\n"))

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
            rows = self.json("export", "part", "--keys", "model.width,train.batch", "--format", "json")
            self.assertEqual({row["train.batch"] for row in rows}, {4})
            self.assertIn("damaged", err)
            self.assertRegex(err, r"note: 2 of 8 runs have no summary yet: ([0-9a-f]{8} \((fresh|lost)\)(, )?){2}\n")
            _, err = self.call("export", "part", "--what", "evals")
            self.assertIn("note: 2 of 8 runs have no evaluation yet: ", err)
        finally:
            shutil.rmtree(copy)


class Names(Base):
    """One meaning of names for all verbs; what ls prints, each of them takes."""

    def names_of(self, *arguments):
        rows = [line.split() for line in self.call("ls", *arguments)[0].splitlines()[1:]]
        return [(row[-2], row[-1]) for row in rows]

    def test_what_ls_prints_every_verb_takes(self):
        elsewhere = Path(tempfile.mkdtemp(prefix="palimpsest-names-"))
        self.addCleanup(shutil.rmtree, elsewhere)
        shutil.copytree(self.folder / "results/other", elsewhere / "copied")
        for arguments in ([], ["results"], ["grid"], ["results/grid"], [str(elsewhere)], [str(elsewhere / "copied")]):
            listed = self.names_of(*arguments)
            self.assertTrue(listed)
            run_id, name = listed[-1]
            self.assertEqual(self.json("show", name, "--json")["id"], run_id)
            self.assertEqual([row["run_id"] for row in self.json("export", name, "--format", "json")], [run_id])
            self.assertIn(run_id, self.call("resume", name)[0])  # finished: it is shown
            if arguments in ([], ["grid"]):
                for length in (6, 8, 12):
                    self.assertEqual(self.json("show", run_id[:length], "--json")["id"], run_id)
        self.assertEqual(self.names_of("grid"), self.names_of("--results", "results")[:8])

    def test_ls_is_in_the_order_of_names(self):
        names = [re.sub(r"[0-9a-f]{8,12}-", "", name) for _, name in self.names_of()]
        self.assertEqual(names, [f"grid/{mixer}-lr={lr}-seed={seed}" for mixer in ("delta", "softmax") for lr in ("0.001", "0.03") for seed in (1, 2)]
                         + ["other/linear-width=8", "other/linear-width=16"])

    def test_here_latest_and_one_run_of_a_folder(self):
        folder = next(path.parent for path in (self.folder / "results/grid").rglob("run.h5"))
        run_id = self.json("show", str(folder), "--json")["id"]
        for name, place in ((".", folder), ("..", folder / "checkpoints"), ("../../latest", folder / "checkpoints"), ("./", folder)):
            result = subprocess.run([BINARY, "show", name, "--json"], cwd=place, capture_output=True, text=True, timeout=60)
            if "latest" not in name:
                self.assertEqual((result.returncode, json.loads(result.stdout)["id"]), (0, run_id), result.stderr)
        result = subprocess.run([BINARY, "compare", ".", "--json"], cwd=self.folder / "results/grid", capture_output=True, text=True, timeout=60)
        self.assertEqual(json.loads(result.stdout), self.json("compare", "grid", "--json"))
        latest = (self.folder / "results/latest").resolve()
        self.assertEqual(self.json("show", "latest", "--json")["id"][:8], latest.name[:8])
        self.assertEqual(len(self.json("export", "latest", "--format", "json")), 1)

    def test_names_that_stand_for_more(self):
        hint = "`palimpsest ls results/grid` lists them, `palimpsest compare results/grid` compares them\n"
        for verb in ("show", "resume"):
            self.assertEqual(self.call(verb, "grid", code=2), ("", f"error: 'grid' is a sweep of 8 runs, not one of them; {hint}"))
        _, err = self.call("show", "results", code=2)
        self.assertIn("error: 'results' is a folder of 10 runs, not one of them; ", err)
        _, err = self.call("show", "grid/", code=2)
        self.assertIn("is a sweep of 8 runs", err)
        _, err = self.call("show", "nothing", code=2)
        self.assertIn("error: no folder 'nothing', and no sweep or run of that name in 'results'", err)
        (self.folder / "empty").mkdir(exist_ok=True)
        self.assertEqual(self.call("show", "empty", code=2)[1], "error: 'empty' is no folder of a run, and holds none\n")
        # A folder that only happens to be called like a sweep is not meant.
        (self.folder / "other").mkdir(exist_ok=True)
        self.addCleanup((self.folder / "other").rmdir)
        self.assertEqual(len(self.json("compare", "other", "--json")), 2)

    def test_links(self):
        linked = Path(tempfile.mkdtemp(prefix="palimpsest-links-"))
        self.addCleanup(shutil.rmtree, linked)
        (linked / "results").mkdir()
        (linked / "results/moved").symlink_to(self.folder / "results/grid")
        (linked / "results/all").symlink_to(self.folder / "results")
        (linked / "results/up").symlink_to("..")
        out, err = self.call("ls", str(linked / "results"), "--json")
        self.assertEqual({run["id"] for run in json.loads(out)} & set(self.runs), set(self.runs))
        self.assertEqual(len(json.loads(out)), 10)
        rows = self.json("compare", str(linked / "results/moved"), "--json")
        self.assertEqual([row["metrics"] for row in rows], [row["metrics"] for row in self.json("compare", "grid", "--json")])
        self.assertEqual(sum(row["runs"] for row in self.json("compare", str(linked / "results"), "--json")), 10)


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
