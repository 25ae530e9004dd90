"""What the tests of sweeps share: starting them, their processes, their records."""

import json
import os
import re
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

BASE = """
task: {name: overwrite, vocabulary: 32, length: 16, pairs: 2, train: [{overwrites: 0..1, examples: 100}], test: [{overwrites: 1, examples: 40}]}
data: {check_overlap: false}
model: {width: 8, depth: 1, mixer: softmax}
train: {steps: %d, batch: 4, lr: 3e-3, eval_every: 100}
run: {log_every: 7, flush_seconds: 0.2, checkpoint_every: 50, threads: 1}
"""


def config(steps, sweep):
    return BASE % steps + f"sweep: {sweep}\n"


def columns(path):
    """Every dataset of the training and evaluation tables, as bytes, so that NaN equals NaN."""
    found = {}
    with h5py.File(path, "r") as file:
        for group in ("train", "eval"):
            for name, dataset in file[group].items():
                values = dataset[()]
                found[f"{group}/{name}"] = values.tolist() if values.dtype == object else values.tobytes()
    return found


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False


def processes_with(text):
    """Process numbers whose command line holds `text`, without the dead that nobody has buried yet."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except (OSError, IndexError):
            continue
        if text in command and state not in "ZX":
            found.append(int(entry.name))
    return found


class Sweeps(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="palimpsest-sweep-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.addCleanup(self.kill_rest)

    def kill_rest(self):
        for pid in processes_with(str(self.folder)):
            os.kill(pid, signal.SIGKILL)

    def start(self, results, *arguments, config="grid.yaml", jobs=2, **options):
        """The sweep of `config`; its processes are told from others by the path of the results."""
        command = [BINARY, "sweep", config, "-j", str(jobs), "--results", str(self.folder / results), *arguments]
        return subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)

    def finish(self, process, code=0, timeout=300):
        out, err = process.communicate(timeout=timeout)
        if code is not None:
            self.assertEqual(process.returncode, code, f"{out}\n{err}")
        self.assertNotIn("\r", err)
        return out, err

    def sweep(self, results, *arguments, code=0, **options):
        return self.finish(self.start(results, *arguments, **options), code)

    def workers(self, results):
        return processes_with(f"work\0{self.folder / results}")

    def no_process_stays(self, results, seconds=60):
        """One that is only just starting notices late on a busy machine that its parent is gone."""
        left = lambda: processes_with(str(self.folder / results))
        if not wait_for(lambda: not left(), seconds):
            self.fail(subprocess.run(["ps", "-o", "pid,ppid,stat,etime,time,wchan,args", "-p", ",".join(map(str, left()))], capture_output=True, text=True).stdout)

    def runs(self, results, name="grid"):
        """Folders of the runs, by id."""
        found = {}
        for folder in sorted((self.folder / results / name).iterdir()):
            if folder.is_dir() and re.match(r"[0-9a-f]{12}-", folder.name):
                found[folder.name[:8]] = folder
        return found

    def states(self, results):
        listed = subprocess.run([BINARY, "ls", str(self.folder / results), "--json"], capture_output=True, text=True, check=True).stdout
        return {Path(run["folder"]).name[:8]: run["state"] for run in json.loads(listed)}

    def check_whole(self, path):
        """Plain h5py opens it; columns of a table have one length; no step stands twice."""
        with h5py.File(path, "r") as file:
            for group, index in (("train", "step"), ("eval", "eval_step")):
                steps = file[group][index][:]
                self.assertTrue(np.all(np.diff(steps) > 0), (path, group, steps))
            for name in file["train"]:
                self.assertEqual(len(file["train"][name]), len(file["train/step"]), f"{path}: {name}")

    def check_done_once(self, folder):
        """Finished, and its steps were made once: a start that was killed between its last step and DONE leaves nothing but the end to
        the next one. Returns the number of starts."""
        self.assertTrue((folder / "DONE").exists(), folder)
        for name in ("LOCK", "FAILED.json"):
            self.assertFalse((folder / name).exists(), folder / name)
        self.check_whole(folder / "run.h5")
        with h5py.File(folder / "run.h5", "r") as file:
            self.assertEqual(file.attrs["status"], "finished")
            reasons = file["starts/reason"].asstr()[:].tolist()
            steps = list(zip(reasons, file["starts/from_step"][:].tolist(), file["starts/to_step"][:].tolist()))
            ends = [(start, end) for reason, start, end in steps if reason == "finished"]
            self.assertEqual(reasons[-1], "finished", (folder, steps))
            self.assertTrue(all(start == end == ends[0][1] for start, end in ends[1:]), (folder, steps))
            return len(reasons)

    def check_same(self, results, expected, name="grid"):
        """Every run equals its like in `expected`, bit for bit: tables and last checkpoint. Returns the number of starts."""
        ours, theirs = self.runs(results, name), self.runs(expected, name)
        self.assertEqual(ours.keys(), theirs.keys())
        starts = 0
        for run, folder in ours.items():
            starts += self.check_done_once(folder)
            a, b = columns(folder / "run.h5"), columns(theirs[run] / "run.h5")
            self.assertEqual(a.keys(), b.keys())
            for column in a:
                self.assertEqual(a[column], b[column], f"{folder.name}: {column}")
            last = sorted((theirs[run] / "checkpoints").iterdir())[-1].name
            self.assertEqual((folder / "checkpoints" / last).read_bytes(), (theirs[run] / "checkpoints" / last).read_bytes(), folder.name)
        return starts
