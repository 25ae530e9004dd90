#!/usr/bin/env python3
"""Do the tests see errors? Plants those of planted_errors.py, one at a time, in copies of the sources; builds; expects a test to fail.

    scripts/plant_errors.py [--only REGEX] [--workers N --jobs N] [--directory DIR] [--list]

Each worker has a copy of the sources and a build of its own under DIR (build/planted unless said), kept for the next call. What is planted
in src/ops must fail test_ops or test_conformance, all else test_conformance. Exit status 0: every error was caught; 1: one was not, or
does not compile; 2: nothing could be planted, because a text is no longer in its file or the tests fail as they are.
"""

import argparse
import html
import os
import pathlib
import queue
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time

from planted_errors import ERRORS

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOT_COPIED = {".git", "build", "results", "docs", "__pycache__"}


def fail(text):
    print(f"plant_errors: {text}", file=sys.stderr)
    sys.exit(2)


def planted(root, file, old, new):
    """The text of `file` with the error in it; ValueError when its place is not there exactly once."""
    path = root / file
    if not path.is_file():
        raise ValueError(f"{file} is no longer there")
    text = path.read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise ValueError(f"{file}: {'no longer has' if old not in text else f'has {text.count(old)} times'} the text\n    {old}")
    return text.replace(old, new)


def setup():
    """What scripts/setup.sh found: PALIMPSEST_TORCH and PALIMPSEST_PYTHON."""
    environment = ROOT / "build" / "setup.env"
    if not environment.is_file():
        subprocess.run([ROOT / "scripts" / "setup.sh"], check=True)
    lines = environment.read_text(encoding="utf-8").splitlines()
    return dict(shlex.split(line)[0].split("=", 1) for line in lines if "=" in line)


def failed_test(xml):
    """The name of the first test case that fails in a report of Catch2, whole or cut off by a crash; None when there is none."""
    names = [(m.start(), html.unescape(m.group(1))) for m in re.finditer(r'<TestCase name="([^"]*)"', xml)]
    fault = re.search(r'success="false"|<Exception|<FatalErrorCondition', xml)
    before = [name for start, name in names if fault is None or start < fault.start()]
    return before[-1] if before and (fault or "</TestCase>" not in xml[names[-1][0]:]) else None


class Worker:
    def __init__(self, folder, jobs, options, timeout):
        # The build lies as deep in the copy as an ordinary one, so that ccache finds what other builds have compiled.
        self.source, self.build, self.jobs, self.timeout = folder, folder / "build" / "planted", jobs, timeout
        self.environment = dict(os.environ, CCACHE_BASEDIR=str(folder.parent), CCACHE_NOHASHDIR="1", OMP_NUM_THREADS="1")
        self.copy_sources()
        self.call(["cmake", "-S", self.source, "-B", self.build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DPALIMPSEST_CUDA=OFF",
                   *(f"-D{key}={value}" for key, value in options.items() if key != "PALIMPSEST_CUDA")])

    def copy_sources(self):
        """Files that are the same keep their times, so that a second call builds little."""
        wanted = set()
        for folder, folders, files in os.walk(ROOT):
            folders[:] = [f for f in folders if f not in NOT_COPIED]
            for file in files:
                path = pathlib.Path(folder, file)
                to = self.source / path.relative_to(ROOT)
                wanted.add(to)
                if not to.is_file() or to.read_bytes() != path.read_bytes():
                    to.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, to)
                    shutil.copymode(path, to)
        for folder, folders, files in os.walk(self.source):
            folders[:] = [f for f in folders if f not in NOT_COPIED]
            for path in (pathlib.Path(folder, file) for file in files):
                if path not in wanted:
                    path.unlink()

    def call(self, command):
        done = subprocess.run(command, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stdout[-3000:])

    def compile(self, target):
        self.call(["cmake", "--build", self.build, "--parallel", str(self.jobs), "--target", target])

    def failure(self, target):
        """Builds and runs a test program; the test that failed, or None."""
        self.compile(target)
        command = [self.build / "tests" / target, "~[slow]~[.]", "--abort", "--reporter", "xml"]
        try:
            done = subprocess.run(command, cwd=self.source, env=self.environment, timeout=self.timeout, text=True, errors="replace",
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        except subprocess.TimeoutExpired:
            return f"{target} does not end within {self.timeout} s"
        if done.returncode == 0:
            return None
        return f"{target}: {failed_test(done.stdout) or f'exit status {done.returncode}'}"

    def plant(self, error):
        """(is the error caught, by what test or why not)."""
        _, file, old, new = error
        original = (self.source / file).read_text(encoding="utf-8")
        (self.source / file).write_text(planted(self.source, file, old, new), encoding="utf-8")
        try:
            for target in targets(error):
                found = self.failure(target)
                if found:
                    return True, found
            return False, "NOT CAUGHT"
        except RuntimeError as reason:
            return False, f"does not compile:\n{reason}"
        finally:
            (self.source / file).write_text(original, encoding="utf-8")


def targets(error):
    return ["test_ops", "test_conformance"] if error[1].startswith("src/ops/") else ["test_conformance"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", default="", help="errors whose name or file matches this regular expression")
    parser.add_argument("--workers", type=int, default=1, help="errors at the same time, each in a build of its own")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers at the same time, of each worker")
    parser.add_argument("--directory", type=pathlib.Path, default=ROOT / "build" / "planted", help="where the copies and builds lie")
    parser.add_argument("--timeout", type=int, default=900, help="seconds for one run of a test program")
    parser.add_argument("--list", action="store_true", help="name the errors and check that their places are there; build nothing")
    arguments = parser.parse_args()

    chosen = [e for e in ERRORS if re.search(arguments.only, e[0]) or re.search(arguments.only, e[1])]
    if not chosen:
        fail(f"--only {arguments.only}: no error is named so")
    lost = []
    for _, file, old, new in chosen:
        try:
            planted(ROOT, file, old, new)
        except ValueError as reason:
            lost.append(str(reason))
    if lost:
        fail("correct scripts/planted_errors.py:\n  " + "\n  ".join(lost))
    if arguments.list:
        for name, file, _, _ in chosen:
            print(f"{file:36} {name}")
        return 0

    todo, results, printing = queue.Queue(), {}, threading.Lock()
    for error in sorted(chosen, key=lambda e: e[1]):  # neighbours in one file: what is restored need not be built
        todo.put(error)
    options, needed = setup(), sorted({t for e in chosen for t in targets(e)})
    directory = arguments.directory.resolve()

    def work(number):
        worker = Worker(directory / f"worker-{number}", arguments.jobs, options, arguments.timeout)
        for target in needed:
            worker.compile(target)
            found = worker.failure(target) if number == 0 else None
            if found:
                raise RuntimeError(f"as it is, before anything is planted: {found}")
        while True:
            try:
                error = todo.get_nowait()
            except queue.Empty:
                return
            start = time.monotonic()
            results[error] = worker.plant(error)
            with printing:
                caught, by = results[error]
                print(f"{'caught' if caught else 'MISSED':7} {error[0]}: {by}  ({time.monotonic() - start:.0f} s)", flush=True)

    reasons = []

    def guarded(number):
        try:
            work(number)
        except (OSError, RuntimeError, subprocess.SubprocessError) as reason:
            reasons.append(str(reason))
            while not todo.empty():  # the others end with what they have
                todo.get_nowait()

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(max(1, min(arguments.workers, len(chosen))))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if reasons:
        fail(reasons[0])

    width = max(len(e[0]) for e in chosen)
    print(f"\n{'planted':{width}}  caught by")
    for error in chosen:
        print(f"{error[0]:{width}}  {results[error][1].splitlines()[0]}")
    missed = sum(not results[e][0] for e in chosen)
    print(f"\n{len(chosen) - missed} of {len(chosen)} caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
