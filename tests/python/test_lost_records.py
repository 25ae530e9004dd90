#!/usr/bin/env python3
"""A run that says it is finished, and whose record is missing or damaged: every verb tells it, and the next start trains it again."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import h5py

BINARY = os.environ["PALIMPSEST_BINARY"]

CONFIG = """
name: tiny
task: {name: overwrite, vocabulary: 32, length: 16, pairs: 2, train: [{examples: 100}], test: [{examples: 40}]}
data: {check_overlap: false}
model: {width: 8, depth: 1, mixer: softmax}
train: {steps: 20, batch: 4, lr: 3e-3}
run: {log_every: 5, checkpoint_every: 10, threads: 1}
"""


class LostRecords(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="palimpsest-lost-"))
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "tiny.yaml").write_text(CONFIG)
        (self.folder / "grid.yaml").write_text(CONFIG + "sweep: {grid: {model.mixer: [softmax, delta]}, seeds: 1}\nmixers: {delta: {heads: 1}}\n")

    def call(self, *arguments, code=0):
        done = subprocess.run([BINARY, *arguments], cwd=self.folder, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, code, f"{arguments}\n{done.stdout}\n{done.stderr}")
        return done.stdout, done.stderr

    def runs(self, name):
        return sorted(path for path in (self.folder / "results" / name).iterdir() if path.is_dir())

    def lost(self, lose):
        """A finished run after `lose(folder)`; returns its folder as the user names it, and its accuracy."""
        self.call("run", "tiny.yaml")
        (folder,) = self.runs("tiny")
        with h5py.File(folder / "run.h5") as file:
            accuracy = file["summary/test_accuracy"][()]
        lose(folder)
        return folder.relative_to(self.folder), accuracy

    def check_told(self, folder, reason):
        out, err = self.call("ls", code=1)
        self.assertIn("lost", out)
        self.assertIn(reason, err)
        (listed,) = json.loads(self.call("ls", "--json", code=1)[0])
        self.assertEqual(listed["state"], "lost")
        out, err = self.call("show", str(folder), code=1)
        self.assertRegex(out, r"state +lost\n")
        self.assertIn(reason, out)
        self.assertIn(f"palimpsest resume {folder}", out)

    def check_trains_again(self, folder, accuracy, *arguments):
        out, err = self.call(*arguments)
        self.assertIn("the run trains from the beginning", err)
        if arguments[0] != "sweep":
            self.assertIn(f"test accuracy   {accuracy:.4f}\n", out)
        with h5py.File(self.folder / folder / "run.h5") as file:
            self.assertEqual(file["summary/test_accuracy"][()], accuracy)
            self.assertEqual(file["train/step"][:].tolist(), [5, 10, 15, 20])
        out, err = self.call("ls")
        self.assertIn("finished", out)

    def test_done_without_a_record(self):
        folder, accuracy = self.lost(lambda folder: (folder / "run.h5").unlink())
        self.check_told(folder, f"'{folder}/run.h5' is missing")
        self.check_trains_again(folder, accuracy, "resume", str(folder))

    def test_done_beside_a_damaged_record(self):
        folder, accuracy = self.lost(lambda folder: os.truncate(folder / "run.h5", 1000))
        self.check_told(folder, f"'{folder}/run.h5' is damaged: ")
        self.check_trains_again(folder, accuracy, "run", "tiny.yaml")
        self.assertTrue((self.folder / folder / "run.h5.damaged").exists())

    def test_an_interrupted_run_with_a_damaged_record_is_no_dead_end(self):
        def lose(folder):
            (folder / "DONE").unlink()
            (folder / "FAILED.json").write_text(json.dumps({"reason": "interrupted", "message": "stopped by a signal", "step": 10}))
            os.truncate(folder / "run.h5", 1000)

        folder, accuracy = self.lost(lose)
        out, err = self.call("show", str(folder), code=1)
        self.assertRegex(out, r"state +interrupted\n")
        self.assertIn(f"'{folder}/run.h5' is damaged: ", out)
        self.check_trains_again(folder, accuracy, "resume", str(folder))

    def test_a_sweep_trains_the_lost_one_alone(self):
        self.call("sweep", "grid.yaml")
        runs = self.runs("tiny")
        self.assertEqual(len(runs), 2)
        with h5py.File(runs[0] / "run.h5") as file:
            accuracy = file["summary/test_accuracy"][()]
            self.assertEqual(file["provenance"].attrs["command"], f"{BINARY} sweep grid.yaml")
        other = (runs[1] / "run.h5").read_bytes()
        (runs[0] / "run.h5").unlink()
        self.call("compare", "results/tiny")
        self.check_trains_again(runs[0].relative_to(self.folder), accuracy, "sweep", "grid.yaml")
        self.assertEqual((runs[1] / "run.h5").read_bytes(), other)

    def test_a_worker_refuses_runs_of_other_shapes(self):
        self.call("sweep", "grid.yaml")
        manifest = (self.folder / "results/tiny/manifest.yaml").read_text()
        runs = self.runs("tiny")
        ids = []
        for run in runs:
            with h5py.File(run / "run.h5") as file:
                ids.append(file.attrs["run_id"])
            self.assertIn(ids[-1], manifest)
        for run in runs:
            shutil.rmtree(run)
        _, err = self.call("work", "results/tiny", *ids, code=2)
        self.assertRegex(err, r"the runs [0-9a-f]+ and [0-9a-f]+ cannot train as lanes of one model: they differ in model.mixer, .*; lanes may differ in seed, ")
        self.assertEqual(self.runs("tiny"), [])
        self.call("work", "results/tiny", ids[0], ids[0])
        self.assertEqual(len(self.runs("tiny")), 1)


if __name__ == "__main__":
    unittest.main()
