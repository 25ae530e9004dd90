#!/usr/bin/env python3
"""SIGKILL at exact moments: while a file is published, a checkpoint is written, an evaluation runs, a run ends, a pack begins. A third of
the resumed runs is killed again, half of them goes on with another cadence. Nothing is lost, nothing is made twice, and the end is that of
the undisturbed run, bit for bit.

PALIMPSEST_MOMENTS sets the number of kills (default 50), spread evenly over the five moments.
"""

import collections
import concurrent.futures
import json
import os
import random
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
KILLS = int(os.environ.get("PALIMPSEST_MOMENTS", "50"))
JOBS = len(os.sched_getaffinity(0))
STEPS = 40

CONFIG = f"""
name: tiny
task: {{name: overwrite, vocabulary: 32, length: 16, pairs: 2, train: [{{overwrites: 0..1, examples: 1000}}], test: [{{overwrites: 1, examples: 40}}]}}
data: {{check_overlap: false}}
model: {{width: 8, depth: 1, mixer: linear, residual_dropout: 0.1}}
mixers: {{linear: {{heads: 1}}}}
train: {{steps: {STEPS}, batch: 4, lr: 3e-3, warmup: 5, eval_every: 10}}
eval: {{policies: false}}
run: {{log_every: 3, flush_seconds: 0.001, checkpoint_every: 5, threads: 1}}
"""
# An evaluation that takes nearly all of the time: a step beside it takes a few milliseconds.
LONG_EVALUATION = ["task.test.0.examples=2500", "train.eval_every=1", "train.steps=6", "run.checkpoint_every=2"]
PACK = ["sweep.seeds=2", "sweep.lanes=2"]
OTHER_CADENCE = ["run.log_every=4", "run.flush_seconds=1000", "run.checkpoint_every=7", "train.eval_batch=5"]

# What is touched at a moment; of each its calls are counted from the start of the process.
MOMENTS = {
    "a file is published": ("/run.h5", 40),
    "a checkpoint is written": ("/checkpoints/", 150),
    "an evaluation runs": None,
    "a run ends": ("/DONE", 3),
    "a pack begins": ("/LOCK", 5),
}


def cells(path):
    """Of every evaluation its counts and losses, of every training row its values; as bytes, so that NaN equals NaN."""
    with h5py.File(path, "r") as file:
        steps = file["train/step"][:]
        rows = {name: file["train"][name][:] for name in file["train"] if name != "step"}
        evaluations = {int(step): (file["eval/answers"][i].tobytes(), file["eval/loss_sum"][i].tobytes())
                       for i, step in enumerate(file["eval/eval_step"][:])}
        return steps, rows, evaluations, file.attrs.get("status", "")


def state(path):
    """Of a checkpoint the bytes of the parameters, of both moments and of the counters, by name; its window of the log belongs to the cadence."""
    header, body = path.read_bytes().split(b"\nend\n", 1)
    found, at = {}, 0
    for line in header.decode().splitlines():
        if line.startswith("array "):
            _, name, kind, shape = line.split(" ")
            size = {"float": 4, "double": 8, "long": 8}[kind] * int(np.prod([int(n) for n in shape.split(",") if n], dtype=int))
            if name.split("/")[0] in ("parameter", "first_moment", "second_moment", "counter"):
                found[name] = body[at : at + size]
            at += size
    return found


class Moments(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="palimpsest-moments-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        compiler = shutil.which("cc") or shutil.which("gcc")
        cls.shim = cls.folder / "kill_at.so"
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", cls.shim, Path(__file__).with_name("kill_at.c"), "-ldl"], check=True)
        (cls.folder / "tiny.yaml").write_text(CONFIG)
        cls.whole = {}
        for kind, verb, overrides in (("run", "run", []), ("evaluation", "run", LONG_EVALUATION), ("pack", "sweep", PACK)):
            outcome = cls.call(verb, f"whole-{kind}", overrides)
            assert outcome.returncode == 0, outcome.stderr
            cls.whole[kind] = cls.runs(f"whole-{kind}")

    @classmethod
    def call(cls, verb, results, overrides, kill_at=None):
        environment = {**os.environ, **({"LD_PRELOAD": str(cls.shim), "KILL_AT": kill_at} if kill_at else {})}
        return subprocess.run([BINARY, verb, "tiny.yaml", "--results", results, *overrides], cwd=cls.folder, env=environment,
                              capture_output=True, text=True, timeout=300)

    @classmethod
    def runs(cls, results):
        """Folders of runs by seed: the id of a run whose cadence changes is the same, and so is its folder."""
        found = {}
        for path in sorted((cls.folder / results / "tiny").glob("*/config.yaml")):
            found[re.search(r"^seed: (\d+)$", path.read_text(), re.MULTILINE).group(1)] = path.parent
        return found

    def is_whole(self, results):
        """Whatever stands on disk after a kill can be read to its end."""
        for path in (self.folder / results).glob("tiny/*/run.h5"):
            steps, rows, _, _ = cells(path)
            self.assertTrue(np.all(np.diff(steps) > 0), (path, steps))
            self.assertTrue(all(len(values) == len(steps) for values in rows.values()), path)

    def kill_in_evaluation(self, results, overrides, rng):
        process = subprocess.Popen([BINARY, "run", "tiny.yaml", "--results", results, *overrides], cwd=self.folder,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        log, seen = None, rng.randrange(1, 5)
        began = {}
        while process.poll() is None:
            log = log or next((self.folder / results).glob("tiny/*/run.log"), None)
            count = log.read_text().count("test accuracy") if log else 0
            began.setdefault(count, time.monotonic())
            if count >= seen and count - 1 in began:  # how long the evaluation before took
                time.sleep(rng.uniform(0.2, 0.7) * (began[count] - began[count - 1]))
                process.kill()
                break
            time.sleep(0.002)
        process.communicate()
        return process.returncode

    def kill(self, moment, results, overrides, rng):
        """Starts or goes on, and kills at the moment. False where it came to its end before."""
        if MOMENTS[moment] is None:
            return self.kill_in_evaluation(results, overrides, rng) == -signal.SIGKILL
        part, most = MOMENTS[moment]
        order = f"{part} {rng.randint(1, most)} {rng.choice(['before', 'after'])}"
        if moment == "a pack begins":
            outcome = self.call("sweep", results, overrides, order)
            return outcome.returncode == -signal.SIGKILL or "SIGKILL" in outcome.stderr
        return self.call("run", results, overrides, order).returncode == -signal.SIGKILL

    def trial(self, moment, number):
        """One run, killed once or twice, brought to its end and held against its like. Returns (kills by moment, with another cadence)."""
        rng = random.Random(f"{moment} {number}")
        results = f"killed-{re.sub(' ', '-', moment)}-{number}"
        kind = {"an evaluation runs": "evaluation", "a pack begins": "pack"}.get(moment, "run")
        verb, own = ("sweep", PACK) if kind == "pack" else ("run", LONG_EVALUATION if kind == "evaluation" else [])
        kills = collections.Counter()
        while not self.kill(moment, results, own, rng):
            shutil.rmtree(self.folder / results, ignore_errors=True)  # it ended before its moment came
        kills[moment] += 1
        self.is_whole(results)
        other = rng.random() < 0.5
        overrides = own + OTHER_CADENCE if other else own
        if rng.random() < 1 / 3 and self.kill(moment, results, overrides, rng):
            kills[moment] += 1
            self.is_whole(results)
        outcome = self.call(verb, results, overrides)
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        self.compare(results, kind, other)
        shutil.rmtree(self.folder / results)
        return kills, other

    def compare(self, results, kind, other):
        ours, theirs = self.runs(results), self.whole[kind]
        self.assertEqual(ours.keys(), theirs.keys())
        for seed, folder in ours.items():
            self.assertTrue((folder / "DONE").exists(), folder)
            self.assertFalse([path for path in folder.iterdir() if path.name in ("LOCK", "FAILED.json")], folder)
            steps, rows, evaluations, status = cells(folder / "run.h5")
            true_steps, true_rows, true_evaluations, _ = cells(theirs[seed] / "run.h5")
            self.assertEqual(status, "finished")
            self.assertEqual(evaluations, true_evaluations, f"{folder}: evaluations")
            last = sorted((theirs[seed] / "checkpoints").iterdir())[-1].name
            self.assertEqual(state(folder / "checkpoints" / last), state(theirs[seed] / "checkpoints" / last), folder)
            if not other:
                self.assertTrue(np.array_equal(steps, true_steps), folder)
                for name, values in true_rows.items():
                    self.assertEqual(rows[name].tobytes(), values.tobytes(), f"{folder}: {name}")
            else:
                # Rows stand at other steps, but their means cover each step once: the sums over the run are equal to rounding.
                self.assertEqual(steps[-1], true_steps[-1])
                for name in ("loss", "gradient_norm"):
                    weigh = lambda at, values: float(np.sum(np.diff(at, prepend=0) * values.astype(float)))
                    self.assertAlmostEqual(weigh(steps, rows[name]), weigh(true_steps, true_rows[name]), delta=1e-4 * STEPS, msg=f"{folder}: {name}")

    def test_moments(self):
        began = time.monotonic()
        counts, others, trials = collections.Counter(), 0, 0
        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            waiting = collections.deque()
            number = collections.Counter()
            goal = {moment: -(-KILLS // len(MOMENTS)) for moment in MOMENTS}

            def more(moment):
                number[moment] += 1
                waiting.append((moment, pool.submit(self.trial, moment, number[moment])))

            for moment, kills in goal.items():
                for _ in range(-(-kills * 3 // 4)):
                    more(moment)
            while waiting:
                moment, future = waiting.popleft()
                kills, other = future.result()
                counts += kills
                others += other
                trials += 1
                if counts[moment] < goal[moment] and not any(m == moment for m, _ in waiting):
                    more(moment)
        print(f"\n{sum(counts.values())} kills in {trials} runs, {others} of them resumed with another cadence: {json.dumps(counts)}; "
              f"{time.monotonic() - began:.0f} s with {JOBS} at a time")
        for moment, kills in goal.items():
            self.assertGreaterEqual(counts[moment], kills, moment)


if __name__ == "__main__":
    unittest.main()
