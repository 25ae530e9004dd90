#!/usr/bin/env python3
"""Configs that were broken in every way: `check` answers each within seconds and a gigabyte, with a message that has a place; and what it
passes, `run` starts, or refuses before anything is created.

PALIMPSEST_MUTATIONS sets the number of configs (default 300); one in seventeen of them at most is run.
"""

import collections
import concurrent.futures
import copy
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

BINARY = os.environ["PALIMPSEST_BINARY"]
SOURCE = Path(os.environ["PALIMPSEST_SOURCE_DIR"])
COUNT = int(os.environ.get("PALIMPSEST_MUTATIONS", "300"))
JOBS = len(os.sched_getaffinity(0))
SECONDS, CHECK_BYTES, RUN_BYTES = 5, 1 << 30, 2 << 30

MIXERS = ["softmax", "linear", "performer", "retnet", "mamba2", "gla", "delta", "gated_delta", "kda"]
BASES = [
    {"task": {"name": "mqar", "vocabulary": 32, "length": 16, "pairs": 2, "train": [{"examples": 64}], "test": [{"examples": 8}]},
     "model": {"width": 8, "depth": 1, "mixer": mixer}, "mixers": {mixer: {"heads": 1}}, "train": {"steps": 10, "batch": 4}}
    for mixer in MIXERS
] + [
    {"name": "overwritten", "seed": 3,
     "task": {"name": "overwrite", "vocabulary": 64, "length": 56, "pairs": 4, "train": [{"overwrites": "0..4", "examples": 600}],
              "valid": [{"overwrites": "0..4", "examples": 50}], "test": [{"overwrites": 0}, {"overwrites": 4, "examples": 20}]},
     "data": {"mode": "fixed", "seed": 7}, "model": {"width": 16, "layers": ["base_conv", "delta"], "mlp": "gelu", "residual_dropout": 0.1},
     "mixers": {"delta": {"heads": 2, "short_conv": 4}, "base_conv": {"kernel": 3}},
     "train": {"epochs": 2, "batch": 8, "lr": 1e-3, "warmup": 5, "schedule": "cosine", "weight_decay": 0.1},
     "eval": {"select_by": "valid"}, "run": {"log_every": 5, "threads": 1, "checkpoint_every": 10}},
    {"task": {"name": "needle", "vocabulary": 64, "length": 64, "needles": 2, "depth": "25..75", "train": [{"examples": 300}],
              "test": [{"depth": 0, "examples": 10}, {"depth": 100, "examples": 10}]},
     "model": {"width": 16, "depth": 2, "mixer": "gla", "positions": "learned"}, "train": {"steps": 5, "batch": 2}},
    {"task": {"name": "mqar", "vocabulary": 32, "length": 32, "pairs": 2, "train": [{"examples": 64}], "test": [{"examples": 8}]},
     "model": {"width": 8, "depth": 1}, "train": {"steps": 3, "batch": 4},
     "sweep": {"grid": {"model.mixer": ["linear", "delta"], "train.lr": [1e-3, 1e-2]}, "seeds": 2}},
]
EXTREMES = [None, True, False, 0, 1, -1, 2, 3, 7, 0.5, -0.5, 1e-60, 1e-320, 1e308, -1e308, 2**31, 2**31 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64,
            -(2**63), 10**30, "", " ", "~", "null", "nan", "inf", "-inf", ".inf", "1e400", "0x10", "1_000", "0..3", "3..0", "-1..1", "0..", "..3",
            "0..1e9", "yes", "softmax", "delta", "mqar", "cuda", "fp32", "bf16", "a" * 5000, "\u0000", "\u001b[31m", "\u2028", "\ufeff", "../x", "~/x",
            "/tmp/x", "x/../../y", "ümläut", "${HOME}", "%s%n", [], [[]], [1, 2, 3], ["softmax"] * 50, {}, {"a": 1}, [{}], [{"length": 8}]]


def places(value, path=()):
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for i in range(len(value)):
            yield from places(value[i], (*path, i))


def at(root, path):
    for key in path:
        root = root[key]
    return root


def mutate_tree(rng):
    """A config that is still YAML (JSON is), changed in one to four places."""
    root = copy.deepcopy(rng.choice(BASES))
    for _ in range(rng.choice([1, 1, 1, 2, 3, 4])):
        found = [path for path in places(root) if path]
        if not found:
            break
        path = rng.choice(found)
        parent, key = at(root, path[:-1]), path[-1]
        way = rng.randrange(10)
        if way <= 4:
            parent[key] = copy.deepcopy(rng.choice(EXTREMES))
        elif way == 5:
            del parent[key]
        elif way == 6 and isinstance(parent, dict):  # a misspelt key
            letters = list(str(key))
            at_letter = rng.randrange(len(letters))
            letters[at_letter : at_letter + 1] = rng.choice([[], [letters[at_letter]] * 2, ["x"], list("ä.")])
            parent["".join(letters)] = parent.pop(key)
        elif way == 7:  # a key somewhere else
            target = at(root, rng.choice([p for p in places(root) if isinstance(at(root, p), dict)]))
            target[str(key)] = copy.deepcopy(parent[key])
        elif way == 8:  # two sections change places
            other = rng.choice(found)
            if other[: len(path)] != path and path[: len(other)] != other:
                other_parent = at(root, other[:-1])
                parent[key], other_parent[other[-1]] = other_parent[other[-1]], parent[key]
        elif isinstance(parent, list):
            parent.insert(key, copy.deepcopy(parent[key]))
        else:
            parent[key] = [copy.deepcopy(parent[key]) for _ in range(rng.choice([1, 2, 40]))]
    return json.dumps(root, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 2])).encode("utf-8", "surrogatepass")


def mutate_text(rng, texts):
    """A shipped config with its text damaged; often no YAML any more."""
    text = bytearray(rng.choice(texts))
    for _ in range(rng.choice([1, 1, 2, 4])):
        where = rng.randrange(len(text) + 1)
        way = rng.randrange(8)
        if way == 0:
            del text[where : where + rng.randrange(1, 30)]
        elif way == 1:
            del text[where:]
        elif way == 2:
            text[where:where] = rng.choice([b"\t", b"\0", b"\xff", b"\r", b"&a ", b"*a ", b"!!int ", b"<<: ", b"- ", b": ", b"#", b"'", b'"', b"{", b"}", b"[", b"]",
                                            b"---\n", b"...\n", b"? ", b"| ", b"> ", b"%YAML 1.1\n", b"\xc2\x85", b"\xe2\x80\xa8", b"\xef\xbb\xbf", b"[" * 3000])
        elif way == 3:
            text[where : where + 1] = bytes([rng.randrange(256)])
        elif way == 4:
            lines = bytes(text).split(b"\n")
            a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
            lines[a], lines[b] = lines[b], lines[a]
            text = bytearray(b"\n".join(lines))
        elif way == 5:
            lines = bytes(text).split(b"\n")
            a = rng.randrange(len(lines))
            lines[a:a] = [lines[a]] * rng.choice([1, 1, 100])
            text = bytearray(b"\n".join(lines))
        elif way == 6:
            numbers = list(re.finditer(rb"\d[\d.e+-]*", bytes(text)))
            if numbers:
                number = rng.choice(numbers)
                text[number.start() : number.end()] = rng.choice([b"-1", b"0", b"1e99", b"9223372036854775807", b"99999999999999999999", b"0.1", b"1e-60", b"1000000000", b"nan"])
        else:
            other = bytearray(rng.choice(texts))
            text[where:where] = other[: rng.randrange(len(other))]
    return bytes(text)


def run(command, cwd, seconds, enough=lambda: False):
    """(exit code or None where it took too long, stderr, peak memory in bytes, seconds). Ended by SIGTERM as soon as it is `enough`."""
    with tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err, start_new_session=True)
        began, killed = time.monotonic(), False
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if enough():
                enough = lambda: False
                os.killpg(process.pid, signal.SIGTERM)
            if time.monotonic() > began + seconds and not killed:
                os.killpg(process.pid, signal.SIGKILL)
                killed = True
            time.sleep(0.002)
        process.returncode = os.waitstatus_to_exitcode(status)
        err.seek(0)
        return None if killed else process.returncode, err.read().decode("utf-8", "replace"), usage.ru_maxrss * 1024, time.monotonic() - began


class Mutations(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="palimpsest-mutations-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.texts = [path.read_bytes() for path in sorted([*SOURCE.glob("configs/**/*.yaml"), *SOURCE.glob("experiments/*/sweep.yaml")])]

    def check(self, number):
        rng = random.Random(number)
        is_tree = number % 3 != 0
        content = mutate_tree(rng) if is_tree else mutate_text(rng, self.texts)
        path = self.folder / f"m{number}.yaml"
        path.write_bytes(content)
        return number, is_tree, *run([BINARY, "check", path.name], self.folder, 4 * SECONDS)

    def start_law(self, number):
        """Starts a config that passed, and ends it once it has begun. Returns what became of it."""
        results = self.folder / f"r{number}"
        config = self.folder / f"m{number}.yaml"
        verb = "sweep" if b"sweep" in config.read_bytes() else "run"
        has_begun = lambda: results.exists() and any(results.rglob("run.h5"))
        code, err, peak, _ = run([BINARY, verb, config.name, "--results", str(results)], self.folder, 60, has_begun)
        created = has_begun()
        return number, verb, code, err, peak, created, results.exists() and any(results.rglob("*"))

    def test_mutated_configs(self):
        began = time.monotonic()
        faults, passed, trees = [], [], 0
        slowest, largest = 0, 0
        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            for number, is_tree, code, err, peak, seconds in pool.map(self.check, range(COUNT)):
                trees += is_tree
                largest, slowest = max(largest, peak), max(slowest, seconds)
                if seconds > SECONDS and JOBS > 2:  # where the machine has no core to spare, only what never ends is a fault
                    faults.append((number, f"{seconds:.1f} s"))
                if code not in (0, 2):
                    faults.append((number, f"exit {code}: {err[-300:]}"))
                elif peak > CHECK_BYTES:
                    faults.append((number, f"{peak / 1e6:.0f} MB"))
                elif code == 2 and not re.search(rf"(^|\n)(error: )?'?\S*(m{number}|\w+)\.yaml'?(:\d+(:\d+)?)?: ", err):
                    faults.append((number, f"no place: {err[-300:]}"))
                if code == 0:
                    passed.append(number)
        checked = time.monotonic() - began
        counts = collections.Counter()
        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            for number, verb, code, err, peak, created, anything in pool.map(self.start_law, passed[: max(1, COUNT // 17 + 6)]):
                if created:
                    counts["started"] += 1
                elif code == 2 and not anything:
                    counts["refused"] += 1
                    faults.append((number, f"check passes, {verb} refuses: {err[-300:]}"))
                else:
                    faults.append((number, f"{verb}: exit {code}, {'something' if anything else 'nothing'} was created: {err[-300:]}"))
                if peak > RUN_BYTES:
                    faults.append((number, f"{verb} took {peak / 1e6:.0f} MB"))
        print(f"\n{COUNT} configs, {trees} of them still YAML: {len(passed)} pass, {COUNT - len(passed)} are refused; at most {largest / 1e6:.0f} MB and {slowest:.1f} s each; "
              f"{checked:.0f} s with {JOBS} at a time. Of those that pass {sum(counts.values())} were run: {dict(counts)}")
        for number, fault in faults[:30]:
            print(f"--- {number}: {fault}")
            print((self.folder / f"m{number}.yaml").read_bytes()[:700])
        self.assertEqual(faults, [])
        self.assertGreaterEqual(trees, COUNT // 2)
        self.assertGreater(counts["started"], 0)


if __name__ == "__main__":
    unittest.main()
