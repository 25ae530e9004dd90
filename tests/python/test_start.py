#!/usr/bin/env python3
"""The start law from outside: `check`, `run`, `sweep`, `sweep --dry-run` refuse the same configs in the same words, before anything is
created, and Ctrl-C ends what comes before the first step."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

PROGRAM = os.environ["PALIMPSEST_BINARY"]
CONFIG = """\
task: {name: mqar, vocabulary: 64, length: 24, pairs: 2, train: [{examples: 64}], test: [{examples: 8}]}
model: {width: 8, depth: 1, mixer: linear}
mixers: {linear: {heads: 1}}
train: {steps: 10, batch: 4}
run: {threads: 1}
"""


class Start(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.scratch.name)
        (self.folder / "w.yaml").write_text(CONFIG)

    def tearDown(self):
        self.scratch.cleanup()

    def call(self, *arguments):
        return subprocess.run([PROGRAM, *arguments], cwd=self.folder, capture_output=True, text=True, timeout=120)

    def catches(self, pid, number):
        """Whether the process has a handler of the signal."""
        masks = re.search(r"^SigCgt:\s*([0-9a-f]+)$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        return bool(masks and int(masks.group(1), 16) >> (number - 1) & 1)

    def refused(self, *overrides):
        """The words of the refusal, the same of every verb."""
        said = set()
        for verb in (["check"], ["run", "--dry-run"], ["run"], ["sweep"], ["sweep", "--dry-run"]):
            result = self.call(verb[0], "w.yaml", *overrides, *verb[1:])
            self.assertEqual(result.returncode, 2, (verb, result.stderr))
            self.assertEqual(result.stdout, "")
            lines = [line for line in result.stderr.splitlines() if not line.startswith("note: ")]
            said.add(re.sub(r" and [\d.]+ .iB can be had", " and … can be had", "\n".join(lines)))  # it changes from moment to moment
        self.assertEqual(len(said), 1, said)
        self.assertFalse((self.folder / "results").exists())
        return said.pop()

    def test_all_verbs_refuse_the_same(self):
        self.assertEqual(self.call("check", "w.yaml").returncode, 0)
        if not pathlib.Path("/proc/driver/nvidia/version").exists():
            self.assertRegex(self.refused("run.device=cuda"), r"^<command line>:argument 1: error: run.device: cuda, but (this build has no CUDA|no GPU was found); set run.device: cpu")
        self.assertEqual(self.refused("task.vocabulary=4", "task.length=4", "task.pairs=1"),
                         "w.yaml:1:1: error: 40 of the first 40 training examples of task 'mqar' are valid or test examples too. The task has too few "
                         "different examples to keep them apart: give it a larger vocabulary, more pairs or a greater length, or allow it with "
                         "data.check_overlap: false")

    def test_sizes_are_asked_for_before_anything_starts(self):
        self.assertRegex(self.refused("run.threads=100000"),
                         r"^<command line>:argument 1: error: run.threads: 100000 on a machine of \d+ cores?; at most \d+ are possible here \(0 takes all cores\)$")
        self.assertRegex(self.refused("train.batch=1000000000"),
                         r"^<command line>:argument 1: error: it takes at least [\d.]+ TiB of memory, and … can be had here: [\d.]+ TiB for a training batch "
                         r"\(train.batch, task.train, model\)$")

    def test_a_signal_ends_what_comes_before_the_first_step(self):
        # The search of so many fixed examples, and of so many to be found among them, takes seconds. Where the verb takes signals itself the
        # first one is sent as soon as it does: a program with CUDA may need that long to begin.
        overrides = ["data.mode=fixed", "train.steps=100000000", "task.train.0.examples=400000000", "task.test.0.examples=1000000"]
        for verb, number, code in (("run", signal.SIGINT, 130), ("run", signal.SIGTERM, 75), ("sweep", signal.SIGINT, 130), ("check", signal.SIGINT, -signal.SIGINT)):
            process = subprocess.Popen([PROGRAM, verb, "w.yaml", *overrides], cwd=self.folder, stderr=subprocess.PIPE, text=True)
            deadline = time.monotonic() + (0.3 if verb == "check" else 60)
            while time.monotonic() < deadline and not self.catches(process.pid, number):
                time.sleep(0.01)
            self.assertIsNone(process.poll(), verb)
            process.send_signal(number)
            _, err = process.communicate(timeout=10)
            self.assertEqual(process.returncode, code, (verb, err))
            if verb != "check":
                self.assertEqual(err, "stopped; there was nothing to close\n")
            self.assertFalse((self.folder / "results").exists())


if __name__ == "__main__":
    unittest.main()
