#!/usr/bin/env python3
"""A run that is killed at any moment, and its resumption: the file is whole, and the end is the same bit for bit.

PALIMPSEST_KILLS sets the number of kills (default 5).
"""

import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import h5py
import numpy as np

BINARY = os.environ["PALIMPSEST_BINARY"]
KILLS = int(os.environ.get("PALIMPSEST_KILLS", "5"))
STEPS = 1200

CONFIG = f"""
task:
  name: overwrite
  vocabulary: 32
  length: 16
  pairs: 2
  train: [{{overwrites: 0..1, examples: 1000}}, {{overwrites: 2, examples: 500}}]
  test: [{{overwrites: 1, examples: 100}}]
data: {{check_overlap: false}}
model: {{width: 16, layers: [base_conv, softmax], residual_dropout: 0.1}}
train: {{steps: {STEPS}, batch: 8, lr: 3e-3, warmup: 20, eval_every: 100}}
run: {{log_every: 7, flush_seconds: 1, checkpoint_every: 60, threads: 1}}
"""


def start(*arguments, cwd):
    return subprocess.Popen([BINARY, *arguments], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process, timeout=120):
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


def run_folder(results):
    folders = sorted(Path(results).glob("tiny/*"))
    return folders[0] if folders else None


def holds_lock(process, results):
    try:
        return json.loads((run_folder(results) / "LOCK").read_text())["pid"] == process.pid
    except (TypeError, FileNotFoundError):
        return False


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False


def columns(path):
    """Every dataset of the training and evaluation tables, as bytes, so that NaN equals NaN."""
    found = {}
    with h5py.File(path, "r") as file:
        for group in ("train", "eval"):
            for name, dataset in file[group].items():
                values = dataset[()]
                found[f"{group}/{name}"] = values.tolist() if values.dtype == object else values.tobytes()
    return found


class KillAndResume(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="palimpsest-kill-"))
        (self.folder / "tiny.yaml").write_text(CONFIG)
        self.addCleanup(shutil.rmtree, self.folder)

    def check_whole(self, path):
        """Plain h5py opens it; all columns of a table have one length; steps increase."""
        with h5py.File(path, "r") as file:
            for group, index in (("train", "step"), ("eval", "eval_step"), ("system", "time_step")):
                steps = file[group][index][:]
                self.assertTrue(np.all(np.diff(steps) > 0), (group, steps))
                for name, dataset in file[group].items():
                    if dataset.dims[0] and dataset.dims[0].label == "" and dataset.maxshape[0] is None:
                        self.assertEqual(len(dataset), len(steps), f"{group}/{name}")
            return len(file["train/step"])

    def test_killed_at_random_moments(self):
        rc, _, err = finish(start("run", "tiny.yaml", "--results", "whole", cwd=self.folder))
        self.assertEqual(rc, 0, err)
        whole = run_folder(self.folder / "whole")
        expected = columns(whole / "run.h5")
        self.assertGreater(len(expected["train/loss"]), 4 * 100)
        last = f"checkpoints/step-{STEPS:09d}.ckpt"
        expected_state = (whole / last).read_bytes()
        took = (whole / "DONE").stat().st_mtime - (whole / "config.yaml").stat().st_mtime

        rng = random.Random(5)
        kills = met = round_number = 0
        rows_seen = set()
        while kills < KILLS:
            results = self.folder / f"killed{round_number}"
            round_number += 1
            self.assertLess(round_number, 4 * KILLS + 10, "the run ends before it can be killed")
            done = False
            while not done:
                process = start("run", "tiny.yaml", "--results", str(results), cwd=self.folder)
                if kills < KILLS:
                    # Now and then while it starts up; else somewhere in the quarter of the run that follows its lock.
                    self.assertTrue(rng.random() < 0.2 or wait_for(lambda: holds_lock(process, results) or process.poll() is not None))
                    time.sleep(rng.uniform(0, took / 4))
                    process.send_signal(signal.SIGKILL)
                rc, _, err = finish(process)
                folder = run_folder(results)
                if rc == -signal.SIGKILL:
                    kills += 1
                    if folder is not None and (folder / "run.h5").exists():
                        rows_seen.add(self.check_whole(folder / "run.h5"))
                        met += 1
                        if not (folder / "DONE").exists():
                            listed = json.loads(subprocess.run([BINARY, "ls", str(results), "--json"], capture_output=True, text=True, check=True).stdout)
                            self.assertEqual(listed[0]["state"], "lost")
                else:
                    self.assertEqual(rc, 0, err)
                    done = True
            self.assertTrue((folder / "DONE").exists())
            actual = columns(folder / "run.h5")
            self.assertEqual(actual.keys(), expected.keys())
            for name in expected:
                self.assertEqual(actual[name], expected[name], f"{name} differs after a resumption")
            self.assertEqual((folder / last).read_bytes(), expected_state, "the last checkpoint differs")
            with h5py.File(folder / "run.h5", "r") as file:
                self.assertEqual(file.attrs["status"], "finished")
        self.assertGreater(met, 0, "no kill met a run that had begun")
        self.assertGreater(len(rows_seen), 1, "all kills met the run at the same row")

    def test_cadences_changed_at_every_resume(self):
        rc, _, err = finish(start("run", "tiny.yaml", "--results", "fine", "run.log_every=1", cwd=self.folder))
        self.assertEqual(rc, 0, err)
        whole = run_folder(self.folder / "fine")
        took = (whole / "DONE").stat().st_mtime - (whole / "config.yaml").stat().st_mtime
        cadences = (
            ("run.log_every=50", "run.flush_seconds=0.05", "run.checkpoint_every=500", "train.eval_batch=3"),
            ("run.log_every=1000000000", "run.flush_seconds=60", "run.checkpoint_every=100", "train.eval_batch=100"),
            ("run.log_every=30", "run.checkpoint_every=40", "train.eval_batch=1"),
            ("run.log_every=101", "run.checkpoint_every=0"),
        )
        results = self.folder / "changed"
        stopped = 0
        for cadence in cadences[:-1]:
            process = start("run", "tiny.yaml", "--results", str(results), *cadence, cwd=self.folder)
            self.assertTrue(wait_for(lambda: holds_lock(process, results) or process.poll() is not None))
            time.sleep(took / 5)
            process.send_signal(signal.SIGINT)
            rc, _, err = finish(process)
            stopped += rc == 130
        rc, _, err = finish(start("run", "tiny.yaml", "--results", str(results), *cadences[-1], cwd=self.folder))
        self.assertEqual(rc, 0, err)
        self.assertGreater(stopped, 0, "no signal met the run under way")

        expected, actual = columns(whole / "run.h5"), columns(run_folder(results) / "run.h5")
        for name in expected:
            if name.startswith("eval/"):
                self.assertEqual(actual[name], expected[name], name)
        with h5py.File(whole / "run.h5", "r") as fine, h5py.File(run_folder(results) / "run.h5", "r") as file:
            self.assertEqual(file["summary/final_loss"][()], fine["summary/final_loss"][()])
            ends = file["train/step"][:]
            self.assertEqual(ends[-1], STEPS)
            for name in ("loss", "accuracy", "gradient_norm"):
                every = fine[f"train/{name}"][:].astype(float)
                means = [every[begin:end].mean() for begin, end in zip([0, *ends[:-1]], ends)]
                np.testing.assert_allclose(file[f"train/{name}"][:], means, rtol=1e-5, err_msg=name)
            np.testing.assert_array_equal(file["train/lr"][:], fine["train/lr"][:][ends - 1])

    def interrupted(self, number, code):
        process = start("run", "tiny.yaml", "--results", "stopped", cwd=self.folder)
        results = self.folder / "stopped"
        self.assertTrue(wait_for(lambda: (run_folder(results) or results).joinpath("run.h5").exists()))
        time.sleep(0.2)
        process.send_signal(number)
        rc, _, err = finish(process)
        self.assertEqual(rc, code, err)
        folder = run_folder(results)
        relative = folder.relative_to(self.folder)
        self.assertIn(f"resume with: palimpsest resume {relative}\n", err)
        self.assertRegex(err, r"interrupted at step \d+\n")
        listed = json.loads(subprocess.run([BINARY, "ls", str(results), "--json"], capture_output=True, text=True, check=True).stdout)
        self.assertEqual(listed[0]["state"], "interrupted")
        with h5py.File(folder / "run.h5", "r") as file:
            self.assertEqual(file.attrs["status"], "interrupted")
            self.assertEqual(file["starts/reason"].asstr()[0], "interrupted" if number == signal.SIGINT else "requeue")

        rc, out, err = finish(start("resume", str(relative), cwd=self.folder))
        self.assertEqual(rc, 0, err)
        self.assertRegex(err, r"from step \d+: ")
        self.assertIn("test accuracy", out)
        with h5py.File(folder / "run.h5", "r") as file:
            self.assertEqual(file.attrs["status"], "finished")
            self.assertEqual(len(file["starts/start"]), 2)
            self.assertEqual(file["starts/from_step"][1], file["starts/to_step"][0])

    def test_ctrl_c(self):
        self.interrupted(signal.SIGINT, 130)

    def test_pre_emption(self):
        self.interrupted(signal.SIGTERM, 75)

    def test_second_signal_leaves_at_once(self):
        # An evaluation that lasts for long: the step before it is over only when it is.
        overrides = ["task.test.0.examples=400000", "train.eval_every=1", "eval.policies=false", "train.eval_batch=8"]
        process = start("run", "tiny.yaml", "--results", "now", *overrides, cwd=self.folder)
        results = self.folder / "now"
        self.assertTrue(wait_for(lambda: (run_folder(results) or results).joinpath("run.h5").exists()))
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        self.assertIsNone(process.poll(), "the first signal waits for the step to end")
        process.send_signal(signal.SIGINT)
        rc, _, err = finish(process, timeout=10)
        self.assertEqual(rc, 130, err)
        folder = run_folder(results)
        self.assertIn(f"stopped at once; what was logged since the last checkpoint will be made again\nresume with: palimpsest resume {folder.relative_to(self.folder)}", err)
        self.check_whole(folder / "run.h5")
        with h5py.File(folder / "run.h5", "r") as file:
            self.assertEqual(file["starts/reason"].asstr()[0], "interrupted")
        self.assertFalse((folder / "LOCK").exists())

    def test_a_running_run_is_left_alone(self):
        first = start("run", "tiny.yaml", "--results", "one", "train.steps=100000", cwd=self.folder)
        results = self.folder / "one"
        try:
            self.assertTrue(wait_for(lambda: (run_folder(results) or results).joinpath("run.h5").exists()))
            rc, _, err = finish(start("run", "tiny.yaml", "--results", "one", "train.steps=100000", cwd=self.folder))
            self.assertEqual(rc, 2)
            self.assertRegex(err, rf"error: the run is already running: pid {first.pid} on host \S+; it is left alone: one/tiny/")
            rc, _, err = finish(start("sweep", "tiny.yaml", "--results", "one", "train.steps=100000", cwd=self.folder))
            self.assertEqual(rc, 0)
            self.assertRegex(err, rf"\[1/1\] leave alone \w+ \(running: pid {first.pid} on host \S+\)")
        finally:
            first.send_signal(signal.SIGTERM)
            rc, _, _ = finish(first)
        self.assertEqual(rc, 75)


if __name__ == "__main__":
    unittest.main()
