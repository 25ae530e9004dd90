#!/usr/bin/env python3
"""A sweep of very many tiny runs: planned, trained for a step each, listed, compared, exported. Prints the seconds and the peak memory of
each verb; what it tests is that every verb knows all of them, and that none takes time or memory out of proportion.

PALIMPSEST_RUNS sets the number of runs (default 200).
"""

import json
import os
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

BINARY = os.environ["PALIMPSEST_BINARY"]
RUNS = int(os.environ.get("PALIMPSEST_RUNS", "200"))
JOBS = len(os.sched_getaffinity(0))

CONFIG = """
name: large
task: {name: overwrite, vocabulary: 32, length: 16, pairs: 2, train: [{overwrites: 0..1, examples: 100}], test: [%s]}
data: {check_overlap: false}
model: {width: 8, depth: 1, mixer: linear}
mixers: {linear: {heads: 1}}
train: {steps: 1, batch: 4}
eval: {policies: false}
run: {threads: 1, checkpoint_every: 0}
sweep: {grid: {model.mixer: [linear, softmax], train.lr: [1e-3, 2e-3, 3e-3, 4e-3, 5e-3]}, seeds: %d}
"""


class Large(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="palimpsest-large-"))
        self.addCleanup(shutil.rmtree, self.folder)
        segments = ", ".join(f"{{overwrites: {i % 2}, examples: 4, length: {16 + i}}}" for i in range(12))
        (self.folder / "large.yaml").write_text(CONFIG % (segments, RUNS // 10))
        self.figures = []

    def verb(self, *arguments):
        began = time.monotonic()
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            process = subprocess.Popen([BINARY, *arguments], cwd=self.folder, stdout=out, stderr=err)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            err.seek(0)
            self.figures.append((" ".join(arguments), time.monotonic() - began, usage.ru_maxrss / 1024))
            self.assertEqual(process.returncode, 0, err.read()[-2000:])
            return out.read()

    def test_every_verb(self):
        self.verb("check", "large.yaml")
        self.verb("sweep", "large.yaml", "--dry-run")
        self.verb("sweep", "large.yaml", "-j", str(JOBS))
        self.verb("sweep", "large.yaml", "-j", str(JOBS))  # all are finished
        listed = json.loads(self.verb("ls", "--json"))
        self.verb("ls")
        self.verb("compare", "large")
        self.verb("compare", "large", "--segments")
        self.verb("export", "large", "-o", "large.csv")
        self.verb("export", "large", "-o", "large.json")
        print(f"\n{RUNS} runs, {JOBS} at a time")
        for arguments, seconds, peak in self.figures:
            print(f"{arguments:40} {seconds:8.1f} s {peak:8.0f} MiB")
        self.assertEqual(len(listed), RUNS // 10 * 10)
        self.assertEqual({run["state"] for run in listed}, {"finished"})
        self.assertEqual(len((self.folder / "large.csv").read_text().splitlines()), RUNS // 10 * 10 + 1)
        for arguments, _, peak in self.figures:
            self.assertLess(peak, 1000, arguments)


if __name__ == "__main__":
    unittest.main()
