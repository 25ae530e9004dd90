#!/usr/bin/env python3
"""A sweep with two workers that is killed at a hundred random moments, runs out of disk, is watched, is started thrice at once: nothing
is lost, nothing is run twice, and the results are those of the undisturbed sweep, bit for bit.

PALIMPSEST_SWEEP_KILLS sets the number of kills (default 100).
"""

import os
import random
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import h5py
import numpy as np

from sweeps import Sweeps, columns, config, wait_for

KILLS = int(os.environ.get("PALIMPSEST_SWEEP_KILLS", "100"))
GRID = config(500, "{grid: {model.mixer: [softmax, linear]}, seeds: 3}")


class SlowKills(Sweeps):
    @classmethod
    def setUpClass(cls):
        cls.whole = Path(tempfile.mkdtemp(prefix="palimpsest-whole-"))
        cls.addClassCleanup(shutil.rmtree, cls.whole)

    def setUp(self):
        super().setUp()
        (self.folder / "grid.yaml").write_text(GRID)
        if not (self.whole / "grid/sweep.h5").exists():
            began = time.monotonic()
            self.sweep(self.whole)
            SlowKills.took = min(time.monotonic() - began, 10)  # on a busy machine there is no waiting for it

    def finished(self, results):
        if not (self.folder / results / "grid").exists():
            return {}
        return {run: (folder / "run.h5").stat().st_mtime_ns for run, folder in self.runs(results).items() if (folder / "DONE").exists()}

    def look(self, results, done):
        """What stands on disk is whole, and what was finished has not been touched."""
        if not (self.folder / results / "grid").exists():
            return
        for folder in self.runs(results).values():
            if (folder / "run.h5").exists():
                self.check_whole(folder / "run.h5")
        now = self.finished(results)
        for run, stamp in done.items():
            self.assertEqual(now.get(run), stamp, f"{run} was finished, and has been touched")
        done.update(now)

    def kill_something(self, process, results, rng):
        """What was killed: a worker, the parent, or all at once; "" when nothing was there any more."""
        workers = self.workers(results)
        if process.poll() is not None:
            return ""
        kind = rng.choice(["worker", "worker", "parent", "all"])
        victims = {"worker": rng.sample(workers, min(1, len(workers))), "parent": [process.pid], "all": [process.pid, *workers]}[kind]
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return kind if victims else ""

    def kill_rounds(self, most, rng, *overrides):
        """Sweeps, each killed until `most` kills were made, then brought to its end; (results, kills by kind, states seen)."""
        kills, states, rounds = {"worker": 0, "parent": 0, "all": 0}, set(), []
        while sum(kills.values()) < most:
            results, done = f"round{len(rounds)}", {}
            rounds.append(results)
            while True:
                process = self.start(results, *overrides)
                while process.poll() is None and sum(kills.values()) < most:
                    # Now and then while all start up; else somewhere in the time that a run takes.
                    if rng.random() < 0.8:
                        wait_for(lambda: self.workers(results) or process.poll() is not None)
                    time.sleep(rng.uniform(0, self.took / 8))
                    if kind := self.kill_something(process, results, rng):
                        kills[kind] += 1
                        self.look(results, done)
                _, err = self.finish(process, None)
                self.no_process_stays(results)
                self.look(results, done)
                if process.returncode == 0:
                    break
                self.assertIn(process.returncode, (3, -signal.SIGKILL), err)
                if process.returncode == 3:
                    self.assertRegex(err, r"\n\d of 6 runs failed:\n(.*\n)*.*killed by signal 9 \(SIGKILL\)")
                if (self.folder / results / "grid").exists():
                    states.update(self.states(results).values())
        return rounds, kills, states

    def test_a_hundred_kills(self):
        began = time.monotonic()
        rounds, kills, states = self.kill_rounds(KILLS, random.Random(11))
        starts = sum(self.check_same(results, self.whole) for results in rounds)
        print(f"\n{KILLS} kills {kills} in {len(rounds)} sweeps of 6 runs: {starts} starts, states seen {sorted(states)}, {time.monotonic() - began:.0f} s")
        self.assertLessEqual(states, {"finished", "interrupted", "lost"})
        if KILLS >= 50:
            self.assertGreater(min(kills.values()), 5)
            self.assertGreater(starts, 6 * len(rounds))
            self.assertIn("lost", states)

    def test_kills_of_packs(self):
        # Lanes go on in other packs than they began in: equal to rounding.
        rounds, kills, _ = self.kill_rounds(KILLS // 5, random.Random(13), "sweep.lanes=3")
        starts = 0
        for results in rounds:
            for run, folder in self.runs(results).items():
                starts += self.check_done_once(folder)
                ours, theirs = columns(folder / "run.h5"), columns(self.runs(self.whole)[run] / "run.h5")
                self.assertEqual(ours["train/step"], theirs["train/step"])
                a, b = (np.frombuffer(table["train/loss"], np.float32) for table in (ours, theirs))
                self.assertLess(abs(a - b)[:5].max(), 1e-4)
                self.assertLess(abs(a - b).max(), 0.1)
        print(f"\n{KILLS // 5} kills of packs {kills} in {len(rounds)} sweeps: {starts} starts")

    def refused(self, results, message, **options):
        """A sweep whose writes fail says so for each run, leaves whole files, and is brought to the end once they work again."""
        process = self.start(results, **options)
        _, err = self.finish(process, None)
        self.assertIn(process.returncode, (1, 3), err)
        self.assertRegex(err, message)
        self.no_process_stays(results)
        self.look(results, {})
        self.assertLess(len(self.finished(results)), 6)
        return err

    def test_a_limit_on_the_size_of_files(self):
        sizes = [(folder / "run.h5").stat().st_size for folder in self.runs(self.whole).values()]
        for limit in (1000, min(sizes) // 2, min(sizes) - 100):
            with self.subTest(limit=limit):
                results = f"limit{limit}"
                err = self.refused(results, r"error: cannot write '.*': File too large", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
                self.assertNotIn("SIGXFSZ", err)
                self.sweep(results)
                self.check_same(results, self.whole)

    def test_a_full_disk(self):
        disk = self.folder / "disk"
        disk.mkdir()
        try:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            self.skipTest(f"no file system can be mounted here: {error}")
        self.addCleanup(subprocess.run, ["umount", "-l", str(disk)])
        err = self.refused("disk", r"the disk \(or your quota\) is full; free some space there")
        self.assertRegex(err, r"\d of 6 runs failed:\n(.*\n)*.*the disk \(or your quota\) is full")
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        self.sweep("disk")
        self.check_same("disk", self.whole)

    def test_a_viewer_that_never_lets_go(self):
        process = self.start("watched")
        held = {}
        while process.poll() is None:
            for path in (self.folder / "watched").glob("grid/*/run.h5"):
                if path not in held:
                    held[path] = h5py.File(path, "r")
            time.sleep(0.01)
        self.finish(process)
        self.assertEqual(len(held), 6)
        self.check_same("watched", self.whole)
        for path, file in held.items():
            rows = len(file["train/step"])
            self.assertLess(rows, 72, "opened while it was being written")
            self.assertEqual(file["train/loss"][:].tobytes(), columns(path)["train/loss"][: 4 * rows], path)
            file.close()

    def test_several_sweeps_at_once(self):
        rng = random.Random(3)
        for number in range(3):
            results = f"several{number}"
            sweeps = []
            for _ in range(3):
                sweeps.append(self.start(results))
                time.sleep(rng.uniform(0, 1))
            if number == 2:
                victim = sweeps.pop(rng.randrange(3))
                victim.kill()
                self.finish(victim, None)
            trained = []
            for process in sweeps:
                _, err = self.finish(process, None)
                self.assertIn(process.returncode, (0, 3) if number == 2 else (0,), err)
                trained += re.findall(r"^\[(\d)/6\] finished in ", err, re.MULTILINE)
            if number == 2:  # what the killed one had begun
                self.no_process_stays(results)
                self.sweep(results)
                self.check_same(results, self.whole)
            else:
                self.assertEqual(sorted(trained), list("123456"))
                self.assertEqual(self.check_same(results, self.whole), 6)


if __name__ == "__main__":
    unittest.main()
