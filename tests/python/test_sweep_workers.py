#!/usr/bin/env python3
"""Sweeps in worker processes: whatever happens to one of them, or to all, costs no more than the runs that it met."""

import json
import os
import pty
import random
import re
import resource
import select
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import h5py
import numpy as np

from sweeps import BINARY, Sweeps, config, wait_for

GRID = config(300, "{grid: {model.mixer: [softmax, linear]}, seeds: 4}")
LONG = config(1_000_000, "{seeds: 3}")


class Workers(Sweeps):
    whole = None  # the undisturbed sweep of GRID, made once

    def undisturbed(self):
        """Its folder, and what it prints."""
        if Workers.whole is None:
            folder = Path(tempfile.mkdtemp(prefix="palimpsest-whole-"))
            unittest.addModuleCleanup(shutil.rmtree, folder)
            out, err = self.sweep(folder)
            for word in ("start [0-9a-f]{8}  model", "finished in "):
                self.assertEqual(len(re.findall(rf"^\[\d/8\] {word}", err, re.MULTILINE)), 8)
            Workers.whole = folder, out
        return Workers.whole

    def setUp(self):
        super().setUp()
        (self.folder / "grid.yaml").write_text(GRID)
        (self.folder / "long.yaml").write_text(LONG)

    def start_long(self, results, **options):
        process = self.start(results, config="long.yaml", **options)
        begun = lambda: [folder for folder in self.runs(results, "long").values() if (folder / "run.h5").exists()] if (self.folder / results / "long").exists() else []
        self.assertTrue(wait_for(lambda: len(begun()) == 2))
        self.assertTrue(wait_for(lambda: len(self.workers(results)) == 2))
        time.sleep(0.3)
        return process

    def under_way(self, results):
        """Workers whose run has a checkpoint and has not ended."""
        found = []
        for folder in (self.folder / results).glob("grid/*"):
            try:
                if list((folder / "checkpoints").glob("*.ckpt")):
                    found.append(json.loads((folder / "LOCK").read_text())["pid"])
            except OSError:
                pass
        return [pid for pid in self.workers(results) if pid in found]

    def test_kills(self):
        whole, out = self.undisturbed()
        rng = random.Random(7)
        for kind in ["worker", "parent", "worker", "parent"]:
            process = self.start("killed")
            self.assertTrue(wait_for(lambda: self.under_way("killed")), "no run was met under way")
            time.sleep(rng.uniform(0, 0.1))
            os.kill(rng.choice(self.under_way("killed") or self.workers("killed")) if kind == "worker" else process.pid, signal.SIGKILL)
            _, err = self.finish(process, None)
            if kind == "worker":
                self.assertEqual(process.returncode, 3, err)
                self.assertRegex(err, r"\[\d/8\] failed: killed by signal 9 \(SIGKILL\), as is done when memory runs out")
                self.assertRegex(err, r"\n1 of 8 runs failed:\nrun +error +log +try again\n[0-9a-f]{8} \S+ +killed by signal 9 ")
                states = self.states("killed")
                self.assertLessEqual(set(states.values()), {"finished", "lost", "interrupted"})
            else:
                self.no_process_stays("killed")
                self.assertNotIn("running", self.states("killed").values())
        done = {run: (folder / "run.h5").stat().st_mtime_ns for run, folder in self.runs("killed").items() if (folder / "DONE").exists()}
        again, err = self.sweep("killed")
        self.assertEqual(len(re.findall(r"\] skip [0-9a-f]{8} \(finished\)", err)), len(done))
        self.assertEqual(again, out)
        starts = self.check_same("killed", whole)
        self.assertGreater(starts, 8, "no run was resumed")
        for run, stamp in done.items():
            self.assertEqual((self.runs("killed")[run] / "run.h5").stat().st_mtime_ns, stamp, "a finished run was touched")

    def test_a_failure_in_the_middle(self):
        (self.folder / "grid.yaml").write_text(config(150, "{grid: {train.init_scale: [1, 1e20, 2]}}"))
        _, err = self.sweep("failed", "run.threads=0", code=3)
        self.assertRegex(err, r"\[2/3\] error: step \d+, lane 0: .* is not finite")
        folder = next(f for f in self.runs("failed").values() if "e_20" in f.name or "e+20" in f.name)
        self.assertIn(f"[2/3] failed; log: {folder}/run.log\n", err)
        self.assertRegex(err, rf"\n1 of 3 runs failed:\nrun +error +log +try again\n{folder.name[:8]} \S+ +step \d+, lane 0: .* +{re.escape(str(folder))}/run.log +palimpsest resume {re.escape(str(folder))}\n")
        self.assertEqual(sorted(self.states("failed").values()), ["failed", "finished", "finished"])
        cores = int(json.loads(subprocess.run([BINARY, "doctor", "--json"], capture_output=True, check=True).stdout)["facts"]["usable threads"])
        with h5py.File(folder / "run.h5", "r") as file:
            self.assertEqual(file["provenance"].attrs["threads"], max(1, cores // 2))
        # One at a time, so that the second failure would come after the first.
        (self.folder / "grid.yaml").write_text(config(150, "{grid: {train.init_scale: [1e20, 2e20, 1]}}"))
        _, err = self.sweep("fast", "--fail-fast", jobs=1, code=3)
        self.assertEqual(len(re.findall(r"\] start ", err)), 1)
        self.assertIn("1 of 3 runs failed", err)

    def test_a_worker_that_is_told_to_stop(self):
        (self.folder / "grid.yaml").write_text(config(50, "{grid: {train.steps: [1000000, 50]}}"))
        process = self.start("told", "run.threads=0")
        one = lambda: (self.folder / "told/grid").exists() and any((f / "DONE").exists() for f in self.runs("told").values()) and len(self.workers("told")) == 1
        self.assertTrue(wait_for(one))
        os.kill(self.workers("told")[0], signal.SIGTERM)
        _, err = self.finish(process, 3)
        self.assertRegex(err, r"\n1 of 2 runs cut off\nresume with: \S+ sweep grid.yaml -j 2 --results \S+/told run.threads=0\n")
        self.assertEqual(sorted(self.states("told").values()), ["finished", "interrupted"])
        # Alone it has all cores to itself, and goes on with as many threads as the worker had.
        folder = next(f for f in self.runs("told").values() if not (f / "DONE").exists())
        before = (folder / "run.log").read_text().count("from step")
        again = subprocess.Popen([BINARY, "resume", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertTrue(wait_for(lambda: (folder / "run.log").read_text().count("from step") > before))
        again.send_signal(signal.SIGTERM)
        _, err = self.finish(again, 75)
        self.assertNotIn("bit for bit", err)

    def test_two_sweeps_at_once(self):
        whole, out = self.undisturbed()
        both = [self.start("both", jobs=1), self.start("both", jobs=1)]
        texts = [self.finish(process) for process in both]
        self.assertEqual(self.check_same("both", whole), 8, "a run was started twice")
        trained = [set(re.findall(r"^\[(\d)/8\] finished in ", err, re.MULTILINE)) for _, err in texts]
        self.assertEqual(trained[0] & trained[1], set())
        self.assertEqual(len(trained[0] | trained[1]), 8)
        self.assertIn(out, [text for text, _ in texts], "the one that ends last shows all, whatever the number of workers")
        for _, err in texts:
            self.assertRegex(err, r"leave alone [0-9a-f]{8} \(running: pid \d+ on host |left alone: running: pid |\] skip |finished before")
            self.assertIn(f"results: {self.folder / 'both'}/grid\n", err)
        self.assertTrue(all(state == "finished" for state in self.states("both").values()))

    def stopped(self, number, code, group=False, times=1):
        results = f"stopped{number}{group}{times}"
        process = self.start_long(results, start_new_session=True)
        began = time.monotonic()
        for _ in range(times):
            (os.killpg if group else os.kill)(process.pid, number)
            time.sleep(0.1 if times > 1 else 0)
        _, err = self.finish(process, code)
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual(self.workers(results), [])
        states = self.states(results)
        self.assertEqual(list(states.values()), ["interrupted"] * 2, err)
        self.assertRegex(err, r"stopped; 0 of 3 runs finished\nresume with: ")
        for folder in self.runs(results, "long").values():
            self.assertFalse((folder / "LOCK").exists())
            reason = json.loads((folder / "FAILED.json").read_text())["reason"]
            self.assertEqual(reason, "interrupted" if number == signal.SIGINT else "requeue")
            self.check_whole(folder / "run.h5")
        return err

    def test_signals(self):
        err = self.stopped(signal.SIGINT, 130)
        self.assertIn("stopping; each run finishes its step and writes a checkpoint\n", err)
        self.assertEqual(len(re.findall(r"\[\d/3\] interrupted at step \d+\n", err)), 2)
        # As a terminal sends it: to the workers too. It must not count twice.
        err = self.stopped(signal.SIGINT, 130, group=True)
        self.assertEqual(len(re.findall(r"\[\d/3\] interrupted at step \d+\n", err)), 2)
        self.stopped(signal.SIGTERM, 75)
        self.stopped(signal.SIGUSR2, 75)

    def test_a_second_signal_leaves_at_once(self):
        # An evaluation that lasts for long: the step before it is over only when it is.
        overrides = ["task.test.0.examples=400000", "train.eval_every=1", "eval.policies=false", "train.eval_batch=8"]
        process = self.start("now", *overrides, config="long.yaml")
        self.assertTrue(wait_for(lambda: len([1 for f in (self.folder / "now/long").glob("*/run.h5")]) == 2))
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        self.assertEqual(len(self.workers("now")), 2, "the first signal waits for the step to end")
        process.send_signal(signal.SIGINT)
        self.finish(process, 130, timeout=10)
        self.no_process_stays("now", 1)
        self.assertEqual(list(self.states("now").values()), ["interrupted"] * 2)
        for folder in self.runs("now", "long").values():
            self.check_whole(folder / "run.h5")

    def test_a_parent_that_dies_takes_its_workers_along(self):
        process = self.start_long("orphans")
        process.kill()
        self.finish(process, -signal.SIGKILL)
        self.no_process_stays("orphans")
        self.assertEqual(list(self.states("orphans").values()), ["interrupted"] * 2)

    def test_a_worker_by_hand_trains_lanes_of_one_model(self):
        whole, _ = self.undisturbed()
        lanes = self.folder / "lanes/grid"
        lanes.mkdir(parents=True)
        (lanes / "manifest.yaml").write_bytes((whole / "grid/manifest.yaml").read_bytes())
        ids = {}
        for folder in self.runs(whole).values():
            with h5py.File(folder / "run.h5", "r") as file:
                ids.setdefault("linear" if "linear" in folder.name else "softmax", []).append(file.attrs["run_id"])
        for pack in ids.values():
            result = subprocess.run([BINARY, "work", str(lanes), *pack], capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stderr)
            told = [json.loads(line) for line in result.stdout.splitlines()]
            self.assertEqual(sorted(t["taken"] for t in told if "taken" in t), sorted(pack))
            # What is finished already is not taken again.
            result = subprocess.run([BINARY, "work", str(lanes), *pack], capture_output=True, text=True)
            self.assertEqual((result.returncode, result.stdout), (0, ""))
        for run, folder in self.runs("lanes").items():
            self.assertEqual(self.check_done_once(folder), 1)
            with h5py.File(folder / "run.h5", "r") as file, h5py.File(self.runs(whole)[run] / "run.h5", "r") as alone:
                self.assertEqual(file["provenance"].attrs["lanes"], 4)
                self.assertEqual(alone["provenance"].attrs["workers"], 2)
                self.assertEqual(file["train/step"][:].tolist(), alone["train/step"][:].tolist())
                # To rounding: it grows with the steps.
                difference = abs(file["train/loss"][:] - alone["train/loss"][:])
                self.assertLess(difference[:5].max(), 1e-4)
                self.assertLess(difference.max(), 0.1)
        result = subprocess.run([BINARY, "work", str(lanes), "0123456789ab"], capture_output=True, text=True)
        self.assertEqual(result.returncode, 2)
        self.assertEqual(result.stderr, f"error: '{lanes}/manifest.yaml' plans no run 0123456789ab\n")

    def test_lanes(self):
        (self.folder / "grid.yaml").write_text(config(150, "{grid: {train.lr: [1e-3, 3e-3], train.init_scale: [1, 1e20]}, seeds: 2, lanes: 3}"))
        _, err = self.sweep("lanes", code=3)
        for place in (r"\[1-3/8\] 3 runs", r"\[4-6/8\] 3 runs", r"\[7-8/8\] 2 runs"):
            self.assertRegex(err, place + " train as lanes of one model\n")
        self.assertEqual(sorted(self.states("lanes").values()), ["failed"] * 4 + ["finished"] * 4)
        self.assertEqual(len(re.findall(r"\[\d/8\] finished in ", err)), 4)
        self.assertEqual(len(re.findall(r"\[\d/8\] failed; log: ", err)), 4)
        last_pack = re.findall(r"^\[[78]/8\] start ([0-9a-f]{8})", err, re.MULTILINE)
        alone = [BINARY, "sweep", "grid.yaml", "-j", "2", "--results", str(self.folder / "alone"), "sweep.lanes=1", "--progress", "never"]
        self.assertEqual(subprocess.run(alone, cwd=self.folder, capture_output=True).returncode, 3)
        for run, folder in self.runs("lanes").items():
            with h5py.File(folder / "run.h5", "r") as file, h5py.File(self.runs("alone")[run] / "run.h5", "r") as other:
                self.assertEqual((file["provenance"].attrs["lanes"], other["provenance"].attrs["lanes"]), (2 if run in last_pack else 3, 1))
                self.assertEqual(file["train/step"][:].tolist(), other["train/step"][:].tolist())
                np.testing.assert_allclose(file["train/loss"][:], other["train/loss"][:], rtol=1e-2, atol=1e-3)

    def test_a_run_that_takes_too_much_memory(self):
        # What cannot be enough is refused before anything starts; the estimate is a lower bound, and what lies above it fails in its step.
        gib = 1 << 30
        limited = lambda limit: lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        (self.folder / "grid.yaml").write_text(config(100, "{grid: {train.batch: [4, 300000000], model.width: [8, 400000]}}"))
        _, err = self.sweep("never", code=2, preexec_fn=limited(4 * gib))
        told = r"error: it takes at least [\d.]+ TiB of memory, and ([\d.]+) GiB can be had here: .* for weights, gradients and moments "
        self.assertRegex(err, told)
        self.assertFalse((self.folder / "never").exists())
        # With CUDA the program takes gigabytes of addresses before it does anything: what it leaves is asked for, and made 2.5 GiB.
        taken = 4 * gib - int(float(re.search(told, err).group(1)) * gib)
        (self.folder / "grid.yaml").write_text(config(100, "{grid: {train.batch: [4, 1200000, 8]}}"))
        _, err = self.sweep("memory", code=3, preexec_fn=limited(taken + 5 * gib // 2))
        self.assertRegex(err, r"\[2/3\] error: out of memory: ")
        self.assertRegex(err, r"1 of 3 runs failed:\n.*\n[0-9a-f]{8} batch=1200000 +out of memory: ")
        self.assertEqual(sorted(self.states("memory").values()), ["failed", "finished", "finished"])

    def test_results_that_cannot_be_written(self):
        (self.folder / "file").write_text("")
        _, err = self.sweep("file", code=1)
        self.assertRegex(err, rf"(^|\n)error: cannot create '{re.escape(str(self.folder))}/file/grid': Not a directory\n$")
        # Nobody may create anything here, not even root.
        process = subprocess.run([BINARY, "sweep", "grid.yaml", "--results", "/sys/results"], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(process.returncode, 1)
        self.assertRegex(process.stderr, r"(^|\n)error: cannot create '/sys/results(/grid)?': (Operation not permitted|Read-only file system|Permission denied)\n$")
        if os.geteuid() != 0:
            (self.folder / "closed").mkdir(mode=0o555)
            _, err = self.sweep("closed", code=1)
            self.assertIn(f"error: cannot create '{self.folder}/closed/grid': Permission denied\n", err)

    def test_a_terminal_gets_one_line_for_all_workers(self):
        (self.folder / "grid.yaml").write_text(config(400, "{seeds: 2}"))
        master, slave = pty.openpty()
        environment = {k: v for k, v in os.environ.items() if k not in ("CI", "NO_COLOR")}
        command = [BINARY, "sweep", "grid.yaml", "-j", "2", "--results", str(self.folder / "terminal")]
        process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=slave, env={**environment, "TERM": "xterm"})
        os.close(slave)
        seen = b""
        while process.poll() is None or select.select([master], [], [], 0)[0]:
            if select.select([master], [], [], 0.05)[0]:
                try:
                    seen += os.read(master, 65536)
                except OSError:
                    break
        os.close(master)
        self.assertEqual(process.wait(), 0)
        self.assertRegex(seen.decode(), r"\r\[1/2\] \d+% acc \d\.\d+ eta \S+ \| \[2/2\] \d+% acc")
        self.assertNotIn("step 7/400", seen.decode())


if __name__ == "__main__":
    unittest.main()
