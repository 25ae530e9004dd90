#!/usr/bin/env python3
"""Where runs and sweeps lie and are found again, and how a sweep ends by a signal, a pipe or the ways of its parent."""

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import time
import unittest
from pathlib import Path

import h5py

from sweeps import BINARY, Sweeps, config, wait_for

QUICK = config(20, "{grid: {model.mixer: [softmax, linear]}}")
LONG = config(1_000_000, "{seeds: 2}")
ONE = LONG.replace("sweep:", "# ")


class Folders(Sweeps):
    def setUp(self):
        super().setUp()
        (self.folder / "grid.yaml").write_text(QUICK)
        (self.folder / "long.yaml").write_text(LONG)
        (self.folder / "one.yaml").write_text(ONE)

    def call(self, *arguments, code=0, **options):
        result = subprocess.run([BINARY, *arguments], cwd=self.folder, capture_output=True, text=True, errors="surrogateescape", **options)
        self.assertEqual(result.returncode, code, result.stderr)
        return result.stdout, result.stderr

    def under_way(self, results, name="long", runs=1):
        begun = lambda: list((self.folder / results).glob(f"{name}/*/run.h5"))
        self.assertTrue(wait_for(lambda: len(begun()) >= runs), "no run was begun")
        time.sleep(0.2)

    def test_a_further_axis_trains_only_what_is_new(self):
        self.sweep("axis")
        before = {folder.name for folder in self.runs("axis").values()}
        _, err = self.sweep("axis", "sweep.grid.train.lr=[3e-3, 1e-3]")
        self.assertEqual(len(re.findall(r"\] skip [0-9a-f]{8} \(finished\)  train.lr=0.003|\] skip [0-9a-f]{8} \(finished\)  model", err)), 2, err)
        self.assertEqual(len(re.findall(r"\] start ", err)), 2)
        self.assertEqual(len(self.runs("axis")), 4)
        self.assertLessEqual(before, {folder.name for folder in self.runs("axis").values()})
        # `run`, and a folder of an older version: eight digits before the human part.
        for folder in self.runs("axis").values():
            folder.rename(folder.with_name(folder.name[:8] + "-older"))
        _, err = self.sweep("axis", "sweep.grid.train.lr=[3e-3, 1e-3]")
        self.assertEqual(len(re.findall(r"\] skip ", err)), 4, err)
        (self.folder / "first.yaml").write_text(QUICK.replace("sweep:", "# ") + "name: grid\n")
        out, err = self.call("run", "first.yaml", "--results", "axis")
        self.assertRegex(err, r"finished before: axis/grid/[0-9a-f]{8}-older\n")
        out, _ = self.call("compare", "axis/grid")
        self.assertEqual(len(out.splitlines()), 5)

    def test_a_parent_that_ignores_the_death_of_children(self):
        ignore = lambda: (signal.signal(signal.SIGCHLD, signal.SIG_IGN), signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT}))
        out, _ = self.sweep("ignored", preexec_fn=ignore)
        self.assertEqual(len(out.splitlines()), 3)
        process = self.start("ignored", config="long.yaml", preexec_fn=ignore)
        self.under_way("ignored")
        process.send_signal(signal.SIGTERM)
        self.finish(process, 75, timeout=60)

    def test_names_that_would_leave_the_results(self):
        for name, problem in (("..", None), ("../../x", None), ("/abs", None), ("a/../../b", None), ("./a", None), ("a/", None), ("a//..", None)):
            _, err = self.call("run", "grid.yaml", f"name={name}", code=2)
            self.assertIn(f"<command line>:argument 1: error: 'name' is '{name}'; it must be that of a folder below the results, such as recall or study/recall\n", err)
        _, err = self.call("run", "grid.yaml", "name=latest", code=2)
        self.assertIn("'name' must not hold 'latest', which is the link to the run that started last\n", err)
        _, err = self.call("run", "grid.yaml", "name=" + "n" * 256, code=2)
        self.assertIn("'name' is longer than the 255 bytes that a folder's name may have\n", err)
        for verb in (["sweep", "grid.yaml", "--results", ""], ["ls", ""], ["show", "x", "--results", ""], ["export", "x", "--output", ""]):
            _, err = self.call(*verb, code=2)
            self.assertIn("the path is empty; write one, such as results", err, verb)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["grid.yaml", "long.yaml", "one.yaml"])
        # A folder deeper down is none of these.
        _, err = self.call("sweep", "grid.yaml", "name=study/one", "--results", "r")
        self.assertIn("results: r/study/one\n", err)
        self.assertEqual(len(self.runs("r", "study/one")), 2)

    def test_the_home_folder_behind_an_equals_sign(self):
        environment = {**os.environ, "HOME": str(self.folder / "own")}
        (self.folder / "own").mkdir()
        _, err = self.call("sweep", "grid.yaml", "--results=~/x", env=environment)
        self.assertIn(f"results: {self.folder}/own/x/grid\n", err)
        self.assertFalse((self.folder / "~").exists())
        out, _ = self.call("ls", "~/x", env=environment)
        self.assertEqual(len(out.splitlines()), 3)
        self.call("export", "grid", "--results=~/x", "-o", "~/x.csv", env=environment)
        self.assertTrue((self.folder / "own/x.csv").exists())
        _, err = self.call("ls", "~somebody/x", code=2)
        self.assertIn("'~somebody/x' is not understood; write the whole path, or ./~somebody/x for a folder of that name", err)

    def test_bytes_that_are_no_text(self):
        strange = os.fsencode(self.folder) + b"/caf\xe9 \x1b's"
        os.mkdir(strange)
        for name in (b"grid.yaml", b"caf\xe9.yaml", b"two\nlines.yaml"):
            Path(os.fsdecode(strange + b"/" + name)).write_text(QUICK)
        # The name of a file is that of the folder: refused, before anything is created, unless the config has one.
        for name in (b"caf\xe9.yaml", b"two\nlines.yaml"):
            result = subprocess.run([BINARY, "sweep", name], cwd=strange, capture_output=True)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(b"which holds bytes that are no text in UTF-8; write a name of plain characters (without one, the file's name counts)", result.stderr)
        self.assertEqual(sorted(os.listdir(strange)), [b"caf\xe9.yaml", b"grid.yaml", b"two\nlines.yaml"])
        results = strange + b"/r\xff"
        result = subprocess.run([BINARY, "sweep", b"caf\xe9.yaml", "name=grid", b"--results", results], cwd=strange, capture_output=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(result.stdout.splitlines()), 3)
        for verb in ([b"ls", results], [b"compare", results + b"/grid"], [b"export", results + b"/grid"], [b"show", results + b"/latest"]):
            result = subprocess.run([BINARY, *verb], cwd=strange, capture_output=True)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertNotIn(b"?", result.stdout if verb[0] == b"ls" else b"")
        manifest = Path(os.fsdecode(results + b"/grid/manifest.yaml")).read_bytes()
        command = re.search(rb"command: \"(.*)\"\n", manifest).group(1).replace(b"\\\\", b"\\")
        self.assertIn(rb"$'caf\xe9.yaml' name=grid --results $'" + os.fsencode(self.folder), command)
        self.assertIn(rb"/caf\xe9 \x1b\'s/r\xff'", command)
        # Cut off and gone on with, by the line that is printed.
        command = [BINARY, "sweep", "grid.yaml", "train.steps=1000000", b"--results", results]
        process = subprocess.Popen(command, cwd=strange, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        latest = Path(os.fsdecode(results)) / "latest"
        self.assertTrue(wait_for(lambda: (latest / "run.h5").exists() and "steps: 1000000" in (latest / "config.yaml").read_text()))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)
        line = re.search(rb"resume with: (.*)\n", err).group(1).decode("ascii")
        again = subprocess.Popen(["bash", "-c", f"exec {line}"], cwd=strange, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        seen = b""
        while b"resume" not in seen:
            seen += again.stderr.readline() or self.fail(seen)
        again.send_signal(signal.SIGTERM)
        again.communicate(timeout=60)
        self.assertEqual(again.returncode, 75)

    def test_hints_can_be_pasted(self):
        process = subprocess.Popen([BINARY, "run", "one.yaml", "--results", "it's here"], cwd=self.folder, stderr=subprocess.PIPE, text=True)
        self.under_way("it's here", "one")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)
        folder = next((self.folder / "it's here/one").iterdir()).relative_to(self.folder)
        words = shlex.split(re.search(r"resume with: (.*)\n", err).group(1))
        self.assertEqual(words, ["palimpsest", "resume", str(folder)])
        _, err = self.call("run", "grid.yaml", code=2)
        self.assertIn("start it with: palimpsest sweep grid.yaml\n", err)
        _, err = self.call("sweep", "grid.yaml", "--fail-fast", "--keep-going", code=2)
        self.assertEqual(err, "error: --fail-fast and --keep-going exclude each other; give one of them\n")

    def ended(self, number, code, reason, times=1):
        """A run that got the signal: it has a checkpoint of its last step."""
        results = f"ended{number}"
        process = subprocess.Popen([BINARY, "run", "one.yaml", "--results", results], cwd=self.folder, stderr=subprocess.PIPE, text=True)
        self.under_way(results, "one")
        for _ in range(times):
            process.send_signal(number)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, code, err)
        folder = next(path for path in (self.folder / results / "one").iterdir())
        failure = json.loads((folder / "FAILED.json").read_text())
        self.assertEqual(failure["reason"], reason)
        self.assertTrue(any(f"{failure['step']}" in path.name for path in (folder / "checkpoints").iterdir()), failure)

    def test_signals_of_schedulers_and_terminals(self):
        self.ended(signal.SIGUSR1, 75, "requeue", times=2)
        self.ended(signal.SIGXCPU, 75, "requeue")
        self.ended(signal.SIGHUP, 130, "interrupted", times=2)

    def test_a_terminal_that_is_closed(self):
        master, slave = pty.openpty()
        process = subprocess.Popen([BINARY, "sweep", "long.yaml", "-j", "2", "--results", "terminal"], cwd=self.folder, stdin=slave, stdout=slave, stderr=slave,
                                   start_new_session=True, preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0))
        os.close(slave)
        self.under_way("terminal", runs=2)
        os.close(master)
        self.assertEqual(process.wait(60), 130)
        self.assertEqual(list(self.states("terminal").values()), ["interrupted"] * 2)
        self.assertTrue((self.folder / "terminal/long/sweep.h5").exists())

    def test_a_pipe_that_the_same_signal_ends(self):
        # As Ctrl-C does with `palimpsest sweep … 2>&1 | tee log`.
        read, write = os.pipe()
        (self.folder / "some.yaml").write_text(config(20, "{grid: {train.steps: [20, 1000000]}}"))
        process = subprocess.Popen([BINARY, "sweep", "some.yaml", "--results", "piped"], cwd=self.folder, stdout=write, stderr=write)
        os.close(write)
        self.assertTrue(wait_for(lambda: len(list((self.folder / "piped").glob("some/*/run.h5"))) == 2))
        os.close(read)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(60), 130)
        self.assertEqual(sorted(self.states("piped").values()), ["finished", "interrupted"])
        with h5py.File(self.folder / "piped/some/sweep.h5", "r") as file:
            self.assertEqual(sorted(file["runs/status_code"][:].tolist()), [2, 4])

    def test_a_stdout_that_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            process = subprocess.run([BINARY, "sweep", "grid.yaml", "--results", "full"], cwd=self.folder, stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(process.returncode, 1)
        self.assertIn("error: cannot write to stdout: No space left on device\n", process.stderr)
        self.assertIn("results: full/grid\n", process.stderr)
        self.assertTrue((self.folder / "full/grid/sweep.h5").exists())

    def test_two_plans_of_one_name(self):
        process = self.start("one", config="long.yaml", jobs=1)
        self.under_way("one")
        manifest = (self.folder / "one/long/manifest.yaml").read_bytes()
        _, err = self.sweep("one", "train.lr=1", config="long.yaml", code=2)
        self.assertRegex(err, r"error: a sweep with another plan is at work in '\S+/one/long' \(since 20\S+Z: \S+ sweep long.yaml -j 1 --results \S+/one\); "
                              r"wait for its end, or give this one a name of its own: name=…\n$")
        self.assertEqual((self.folder / "one/long/manifest.yaml").read_bytes(), manifest)
        process.kill()  # whatever ends it, it holds the folder no longer
        self.finish(process, -signal.SIGKILL)
        self.no_process_stays("one")
        _, err = self.sweep("one", "train.steps=5", config="long.yaml")
        self.assertIn("the plan has changed since last time: 2 runs new: ", err)

    def test_a_large_plan(self):
        # 2,202 runs of a task with many segments: far more values than a config may hold.
        segments = ", ".join(f"{{pairs: {1 + i % 3}, examples: {4 + i}}}" for i in range(20))
        text = config(20_000, "{grid: {train.lr: [1e-3, 2e-3, 3e-3], model.mixer: [softmax, linear]}, seeds: 367}").replace("length: 16", "length: 32").replace("test: [{overwrites: 1, examples: 40}]", f"test: [{segments}]")
        (self.folder / "large.yaml").write_text(text)
        began = time.monotonic()
        process = self.start("large", config="large.yaml")
        self.under_way("large", "large", 2)
        process.send_signal(signal.SIGINT)
        _, err = self.finish(process, 130)
        self.assertIn("stopped; 0 of 2202 runs finished\n", err)
        out, _ = self.call("compare", "large/large", "--metric", "final_loss")
        with h5py.File(self.folder / "large/large/sweep.h5", "r") as file:
            self.assertEqual(len(file["runs/run_id"]), 2202)
        out, _ = self.call("export", "large/large")
        self.assertGreater(len(out.splitlines()), 1)
        _, err = self.call("work", "large/large", "0123456789ab", code=2)
        self.assertEqual(err, "error: 'large/large/manifest.yaml' plans no run 0123456789ab\n")
        self.assertLess(time.monotonic() - began, 120)


if __name__ == "__main__":
    unittest.main()
