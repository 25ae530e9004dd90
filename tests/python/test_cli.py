#!/usr/bin/env python3
"""The program from outside: exit codes, what goes to stdout and what to stderr, exact messages, what is created and what is not."""

import json
import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

BINARY = os.environ["PALIMPSEST_BINARY"]
SOURCE = Path(os.environ["PALIMPSEST_SOURCE_DIR"])
TASKS = ", ".join(sorted(path.stem for path in (SOURCE / "tasks").glob("*.cpp")))

RUN = """
task:
  name: overwrite
  vocabulary: 32
  length: 16
  pairs: 2
  train: [{overwrites: 0..1, examples: 100}]
  test: [{overwrites: 0, examples: 40}, {overwrites: 1, examples: 40}]
data: {check_overlap: false}
model: {width: 8, depth: 1, mixer: delta}
mixers: {delta: {heads: 1}}
train: {steps: 30, batch: 4, lr: 1e-3}
run: {log_every: 10, threads: 1}
"""
SWEEP = RUN + "sweep: {grid: {model.mixer: [delta, softmax]}, seeds: 2}\n"


class Cli(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="palimpsest-cli-"))
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "tiny.yaml").write_text(RUN)
        (self.folder / "grid.yaml").write_text(SWEEP)

    def call(self, *arguments, code=0, **environment):
        result = subprocess.run([BINARY, *arguments], cwd=self.folder, capture_output=True, text=True, env={**os.environ, **environment}, timeout=120)
        self.assertEqual(result.returncode, code, f"{arguments}\n{result.stdout}\n{result.stderr}")
        self.assertNotIn("\x1b", result.stdout + result.stderr)
        self.assertNotIn("\r", result.stdout + result.stderr)
        return result.stdout, result.stderr

    def json(self, *arguments, code=0):
        return json.loads(self.call(*arguments, "--json", code=code)[0])

    def created(self):
        return sorted(p.name for p in self.folder.iterdir()) != ["grid.yaml", "tiny.yaml"]


class Usage(Cli):
    def test_version_and_help(self):
        out, err = self.call("--version")
        self.assertEqual(err, "")
        for line in (r"^palimpsest +\d+\.\d+\.\d+$", r"^commit +\w+", r"^compiler +\w+ \d+", r"^LibTorch +2\.\d+", r"^CUDA +\w+", r"^HDF5 header +1\.", r"^HDF5 at run time +1\."):
            self.assertRegex(out, re.compile(line, re.MULTILINE))
        out, err = self.call("--help")
        self.assertEqual(err, "")
        for code in (0, 1, 2, 3, 4, 75, 130):
            self.assertRegex(out, rf"\n  {code} +\w")

    def test_mistakes(self):
        verbs = "verbs: run, sweep, resume, check, ls, show, compare, export, list, describe, bench, doctor\nsee: palimpsest --help\n"
        for arguments, message in [
            (["rnu", "x"], "error: unknown verb 'rnu'; did you mean 'run'?\n" + verbs),
            ([], "error: no verb is given\nsee: palimpsest --help\n"),
            (["ls", "--jsn"], "error: unknown option '--jsn' of ls; did you mean '--json'?\nsee: palimpsest ls --help\n"),
            (["run"], "error: CONFIG is required\nsee: palimpsest run --help\n"),
            (["list", "layers"], "error: WHAT: layers not in {mixers,tasks}\nsee: palimpsest list --help\n"),
            (["describe", "mixer", "dleta"], re.compile(r"error: unknown mixer 'dleta'; did you mean 'delta'\?; known mixers: base_conv, delta, .*\n")),
            (["describe", "task"], f"error: which task? {TASKS}\n"),
            (["describe", "delta"], "error: 'delta' is neither mixer, task nor a section (model, train, data, eval, run, config); write `palimpsest describe mixer delta`\n"),
            (["describe", "mqra", "length=32"], re.compile(r"error: 'mqra' is neither .*; did you mean `palimpsest describe task mqar`\?\n")),
            (["describe", "mixers"], re.compile(r"error: 'mixers' is neither .*; did you mean `palimpsest describe mixer NAME`\?\n")),
            (["describe", "trian"], re.compile(r"error: 'trian' is neither .*; did you mean `palimpsest describe train`\?\n")),
            (["describe", "xyzzy"], re.compile(r"error: 'xyzzy' is neither .*; `palimpsest list` shows mixers and tasks\n")),
            (["describe", "mixer", "mqar"], "error: 'mqar' is a task; write `palimpsest describe task mqar`\n"),
            (["describe", "task", "delta"], "error: 'delta' is a mixer; write `palimpsest describe mixer delta`\n"),
            (["run", "none.yaml"], re.compile(r"error: no config 'none.yaml'; looked for none.yaml, configs/none.yaml.*\n")),
            (["show", "abc"], "error: no folder 'abc', and there are no results in 'results'\n"),
            (["ls"], "error: no such folder: 'results'\n"),
            (["run", "grid.yaml"], "error: 'grid.yaml' plans a sweep of 4 runs; start it with: palimpsest sweep grid.yaml\n"
                                   "or one of them: palimpsest run grid.yaml --only NUMBER\n"),
            (["run", "grid.yaml", "--only", "5"], "error: --only 5: the plan has the runs 1 to 4; `--dry-run` lists them\n"),
            (["sweep", "grid.yaml", "-j", "0"], re.compile(r"error: --jobs: Value 0 not in range .*\nsee: palimpsest sweep --help\n")),
            (["sweep", "grid.yaml", "-jx"], re.compile(r"error: --jobs: Value x not in range .*\nsee: palimpsest sweep --help\n")),
            (["sweep", "grid.yaml", "-x", "3"], "error: unknown option '-x' of sweep\nsee: palimpsest sweep --help\n"),
        ]:
            with self.subTest(arguments):
                out, err = self.call(*arguments, code=2)
                self.assertEqual(out, "")
                if isinstance(message, str):
                    self.assertEqual(err, message)
                else:
                    self.assertRegex(err, message)
                self.assertFalse(self.created())

    def test_config_errors_are_told_at_once_with_their_places(self):
        (self.folder / "bad.yaml").write_text(RUN.replace("width: 8", "widht: 8").replace("lr: 1e-3", "lr: fast"))
        out, err = self.call("run", "bad.yaml", "train.stpes=5", code=2)
        self.assertEqual(out, "")
        self.assertEqual(err, (
            "<command line>:argument 1: error: unknown key 'stpes' in 'train'; did you mean 'steps'?\n"
            "  1 | train.stpes=5\n"
            "    |       ^~~~~\n"
            "bad.yaml:10:9: error: unknown key 'widht' in 'model'; did you mean 'width'?\n"
            "  10 | model: {widht: 8, depth: 1, mixer: delta}\n"
            "     |         ^~~~~\n"
            "bad.yaml:12:34: error: 'train.lr' expects a number, got 'fast'\n"
            "  12 | train: {steps: 30, batch: 4, lr: fast}\n"
            "     |                                  ^~~~\n"
            "3 errors\n"))
        self.assertFalse((self.folder / "results").exists())

    def test_what_does_not_fit_together_is_told_with_the_rest(self):
        _, err = self.call("check", "tiny.yaml", "train.stpes=3", "mixers.delta.heads=3", "task.pairs=30", code=2)
        errors = [line for line in err.splitlines() if "error" in line]
        self.assertEqual(errors[:2], [
            "<command line>:argument 1: error: unknown key 'stpes' in 'train'; did you mean 'steps'?",
            "<command line>:argument 2: error: mixers.delta.expand_k: 1 x model.width 8 is 8 features, which 3 heads do not divide"])
        for line, segment in zip(errors[2:], ("test.0", "test.1", "train.0")):
            self.assertRegex(line, rf"^<command line>:argument 3: error: 'task\.{segment}': length 16 is too short for \d+ writes and 30 reads of 30 pairs: ")
        self.assertEqual(errors[5:], ["5 errors"])

    def test_a_config_may_be_a_pipe(self):
        for path in ("/dev/stdin", "/dev/fd/0"):
            result = subprocess.run([BINARY, "check", path], cwd=self.folder, input=RUN, capture_output=True, text=True, timeout=60)
            self.assertEqual((result.returncode, result.stderr), (0, f"{path}: 1 run, no errors\n"))

    def test_bases_are_found_from_any_folder_and_by_an_installed_program(self):
        (self.folder / "based.yaml").write_text("base: tasks/overwrite.yaml\nmodel: {width: 16}\n")
        self.call("check", "based.yaml")
        for folder in ("bin", "share/palimpsest"):
            (self.folder / folder).mkdir(parents=True)
        program = self.folder / "bin/palimpsest"
        shutil.copy(BINARY, program)
        result = subprocess.run([program, "check", "based.yaml"], cwd=self.folder, capture_output=True, text=True, timeout=60)
        self.assertIn("based.yaml:1:7: error: no base 'tasks/overwrite.yaml'; looked for tasks/overwrite.yaml, configs/tasks/overwrite.yaml\n", result.stderr)
        shutil.copytree(SOURCE / "configs", self.folder / "share/palimpsest/configs")
        result = subprocess.run([program, "check", "based.yaml"], cwd=self.folder, capture_output=True, text=True, timeout=60)
        self.assertEqual((result.returncode, result.stderr), (0, "based.yaml: 1 run, no errors\n"))

    def test_check(self):
        out, err = self.call("check", "grid.yaml")
        self.assertEqual((out, err.splitlines()[-1]), ("", "grid.yaml: 4 runs, no errors"))
        _, err = self.call("check", "grid.yaml", "task.pairs=6", code=2)
        self.assertIn("length 16 is too short", err)
        self.assertFalse(self.created())


class Telling(Cli):
    def test_print_config_explain_and_dry_run_create_nothing(self):
        out, _ = self.call("run", "tiny.yaml", "--print-config", "train.lr=2e-3")
        self.assertIn("lr: 0.002\n", out)
        (self.folder / "resolved.yaml").write_text(out)
        again, _ = self.call("run", "resolved.yaml", "--print-config")
        self.assertEqual(again, out)
        (self.folder / "resolved.yaml").unlink()
        out, _ = self.call("run", "tiny.yaml", "--explain", "train.lr=2e-3")
        self.assertRegex(out, r"lr: 0\.002 +# <command line>:argument 1\n")
        self.assertRegex(out, r"width: 8 +# tiny\.yaml:10\n")
        self.assertRegex(out, r"clip: 1\.0 +# default\n")
        out, err = self.call("sweep", "grid.yaml", "--dry-run")
        lines = out.splitlines()
        self.assertEqual(re.split(r"  +", lines[0]), ["id", "model.mixer", "seed", "steps", "parameters", "state", "action"])
        self.assertEqual(len(lines), 5)
        self.assertRegex(lines[3], r"^[0-9a-f]{8}  softmax +1 +30 +\d+  1\.0 KiB at length 16  start$")
        self.assertEqual(err.splitlines()[-1], "4 runs in 'results/grid'; nothing was created")
        self.assertFalse(self.created())

    def test_list_and_describe(self):
        out, err = self.call("list")
        self.assertEqual(err, "")
        for name in ("delta", "gated_delta", "linear", "softmax", "base_conv", "mqar", "overwrite", "needle"):
            self.assertRegex(out, rf"\n(mixer|task) +{name} +\w")
        names = {(item["kind"], item["name"]) for item in self.json("list")}
        self.assertIn(("mixer", "delta"), names)
        self.assertEqual({kind for kind, _ in ((i["kind"], i["name"]) for i in self.json("list", "tasks"))}, {"task"})
        for kind, name in names:
            with self.subTest(kind=kind, name=name):
                out, _ = self.call("describe", kind, name)
                described = self.json("describe", kind, name)
                for option in described["options"]:
                    self.assertRegex(out, rf"\n{option['name']} +{re.escape(option['type'])} +{re.escape(option['default'])}")
        self.assertIn("S_t", self.json("describe", "mixer", "delta")["recurrence"])
        for section in ("model", "train", "data", "eval", "run", "config"):
            self.assertTrue(self.json("describe", section)["options"])
        self.assertEqual([option["name"] for option in self.json("describe", "config")["options"]], ["name", "seed"])
        cautions = {option["name"]: option["cautions"] for option in self.json("describe", "mixer", "delta")["options"]}
        self.assertEqual((list(cautions["qk_norm"]), cautions["heads"]), (["none"], {}))

    def test_worked_example_agrees_with_its_events(self):
        described = self.json("describe", "task", "overwrite", "length=32", "pairs=3", "overwrites=0..2")
        example = described["example"]
        self.assertEqual(len(example["tokens"]), 32)
        held, answers = {}, {}
        for event in example["events"]:
            if match := re.fullmatch(r"write (k\d+) (v\d+) @\d+", event):
                held[match[1]] = match[2]
            if match := re.fullmatch(r"read (k\d+) -> (v\d+) @(\d+) .*", event):
                self.assertEqual(held[match[1]], match[2])
                answers[int(match[3])] = match[2]
        self.assertEqual(sorted(answers), example["positions"])
        out, _ = self.call("describe", "task", "overwrite", "length=32", "pairs=3", "overwrites=0..2")
        for value in answers.values():
            self.assertRegex(out, rf"\nanswer .*\b{value}\b")
        _, err = self.call("describe", "task", "overwrite", "lenght=32", code=2)
        self.assertIn("<command line>:argument 1: error: unknown key 'lenght' in 'task'; did you mean 'length'?", err)

    def test_doctor(self):
        facts = self.json("doctor")["facts"]
        self.assertEqual(facts["exclusive create"], "works")
        for name in ("commit", "LibTorch", "HDF5 at run time", "usable threads", "free space", "file system", "file locks"):
            self.assertTrue(facts[name])
        self.assertFalse(self.created())


class Documents(Cli):
    def test_configs_that_the_documents_show_are_right(self):
        """What a page tells to write into a file, or shows as a whole config."""
        count = 0
        for page in sorted([SOURCE / "README.md", *SOURCE.glob("docs/*.md"), *SOURCE.glob("experiments/*/README.md")]):
            text = page.read_text()
            shown = [body for body in re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL) if re.search("^train:", body, re.MULTILINE)]
            for body in shown + re.findall(r"<<'?YAML'?\n(.*?)^YAML$", text, re.MULTILINE | re.DOTALL):
                with self.subTest(page=page.name, config=body):
                    (self.folder / "shown.yaml").write_text(body)
                    self.call("check", "shown.yaml")
                    count += 1
        self.assertGreaterEqual(count, 2)

    def test_commands_that_documents_and_scripts_show_are_right(self):
        """Those that start a config of this repository, with the keys that they set; the GPU is left out, which may not be there."""
        pages = [SOURCE / "README.md", *SOURCE.glob("docs/*.md"), *SOURCE.glob("experiments/*/README.md"), *SOURCE.glob("scripts/*.sh"),
                 *SOURCE.glob("configs/**/*.yaml"), *SOURCE.glob("experiments/*/*.yaml")]
        shown = set()
        for page in sorted(pages):
            text = page.read_text().replace("\\\n", " ")
            for arguments in re.findall(r"palimpsest (?:run|sweep|check|bench step) ([^`\n]*)", text):
                words = shlex.split(arguments.split(" # ")[0], comments=True) if arguments.count("'") % 2 == 0 else []
                if words and (SOURCE / words[0]).is_file():
                    shown.add((words[0], *(word for word in words[1:] if re.match(r"[a-z_0-9.]+=[^$]*$", word) and word != "run.device=cuda")))
        for words in sorted(shown):
            with self.subTest(words):
                self.call("check", str(SOURCE / words[0]), *words[1:])
        self.assertGreaterEqual(len(shown), 3, shown)

    def test_every_mixer_is_set_up_alike_where_one_memory_is_compared(self):
        """configs/models/one_memory.yaml compares rules: one that is not named there would come with its own defaults, a convolution too."""
        path = SOURCE / "configs/models/one_memory.yaml"
        for mixer in self.json("list", "mixers"):
            if mixer["name"] == "base_conv":
                continue
            self.assertRegex(path.read_text(), rf"(?m)^  {mixer['name']}: \{{heads: 2", f"name it in {path}")
            config = f"base: [{SOURCE}/configs/tasks/overwrite.yaml, {path}]\nmodel: {{layers: [base_conv, {mixer['name']}], positions: none}}\n"
            (self.folder / "one.yaml").write_text(config)
            out, _ = self.call("run", "one.yaml", "--print-config")
            options = out.partition(f"\n  {mixer['name']}:\n")[2].partition("\n  base_conv:")[0].partition("\ntrain:")[0]
            self.assertIn("    heads: 2\n", options)
            self.assertNotRegex(options, r"short_conv: [1-9]")


class Running(Cli):
    def test_run_then_again(self):
        out, err = self.call("run", "tiny.yaml")
        folder = next((self.folder / "results/tiny").iterdir())
        self.assertRegex(out, rf"^run +[0-9a-f]{{12}}\nfolder +results/tiny/{re.escape(folder.name)}\ntest accuracy +[01]\.\d+\n")
        self.assertIn("step 30/30 | loss ", err)
        self.assertNotIn("step 30/30", out)
        stamp = (folder / "run.h5").stat().st_mtime_ns
        out_again, err = self.call("run", "tiny.yaml")
        self.assertIn(f"finished before: results/tiny/{folder.name}", err)
        self.assertEqual(out_again, out)
        self.assertEqual((folder / "run.h5").stat().st_mtime_ns, stamp)
        self.assertEqual(os.readlink(self.folder / "results/latest"), f"tiny/{folder.name}")
        log = (folder / "run.log").read_text()
        self.assertIn("step 30/30", log)
        self.assertNotIn("\x1b", log)
        # What is not identity does not make another run; what is, does.
        _, err = self.call("run", "tiny.yaml", "run.log_every=5", "name=tiny")
        self.assertIn("finished before", err)
        self.call("run", "tiny.yaml", "train.lr=5e-3")
        self.assertEqual(len(list((self.folder / "results/tiny").iterdir())), 2)

        listed = self.json("ls")
        self.assertEqual([run["state"] for run in listed], ["finished"] * 2)
        shown = self.json("show", folder.name[:8])
        self.assertEqual(shown["state"], "finished")
        self.assertEqual(shown["config"]["model.mixer"], "delta")
        self.assertEqual(sum(slice["answers"]["correct"] for slice in shown["slices"] if slice["split"] == "test") / 160, shown["summary"]["test_accuracy"])
        out, _ = self.call("show", str(folder))
        self.assertIn("\nvalid     drawn from the test segments\n", out)
        self.assertRegex(out, r"\noverwrites +answers +accuracy +stale +best policy +\(which\)\n +0 +\d+ ")
        _, err = self.call("show", "", code=2)
        self.assertIn("error: no folder '', and no sweep or run of that name in 'results'\n", err)
        _, err = self.call("show", "zzzz", code=2)
        self.assertIn("error: no folder 'zzzz', and no sweep or run of that name in 'results'\n", err)

    def test_a_run_that_fails(self):
        out, err = self.call("run", "tiny.yaml", "train.lr=1e30", "train.clip=0", code=1)
        folder = next((self.folder / "results/tiny").iterdir())
        self.assertEqual(out, "")
        self.assertIn("is not finite", err)
        self.assertIn(f"failed; log: results/tiny/{folder.name}/run.log\nthe same run fails again: give it another train.lr, train.clip or train.non_finite\n", err)
        _, err = self.call("resume", "latest", code=1)
        self.assertIn("It goes on from its beginning; with the same program", err)
        out, _ = self.call("show", str(folder))
        self.assertRegex(out, r"\nstate +failed\n")
        self.assertRegex(out, r"\nwhy +step \d+, lane 0: ")
        self.assertIn("\nend of ", out)

    def test_what_ended_early_says_so(self):
        _, err = self.call("run", "tiny.yaml", "train.eval_every=10", "train.early_stop=0.0001", "task.test.0.examples=1000")
        self.assertRegex(err, r"stopped early at step \d+: the valid accuracy 0\.\d+ exceeds train.early_stop 0.0001\n")
        out, _ = self.call("show", "latest")
        self.assertIn("\nstate     finished, stopped early: train.early_stop was exceeded\n", out)

    def test_latest_is_a_run_like_others(self):
        self.call("run", "tiny.yaml", "name=study/tiny")
        folder = next((self.folder / "results/study/tiny").iterdir())
        self.assertEqual(os.readlink(self.folder / "results/latest"), f"study/tiny/{folder.name}")
        self.assertFalse((self.folder / "results/study/latest").exists())
        out, _ = self.call("show", "latest")
        self.assertIn(f"\nfolder    results/study/tiny/{folder.name}\n", out)
        _, err = self.call("resume", "latest")
        self.assertIn(f"finished before: results/study/tiny/{folder.name}\n", err)

    def test_progress_never(self):
        _, err = self.call("run", "tiny.yaml", "--progress", "never")
        self.assertNotIn("step 30/30", err)

    def on_terminal(self, **environment):
        """The run's stderr as a terminal sees it."""
        master, slave = pty.openpty()
        process = subprocess.Popen([BINARY, "run", "tiny.yaml", "--results", environment.pop("results")], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=slave,
                                   env={**{k: v for k, v in os.environ.items() if k not in ("CI", "NO_COLOR")}, "TERM": "xterm", **environment})
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
        return seen.decode()

    def test_a_live_line_on_a_terminal_alone(self):
        seen = self.on_terminal(results="a")
        self.assertIn("=] 100%", seen)
        self.assertIn("\x1b[K", seen)
        for quiet in ({"TERM": "dumb"}, {"CI": "1"}):
            self.assertNotIn("\x1b", self.on_terminal(results="b" + next(iter(quiet)), **quiet))


class Sweeping(Cli):
    def test_sweep_skip_compare(self):
        out, err = self.call("sweep", "grid.yaml")
        self.assertRegex(out, r"^model\.mixer +accuracy +stale +best policy +runs\ndelta +[01]\.\d{3} ± \d\.\d{3} .* 2\nsoftmax +.* 2\n$")
        self.assertEqual(len(re.findall(r"^\[\d/4\] start [0-9a-f]{8}  model\.mixer=\w+ seed=[12]$", err, re.MULTILINE)), 4)
        sweep = self.folder / "results/grid"
        self.assertTrue((sweep / "sweep.h5").exists())
        runs = sorted(p.name for p in sweep.iterdir() if p.is_dir())
        self.assertEqual(len(runs), 4)
        self.assertTrue(any(name.endswith("-delta-seed=2") for name in runs))
        out_again, err = self.call("sweep", "grid.yaml")
        self.assertEqual(len(re.findall(r"^\[\d/4\] skip [0-9a-f]{8} \(finished\)  model", err, re.MULTILINE)), 4)
        self.assertEqual(out_again, out)

        rows = self.json("compare", "grid", "--metric", "test_accuracy,parameters")
        self.assertEqual([row["group"] for row in rows], [{"model.mixer": "delta"}, {"model.mixer": "softmax"}])
        self.assertEqual([row["runs"] for row in rows], [2, 2])
        runs_by_mixer = {}
        for run in self.json("ls"):
            runs_by_mixer.setdefault(run["folder"].split("-")[1], []).append(run["test_accuracy"])
        self.assertAlmostEqual(rows[0]["metrics"]["test_accuracy"]["mean"], sum(runs_by_mixer["delta"]) / 2)
        out, _ = self.call("compare", "results/grid", "--by", "seed")
        self.assertRegex(out, r"^seed +test_accuracy .*\n +1 ")
        _, err = self.call("compare", "grid", "--by", "model.mixr", code=2)
        self.assertIn("did you mean 'model.mixer'?", err)
        _, err = self.call("compare", "gird", code=2)
        self.assertEqual(err, "error: no folder 'gird', and no sweep or run of that name in 'results'; did you mean 'grid'?\n"
                              "`palimpsest ls --results results` lists what is there\n")

    def test_one_run_of_a_sweep(self):
        _, err = self.call("run", "grid.yaml", "--only", "3", "--dry-run")
        self.assertEqual(err, "1 run in 'results/grid'; nothing was created\n")
        out, err = self.call("run", "grid.yaml", "--only", "3", "--print-config")
        self.assertIn("mixer: softmax\n", out)
        self.assertEqual(err, "")
        out, _ = self.call("run", "grid.yaml", "--only", "3")
        (run,) = (p for p in (self.folder / "results/grid").iterdir() if p.is_dir())
        self.assertTrue(run.name.endswith("-softmax-seed=1"))
        _, err = self.call("sweep", "grid.yaml")
        self.assertRegex(err, r"\n\[3/4\] skip [0-9a-f]{8} \(finished\)  model.mixer=softmax seed=1\n")
        self.assertEqual(len({shown["sweep_id"] for shown in (self.json("show", str(p)) for p in (self.folder / "results/grid").iterdir() if p.is_dir())}), 1)

    def test_failures_are_told_at_the_end(self):
        out, err = self.call("sweep", "tiny.yaml", "sweep.grid.train.init_scale=[1e20, 1]", code=3)
        self.assertRegex(err, r"\n1 of 2 runs failed:\nrun +error +log +try again\n[0-9a-f]{8} init_scale=\S+ +step \d+, lane 0: .*  results/tiny/\S+/run\.log  palimpsest resume results/tiny/\S+\n")
        self.assertRegex(out, r"train\.init_scale .*\n(.*\n)?.*0 of 1")
        _, err = self.call("sweep", "tiny.yaml", "sweep.grid.train.init_scale=[1e20, 1]", "--results", "fast", "--fail-fast", code=3)
        self.assertNotIn("[2/2]", err)

    def test_a_config_edited_in_the_middle_changes_nothing(self):
        config = self.folder / "grid.yaml"
        process = subprocess.Popen([BINARY, "sweep", "grid.yaml", "train.steps=400"], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        manifest = self.folder / "results/grid/manifest.yaml"
        deadline = time.monotonic() + 30
        while not manifest.exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        frozen = manifest.read_text()
        config.write_text("task: {this is no longer: a config}\n")
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual(manifest.read_text(), frozen)
        states = self.json("ls")
        self.assertEqual([run["state"] for run in states], ["finished"] * 4)
        for run in states:
            self.assertIn("steps: 400\n", (self.folder / run["folder"] / "config.yaml").read_text())

        # Next time the changed plan is told.
        config.write_text(SWEEP.replace("[delta, softmax]", "[delta, linear]"))
        _, err = self.call("sweep", "grid.yaml", "train.steps=400")
        self.assertRegex(err, r"the plan has changed since last time: 2 runs new: [0-9a-f]{8} \(model\.mixer=linear seed=1\), ")
        self.assertRegex(err, r"the plan has changed since last time: 2 runs no longer planned \(folders stay\): ")
        self.assertEqual(len(re.findall(r"skip [0-9a-f]{8} \(finished\)", err)), 2)

    def test_configs_of_the_repository_are_right(self):
        (self.folder / "configs").symlink_to(SOURCE / "configs")
        self.call("check", "configs/quickstart.yaml")
        self.call("check", "quickstart.yaml")


if __name__ == "__main__":
    unittest.main()
