#!/usr/bin/env python3
"""`palimpsest bench` and the peer beside it: what they print and refuse. How fast anything is is no test."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BINARY = os.environ["PALIMPSEST_BINARY"]
SOURCE = Path(os.environ["PALIMPSEST_SOURCE_DIR"])
PEER = SOURCE / "scripts" / "peers" / "pytorch_step.py"
QUICK = ["--repeats", "2", "--warmup", "1", "--threads", "1"]
CONFIG = """
task: {name: overwrite, vocabulary: 32, pairs: 2, train: [{length: 16, examples: 10}, {length: 24, overwrites: 1, examples: 10}], test: [{length: 16}]}
model: {width: 8, layers: [base_conv, delta]}
mixers: {delta: {heads: 1}}
data: {mode: fixed}
train: {batch: 4, epochs: 1}
sweep: {grid: {model.width: [8, 16], train.lr: [1e-3, 3e-3]}}
"""


def call(command, code=0, **options):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300, **options)
    assert result.returncode == code, f"{command}: {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result.stdout, result.stderr


class Step(unittest.TestCase):
    def test_json(self):
        out, _ = call([BINARY, "bench", "step", "--mixer", "softmax,gated_delta", "--shape", "16,32", "--shape", "32,64,3", "--batch", 4, "--width", 16, "--layers", 1, *QUICK, "--json"])
        answer = json.loads(out)
        self.assertEqual((answer["repeats"], answer["machine"]["threads"], answer["machine"]["device"]), (2, 1, "cpu"))
        for key in ("processor", "libtorch", "version", "commit"):
            self.assertTrue(answer["machine"][key])
        self.assertEqual([(s["layers"], s["length"], s["vocabulary"], s["scored"], s["batch"], s["width"]) for s in answer["steps"]],
                         [([mixer], *shape, 4, 16) for mixer in ("softmax", "gated_delta") for shape in ((16, 32, 1), (32, 64, 3))])
        for step in answer["steps"]:
            times = step["milliseconds"]
            self.assertEqual(len(step["samples"]), 2)
            self.assertTrue(0 < times["least"] <= times["lower"] <= times["median"] <= times["upper"])
            self.assertAlmostEqual(times["least"], min(step["samples"]))
            self.assertEqual(list(step["parts"]), ["data", "forward", "backward", "update", "metrics"])
            parts = sum(part["median"] for part in step["parts"].values())
            self.assertTrue(0.5 * times["least"] < parts < 1.5 * max(step["samples"]), (parts, times))
            self.assertAlmostEqual(step["tokens_per_second"], 4 * step["length"] / times["median"] * 1e3)
            self.assertGreater(step["peak_memory"], 10_000_000)
            self.assertGreater(step["processor_milliseconds"], 0)
            self.assertEqual(step["config"]["model"]["width"], 16)
            self.assertIn(step["layers"][0], step["config"]["mixers"])
        # One block of attention at width 16: embedding, positions, qkv, out, two norms.
        self.assertEqual(answer["steps"][0]["parameters"], 32 * 16 + 16 * 16 + 4 * 16 * 16 + 2 * 2 * 16)

    def test_a_config_is_measured_run_by_run_and_segment_by_segment(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "c.yaml").write_text(CONFIG)
            out, err = call([BINARY, "bench", "step", "c.yaml", "train.batch=2", *QUICK, "--json"], cwd=folder)
            steps = json.loads(out)["steps"]
            self.assertIn("2 of the 4 runs differ in the shape of their step; the others are left out", err)
            self.assertEqual([(s["width"], s["length"], s["batch"]) for s in steps], [(8, 16, 2), (8, 24, 2), (16, 16, 2), (16, 24, 2)])
            self.assertEqual(steps[0]["parameters"], steps[1]["parameters"])
            self.assertEqual(steps[0]["layers"], ["base_conv", "delta"])
            _, err = call([BINARY, "bench", "step", "c.yaml", "--width", 8], code=2, cwd=folder)
            self.assertIn("--width is for the bench's own model; 'c.yaml' sets it already, and key=value changes it", err)
            _, err = call([BINARY, "bench", "step", "c.yaml", "d.yaml"], code=2, cwd=folder)
            self.assertIn("'c.yaml' and 'd.yaml' are two configs; give one at a time", err)
            self.assertEqual(os.listdir(folder), ["c.yaml"])

    def test_text_and_overrides(self):
        out, _ = call([BINARY, "bench", "step", "--mixer", "softmax", "--shape", "16,32", "--batch", 2, *QUICK, "mixers.softmax.heads=2", "model.positions=rotary"])
        lines = out.splitlines()
        self.assertRegex(lines[0], r"^palimpsest \d.*LibTorch 2\..*, 1 thread$")
        self.assertRegex(lines[2], r"^layers +T +V +scored +batch +parameters +ms +quartiles +processor +data +forward +backward +update +metrics +tokens/s +peak memory$")
        self.assertRegex(lines[3], r"^softmax +16 +32 +1 +2 ")

    def test_operators(self):
        arguments = ["--mixer", "softmax", "--shape", "16,32", "--batch", 2, "--layers", 3, *QUICK]
        step = json.loads(call([BINARY, "bench", "step", *arguments, "--operators", 1000, "--json"])[0])["steps"][0]
        products = [o for o in step["operators"] if o["name"] == "aten::mm [32, 64] [64, 192]"]
        self.assertEqual([p["calls"] for p in products], [3])
        times = [o["milliseconds"] for o in step["operators"]]
        self.assertEqual(times, sorted(times, reverse=True))
        self.assertTrue(min(times) > 0)
        out, _ = call([BINARY, "bench", "step", *arguments, "--operators", 2])
        self.assertRegex(out, r"\n +ms +calls +operators of softmax, T 16, V 32\n *\d+\.\d+ .*\n *\d+\.\d+ .*\n$")
        self.assertIn("(no operator: our own loops, the optimizer)", [o["name"] for o in step["operators"]])

    def test_mistakes(self):
        for arguments, message in [
            (["step", "--mixer", "dleta"], "unknown mixer 'dleta'; did you mean 'delta'?"),
            (["step", "--shape", "64"], "--shape '64' is no T,V or T,V,Q: write whole numbers from 1 on, with commas and no blanks between"),
            (["step", "--shape", "64,x"], "--shape '64,x' is no T,V or T,V,Q"),
            (["step", "--shape", "64,256,"], "--shape '64,256,' is no T,V or T,V,Q"),
            (["step", "--shape", "16,256,32"], "length 16 is too short for 32 pairs"),
            (["step", "--repeats", "0"], "--repeats: "),
            (["step", "--shap", "64,256"], "unknown option '--shap' of bench step; did you mean '--shape'?\nsee: palimpsest bench step --help"),
            (["recurrence", "--shape", "64,256"], "--shape '64,256' is no N,T,H,K,V"),
            (["recurrence", "--form", "fast"], "--form: fast not in {reference,chunk}"),
            (["stpe"], "unknown verb 'bench stpe'; did you mean 'step'?\nverbs: step, recurrence\nsee: palimpsest bench --help"),
            ([], "bench needs a verb\nverbs: step, recurrence\nsee: palimpsest bench --help"),
        ]:
            with self.subTest(arguments):
                out, err = call([BINARY, "bench", *arguments], code=2)
                self.assertEqual(out, "")
                self.assertIn(message, err)


class Recurrence(unittest.TestCase):
    def test_json(self):
        out, _ = call([BINARY, "bench", "recurrence", "--shape", "2,20,1,8,8", "--decay", "none,channel", *QUICK, "--json"])
        rows = json.loads(out)["recurrences"]
        self.assertEqual([(r["form"], r["decay"], r["T"], r["erase"]) for r in rows],
                         [(form, decay, 20, True) for decay in ("none", "channel") for form in ("reference", "chunk")])
        for row in rows:
            self.assertTrue(0 < row["forward"]["least"] <= row["forward"]["median"])
            self.assertTrue(0 < row["forward_backward"]["least"] <= row["forward_backward"]["median"])

    def test_text(self):
        out, _ = call([BINARY, "bench", "recurrence", "--shape", "2,20,1,8,8", "--decay", "none", "--form", "chunk", "--no-erase", *QUICK])
        self.assertRegex(out.splitlines()[3], r"^chunk +2 +20 +1 +8 +8 +none +no +\d")


class Peer(unittest.TestCase):
    def setUp(self):
        if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode != 0:
            self.skipTest(f"{sys.executable} has no torch")

    def test_agrees_with_plain_loops(self):
        out, _ = call([sys.executable, PEER, "--check"])
        self.assertEqual(len(out.splitlines()), 11)

    def test_both_in_turns(self):
        out, err = call([sys.executable, PEER, "--palimpsest", BINARY, "--case", "softmax:16,32", "--case", "gated_delta:32,32,2", "--batch", 2, "--width", 16, "--threads", 1,
                       "--rounds", 2, "--repeats", 2, "--warmup", 1, "--json"])
        self.assertNotIn("Traceback", err)
        cases = json.loads(out)["cases"]
        self.assertEqual([c["case"] for c in cases], ["softmax:16,32", "gated_delta:32,32,2"])
        self.assertEqual(list(cases[1]["peer"]), ["rows, active", "rows, passive", "solve, active", "solve, passive"])
        for case in cases:
            self.assertEqual(case["palimpsest"]["samples"], 4)
            fastest = case["peer"][case["fastest_peer"]]
            self.assertEqual(fastest["median"], min(p["median"] for p in case["peer"].values()))
            self.assertAlmostEqual(case["ratio"], fastest["median"] / case["palimpsest"]["median"])
            self.assertAlmostEqual(case["ratio_of_processor_time"], min(p["processor"] for p in case["peer"].values()) / case["palimpsest"]["processor"])


class PeerWithoutTorch(unittest.TestCase):
    def test_says_what_is_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "torch.py").write_text("raise ImportError('none here')\n")
            _, err = call([sys.executable, PEER, "--check"], code=1, env={**os.environ, "PYTHONPATH": folder})
            self.assertRegex(err, r"^error: \S+ has no torch; take a Python that has it")


if __name__ == "__main__":
    unittest.main()
