"""scripts/plot.py as it is called: the names and choices that it takes, the files that it writes, and what it says when it cannot."""

import os
import shlex
import shutil
import subprocess
import sys
import unittest

import h5py
import numpy as np

from plots import SOURCE, call, convs, drawn, folder, legend, places, png_size, sweep
import plot
import plot_best
import plot_records
import synthetic


class Names(unittest.TestCase):
    """Keys and places have the names that palimpsest compare takes."""

    @classmethod
    def setUpClass(cls):
        cls.root = os.path.join(folder, "home", "results", "kernels")
        for kernel in (8, 16):
            for lr in (1e-3, 1e-2):
                name = f"{kernel:02x}c0ffee-kernel={kernel}-{lr}"
                config = {"model.layers": convs(3, kernel), "train.lr": lr, "mixers.softmax.heads": 1}
                path = synthetic.write_run(os.path.join(cls.root, name), name, "softmax", 1, config=config)
                with h5py.File(path, "r+") as file:
                    file["summary/valid_accuracy"] = kernel / 100 + lr

    def setUp(self):
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(os.path.join(folder, "home"))

    def test_an_option_of_a_layer_is_a_key(self):
        axis = drawn("accuracy", self.root, "--x", "model.layers.1.kernel").axes[0]
        self.assertEqual((axis.get_xlabel(), [list(line.get_xdata()) for line in axis.lines if getattr(line, "hue", None)]),
                         ("kernel of layer 1", [[8, 16], [8, 16]]))
        out = os.path.join(folder, "k.png")
        kernel = "model.layers.1.kernel"
        for arguments in (["--hue", kernel], ["--panel", kernel], ["--filter", f"{kernel}=8"], ["--x", "model.layers.2.heads"],
                          ["--hue", "sweep"], ["--filter", "sweep=kernels"]):
            self.assertEqual(call(self.root, *arguments, "--out", out)[0], 0, arguments)
        runs, _ = plot_best.best_over(plot_records.read_paths([self.root]), [kernel])
        self.assertEqual(sorted((run.value(kernel), run.value("train.lr")) for run in runs), [(16, 1e-3), (16, 1e-2)])

    def test_task_is_the_name_of_the_task_and_values_are_lists(self):
        counts = {"task=mqar": 12, "task=mqar,overwrite": 24, "model.mixer=delta, softmax": 12, "seed=1.0,3": 16}
        for wanted, count in counts.items():
            self.assertEqual(len(plot_records.apply_filters(plot_records.read_paths([sweep]), [wanted])), count, wanted)
        self.assertEqual(plot_records.check_key("task", plot_records.read_paths([sweep]), "--best-over"), "task.name")
        for key in ("x", "hue", "panel"):
            figure, full = (drawn("accuracy", sweep, f"--{key}", name) for name in ("task", "task.name"))
            self.assertEqual(([axis.get_title() for axis in figure.axes], places(figure.axes[0]), legend(figure)),
                             ([axis.get_title() for axis in full.axes], places(full.axes[0]), legend(full)))

    def test_a_swept_key_that_the_records_lack_comes_from_the_sweep(self):
        root = os.path.join(folder, "swept")
        for name in ("easy", "hard"):
            synthetic.write_run(os.path.join(root, name), name, "delta", 1)
        synthetic.write_sweep_file(root, ["easy", "hard"], ["delta", "delta"], [0.9, 0.8])
        with h5py.File(os.path.join(root, "sweep.h5"), "r+") as file:
            synthetic.texts(file["runs/config"], "task", ["easy", "hard"])
            file["runs/config/train.lr"] = [9.0, 9.0]  # the run's own record goes before
        self.assertEqual(places(drawn("accuracy", root, "--x", "task").axes[0]), ["easy", "hard"])
        run, = plot_records.read_paths([os.path.join(root, "hard")])
        self.assertEqual((run.value("task"), run.value("task.name"), run.value("train.lr")), ("hard", "overwrite", 1e-3))

    def test_a_name_below_the_results(self):
        self.assertEqual(call("kernels")[:2], (0, os.path.join("results", "kernels", "accuracy.png") + "\n"))
        one = os.path.join("results", "kernels", "08c0ffee-kernel=8-0.001")
        names = ("kernels/08c0ffee-kernel=8-0.001", "kernels/08c0ffee-kernel=8-0.00", ".")
        self.assertEqual([plot_records.place_of(name, "results") for name in names], [one, one, "."])
        os.makedirs("kernels", exist_ok=True)  # holds no run
        open(os.path.join("results", "kernels", "manifest.yaml"), "w").close()
        self.assertEqual(plot_records.place_of("kernels", "results"), os.path.join("results", "kernels"))
        os.rmdir("kernels")
        self.assertEqual(call("10c0", "--out", "never.png")[2].split(": results")[0], "plot.py: error: '10c0' may be any of 2 runs")
        self.assertEqual(call("kernels", "--results", "nowhere")[0], 2)
        self.assertEqual(call("kernel-")[2], "plot.py: error: no such file or folder: 'kernel-', and no sweep or run of that name "
                                             "in 'results'; did you mean 'kernels'?\n")


class Choices(unittest.TestCase):
    """--best-over has the rules of palimpsest compare, and its words: both read the same files here."""

    def write(self, name, *runs):
        """Of runs (config, valid accuracy or None for a run that has not ended), by seed where the same config comes again."""
        root = os.path.join(folder, "choices", name)
        for number, (config, accuracy) in enumerate(runs):
            seed = 1 + sum(other == config for other, _ in runs[:number])
            path = synthetic.write_run(os.path.join(root, str(number)), f"{name}{number}", "delta", seed, config=config, finished=accuracy is not None)
            if accuracy is not None:
                with h5py.File(path, "r+") as file:
                    file["summary/valid_accuracy"] = accuracy
        return root

    def both(self, root, *keys):
        """(exit code, lines of stderr) of plot.py, then of compare."""
        over = [word for key in keys for word in ("--best-over", key)]
        code, _, err = call(root, *over, "--out", os.path.join(folder, "choice.png"))
        found = subprocess.run([os.environ["PALIMPSEST_BINARY"], "compare", root, *over], capture_output=True, text=True)
        return (code, err.splitlines()), (found.returncode, found.stderr.splitlines())

    def check_notes(self, root, key, chosen, *notes):
        (code, said), (of_compare, wanted) = self.both(root, key)
        said = [line for line in said if not line.startswith("plot.py: left out")]
        wanted = [line for line in wanted if line.startswith("note: ") and "averaged over" not in line and "valid questions" not in line]
        self.assertEqual((code, of_compare, said), (0, 0, [chosen, *notes]))
        self.assertEqual(wanted, list(notes))

    def check_refusal(self, root, key, reason):
        (code, said), (of_compare, wanted) = self.both(root, key)
        self.assertEqual((code, said), (2, [f"plot.py: error: {reason}"]))
        self.assertEqual((of_compare, wanted), (2, [f"error: {reason.replace('--filter takes', '--by or --where takes')}"]))

    def test_luck_is_refused(self):
        every = {key: 1 for key in plot_best.NO_OTHER_RUN}
        root = self.write("luck", *(({**every, "run.backend": backend}, 0.5) for backend in ("auto", "chunk")))
        self.check_refusal(root, "seed", "--best-over seed would pick luck: a seed is no setting. The mean over seeds is taken by itself")
        for key in every:
            self.check_refusal(root, key, f"--best-over {key} would pick luck: {key} makes no other run")
        self.assertEqual([code for code, _ in self.both(root, "run.backend")], [0, 0])
        (code, said), _ = self.both(root, "test_accuracy")
        self.assertEqual((code, said[0].split(". ")[0]), (2, "plot.py: error: no run has 'test_accuracy' (--best-over)"))

    def test_what_makes_no_other_run_tells_no_candidates_apart(self):
        root = self.write("threads", ({"train.lr": 1e-3, "run.threads": 1}, 0.8), ({"train.lr": 3e-3, "run.threads": 2}, 0.9),
                          ({"train.lr": 1e-2, "run.threads": 2}, 0.7))
        self.check_notes(root, "train.lr", "train.lr=0.003: chosen among 3 candidates by the mean valid_accuracy 0.900")

    def test_other_questions_are_refused(self):
        def reason(key, asked):
            return f"the values of {key} were tried on different questions ({asked} differs), so their accuracies do not compare; --filter takes them apart"

        segments = {"task.train.0.examples": 64, "task.test.0.examples": 8, "task.valid": "[]"}
        for key, values in (("task.pairs", (2, 3)), ("task.test.0.examples", (8, 9)), ("task.valid.0.length", (16, 32))):
            root = self.write(key, *(({**segments, key: value}, 0.5) for value in values))
            self.check_refusal(root, key, reason(key, f"task.{key.rsplit('.', 1)[1]} of segment 0"))
        for key, values in (("data.seed", (0, 1)), ("eval.mean", ("answers", "examples"))):
            self.check_refusal(self.write(key, *(({key: value}, 0.5) for value in values)), key, reason(key, key))
        root = self.write("task", *(({**segments, "task.name": name, **own}, 0.5) for name, own in (("mqar", {"task.filler": "zero"}), ("overwrite", {}))))
        self.check_refusal(root, "task.name", reason("task.name", "task.name"))
        self.assertEqual(self.both(root, "task")[0], self.both(root, "task.name")[0])
        train = {**segments, "task.valid": "train"}  # the training segments' options, another number of examples
        root = self.write("examples", *(({**train, "task.train.0.examples": count}, accuracy) for count, accuracy in ((64, 0.5), (128, 0.7), (256, 0.6))))
        self.check_notes(root, "task.train.0.examples", "task.train.0.examples=128: chosen among 3 candidates by the mean valid_accuracy 0.700")
        root = self.write("length", *(({**train, "task.train.0.length": length}, 0.5) for length in (16, 32)))
        self.check_refusal(root, "task.train.0.length", reason("task.train.0.length", "task.length of segment 0"))

    def test_the_mean_is_over_the_runs_that_have_a_result(self):
        rates = [({"train.lr": lr}, accuracy) for lr, accuracy in ((1e-3, 0.7), (1e-3, 0.6), (3e-3, 0.9), (3e-3, None), (1e-2, 0.8), (1e-2, 0.7))]
        self.check_notes(self.write("missing", *rates), "train.lr",
                         "train.lr=0.003: chosen among 3 candidates by the mean valid_accuracy 0.900; 1 run has none",
                         "note: train.lr 0.003 was judged by 1 of its 2 runs")
        root = self.write("none", ({"train.lr": 1e-3}, None), ({"train.lr": 3e-3}, None))
        (code, said), (_, wanted) = self.both(root, "train.lr")
        self.assertEqual((code, said[0]), (2, "note: no run has a valid_accuracy yet: nothing was chosen"))
        self.assertIn(said[0], wanted)

    def test_an_end_of_the_grid_is_told(self):
        for name, accuracies, lr, end in (("high", (0.7, 0.8, 0.9), 0.01, "largest"), ("low", (0.9, 0.8, 0.7), 0.001, "smallest")):
            root = self.write(name, *(({"train.lr": lr}, accuracy) for lr, accuracy in zip((1e-3, 3e-3, 1e-2), accuracies)))
            self.check_notes(root, "train.lr", f"train.lr={lr}: chosen among 3 candidates by the mean valid_accuracy 0.900",
                             f"note: best train.lr {lr} is the {end} tried")

    def test_what_follows_from_the_chosen_key_is_chosen_with_it(self):
        root = self.write("schedule", ({"train.schedule": "cosine", "train.lr_final": 0.1}, 0.6), ({"train.schedule": "constant"}, 0.7))
        self.check_notes(root, "train.schedule", "train.schedule=constant: chosen among 2 candidates by the mean valid_accuracy 0.700")
        runs = plot_records.read_paths([self.write("base", ({"train.lr": 1e-3}, 0.6), ({"train.lr": 3e-3}, 0.7))])
        for run, name in zip(runs, ("slow", "fast")):  # as the files that a sweep takes settings from
            run.config["train"], run.bases = name, ("train",)
        best, said = plot_best.best_over(runs, ["train"])
        self.assertEqual((best, said), (runs[1:], ["train=fast: chosen among 2 candidates by the mean valid_accuracy 0.700",
                                                     "note: the candidates differ in train.lr too"]))
        pairs = [({"model.width": width, "train.lr": lr}, 0.5) for width, lr in ((16, 1e-3), (64, 3e-3))]  # each width at its own rate
        (code, said), _ = self.both(self.write("zipped", *pairs), "train.lr")
        self.assertEqual((code, [line.split(" by ")[0] for line in said]),
                         (0, ["16: train.lr=0.001: chosen among 1 candidate", "64: train.lr=0.003: chosen among 1 candidate"]))


class Script(unittest.TestCase):
    def test_a_python_without_numpy_starts_the_one_that_has_it(self):
        script = os.path.join(SOURCE, "scripts", "plot.py")
        bare = [sys.executable, "-S", "-s"]  # no site-packages
        clean = {key: value for key, value in os.environ.items() if not key.startswith("PALIMPSEST_") and key != "PYTHONPATH"}
        found = subprocess.run([*bare, script, "--help"], capture_output=True, text=True, cwd=folder, env={**clean, "PALIMPSEST_PYTHON": sys.executable})
        self.assertEqual((found.returncode, found.stderr), (0, ""))
        checkout = os.path.join(folder, "a check's out")
        shutil.copytree(os.path.join(SOURCE, "scripts"), os.path.join(checkout, "scripts"))
        script = os.path.join(checkout, "scripts", "plot.py")
        found = subprocess.run([*bare, script, "--help"], capture_output=True, text=True, cwd=folder, env=clean)
        self.assertEqual(found.returncode, 1)
        self.assertIn("lacks numpy, h5py, matplotlib; run scripts/setup.sh, which finds or installs one that has them\n", found.stderr)
        os.makedirs(os.path.join(checkout, "build"))
        with open(os.path.join(checkout, "build", "setup.env"), "w") as file:
            file.write(f"PALIMPSEST_PYTHON={shlex.quote(sys.executable)}\n")
        found = subprocess.run([*bare, script, "--help"], capture_output=True, text=True, cwd=folder, env=clean)
        self.assertEqual((found.returncode, found.stderr), (0, ""))


    def test_a_python_whose_h5py_cannot_be_imported_starts_the_one_that_works(self):
        script, broken, working = os.path.join(SOURCE, "scripts", "plot.py"), os.path.join(folder, "broken"), os.path.join(folder, "working python")
        os.makedirs(os.path.join(broken, "h5py"))
        with open(os.path.join(broken, "h5py", "__init__.py"), "w") as file:
            file.write("raise ImportError('libhdf5.so.310: no such file\\nor another line')\n")
        with open(working, "w") as file:
            file.write(f'#!/bin/sh\nunset PYTHONPATH\necho started anew >&2\nexec {shlex.quote(sys.executable)} "$@"\n')
        os.chmod(working, 0o755)
        clean = {key: value for key, value in os.environ.items() if not key.startswith("PALIMPSEST_")}
        environment = {**clean, "PYTHONPATH": broken, "PALIMPSEST_PYTHON": working}
        found = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True, cwd=folder, env=environment)
        self.assertEqual((found.returncode, found.stderr, found.stdout[:14]), (0, "started anew\n", "usage: plot.py"))
        environment["PALIMPSEST_STARTED_ANEW"] = "1"
        found = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True, cwd=folder, env=environment)
        self.assertEqual((found.returncode, found.stdout), (1, ""))
        self.assertIn("lacks h5py that works (ImportError: libhdf5.so.310: no such file); run scripts/setup.sh", found.stderr)


class Files(unittest.TestCase):
    def test_png_and_svg(self):
        out = os.path.join(folder, "picture.png")
        code, text, err = call(sweep, "--svg", "--out", out)
        svg = out[:-3] + "svg"
        self.assertEqual((code, text, err), (0, f"{out}\n{svg}\n", ""))
        self.assertGreater(png_size(out)[0], 1000)
        with open(out, "rb") as file:
            self.assertIn(b"overwrite-delta-2", file.read())
        with open(svg) as file:
            first = file.read()
        self.assertIn("overwrite-delta-2", first)
        self.assertIn("commit 0123456789abcdef", first)
        self.assertNotIn("<dc:date>", first)
        with open(out, "rb") as file:
            first_png = file.read()
        call(sweep, "--svg", "--out", out)
        with open(svg) as file:
            self.assertEqual(file.read(), first)
        with open(out, "rb") as file:
            self.assertEqual(file.read(), first_png)

    def test_default_name_stands_in_the_folder(self):
        code, text, _ = call(sweep, "--kind", "classes")
        self.assertEqual((code, text), (0, os.path.join(sweep, "classes.png") + "\n"))

    def test_one_run_file_is_enough(self):
        path = os.path.join(sweep, "mqar-delta-1", "run.h5")
        for kind in ("accuracy", "curves", "classes"):
            self.assertEqual(call(path, "--kind", kind, "--out", os.path.join(folder, "one.png"))[0], 0, kind)

    def test_sweep_file_gives_order_and_alone_gives_summaries(self):
        both = os.path.join(folder, "both")
        for mixer in ("delta", "softmax"):
            synthetic.write_run(os.path.join(both, mixer), mixer, mixer, 1)
        synthetic.write_sweep_file(both, ["softmax", "delta"], ["softmax", "delta"], [0.9, 0.8])
        self.assertEqual([run.run_id for run in plot_records.read_paths([both])], ["softmax", "delta"])
        alone = os.path.join(folder, "alone")
        os.makedirs(alone)
        synthetic.write_sweep_file(alone, ["a", "b", "c"], ["softmax", "delta", "linear"], [0.9, 0.8, np.nan])
        out = os.path.join(folder, "alone.png")
        code, _, err = call(alone, "--out", out)
        self.assertEqual((code, err), (0, "plot.py: left out: 1 of 3 runs have no test_accuracy or model.mixer (yet)\n"))
        code, _, err = call(alone, "--kind", "curves", "--out", out)
        self.assertEqual((code, err), (2, "plot.py: error: run a: its run.h5 is needed for this plot, and only sweep.h5 was given\n"))

    def test_a_damaged_file_is_left_out_by_name(self):
        some = os.path.join(folder, "some")
        synthetic.write_run(os.path.join(some, "good"), "good", "delta", 1)
        bad = synthetic.write_run(os.path.join(some, "bad"), "bad", "delta", 2)
        with open(bad, "r+b") as file:
            file.truncate(1000)
        code, _, err = call(some, "--out", os.path.join(folder, "some.png"))
        self.assertEqual(code, 0)
        self.assertTrue(err.startswith(f"plot.py: left out: '{bad}' is damaged ("), err)

    def test_a_file_that_lacks_parts_is_damaged(self):
        some, out = os.path.join(folder, "parts"), os.path.join(folder, "parts.png")
        synthetic.write_run(os.path.join(some, "good"), "good", "delta", 1)
        for part in ("summary", "config", "provenance", "eval/answer_class", "eval/slice_split", "train/step", "run_id"):
            bad = synthetic.write_run(os.path.join(some, "bad"), "bad", "delta", 2)
            with h5py.File(bad, "r+") as file:
                del (file.attrs if part == "run_id" else file)[part]
            for kind in ("accuracy", "curves", "classes"):
                code, _, err = call(some, "--kind", kind, "--out", out)
                self.assertEqual((code, err.count("\n")), (0, 1), err)
                self.assertTrue(err.startswith(f"plot.py: left out: '{bad}' is damaged (") and part.split("/")[-1] in err, err)
        for alone in (os.path.dirname(bad), bad):
            code, _, err = call(alone, "--out", out)
            self.assertEqual((code, err.splitlines()[1:]), (2, ["plot.py: error: no readable run"]), err)
        with open(bad, "r+b") as file:
            file.truncate(1000)
        self.assertEqual(call(bad, os.path.join(some, "good"), "--out", out)[0], 0)

    def test_a_damaged_sweep_file_leaves_its_runs(self):
        some, out = os.path.join(folder, "torn"), os.path.join(folder, "torn.png")
        synthetic.write_run(os.path.join(some, "good"), "good", "delta", 1)
        synthetic.write_sweep_file(some, ["good"], ["delta"], [0.9])
        sweep_file = os.path.join(some, "sweep.h5")
        with h5py.File(sweep_file, "r+") as file:
            del file["runs/present"]
        code, _, err = call(some, "--out", out)
        self.assertEqual((code, err.count("\n")), (0, 1), err)
        self.assertTrue(err.startswith(f"plot.py: left out: '{sweep_file}' is damaged ("), err)
        shutil.rmtree(os.path.join(some, "good"))
        code, _, err = call(some, "--out", out)
        self.assertEqual((code, err.splitlines()[1:]), (2, ["plot.py: error: no readable run"]), err)


class Mistakes(unittest.TestCase):
    def check(self, message, *arguments):
        code, out, err = call(*arguments, "--out", os.path.join(folder, "never.png"))
        self.assertEqual((code, out), (2, ""))
        self.assertEqual(err, f"plot.py: error: {message}\n")
        self.assertFalse(os.path.exists(os.path.join(folder, "never.png")))

    def test_messages(self):
        config = "model.mixer, model.width, "
        keys = f"best_policy_accuracy, {config}parameters, seconds, seed, state_bytes, sweep, task, task.name, test_accuracy, test_stale_rate, train.lr"
        self.check(f"no run has 'model.mixr' (--hue); did you mean 'model.mixer'? There are: {keys}", sweep, "--hue", "model.mixr")
        self.check(f"no run has 'colour' (--panel). There are: {keys}", sweep, "--panel", "colour")
        self.check("no run has 'test_acuracy' (--y); did you mean 'test_accuracy'? There are: best_policy_accuracy, parameters, seconds, "
                   "state_bytes, test_accuracy, test_stale_rate", sweep, "--y", "test_acuracy")
        self.check("no run has seed=9; its values are: 1, 2, 3", sweep, "--filter", "seed=9")
        self.check("--filter wants key=value, got 'seed'", sweep, "--filter", "seed")
        self.check(f"no such file or folder: '{folder}/nowhere', and no sweep or run of that name in 'results'", os.path.join(folder, "nowhere"))
        self.check("--x overwrites needs --y test_accuracy, valid_accuracy, or a rate of answers such as test_stale_rate, not 'seconds'",
                   sweep, "--x", "overwrites", "--y", "seconds")
        self.check("no answer class 'wrong'; there are: correct, stale, other_current, other_former, unbound, not_a_value",
                   sweep, "--x", "distance", "--y", "test_wrong_rate")
        empty = os.path.join(folder, "empty")
        os.makedirs(empty, exist_ok=True)
        self.check(f"'{empty}' holds no run.h5 and no sweep.h5", empty)

    def test_options_without_a_use(self):
        self.check("--kind classes has no --x", sweep, "--kind", "classes", "--x", "segment")
        self.check("--kind curves has no --y", sweep, "--kind", "curves", "--y", "final_loss")
        self.check("--segment needs an axis of the questions: --x overwrites, distance, segment", sweep, "--segment", "pairs=4")

    def test_heat_needs_an_axis_of_the_questions(self):
        self.check("--kind heat needs --x overwrites, distance or segment", sweep, "--kind", "heat", "--x", "seed")

    def test_format_of_the_picture(self):
        code, _, err = call(sweep, "--out", "picture.pdf")
        self.assertEqual((code, err), (2, "plot.py: error: --out must end in .png or .svg, got 'picture.pdf'\n"))

    def test_runs_that_have_not_ended(self):
        early = os.path.join(folder, "early")
        synthetic.write_run(os.path.join(early, "a"), "a", "delta", 1, finished=False)
        self.assertEqual(call(early, "--kind", "curves", "--out", os.path.join(folder, "early.png"))[0], 0)
        code, _, err = call(early, "--out", os.path.join(folder, "early.png"))
        self.assertEqual(code, 2)
        self.assertIn("no run has 'test_accuracy' (--y)", err)
        path = synthetic.write_run(os.path.join(early, "b"), "b", "delta", 2, finished=False)
        with h5py.File(path, "r+") as file:
            del file["eval/answers"]
        for kind in ("classes", "heat", "accuracy"):
            axis = [] if kind == "classes" else ["--x", "overwrites"]
            code, _, err = call(early, "--kind", kind, *axis, "--out", os.path.join(folder, "early.png"))
            self.assertEqual((code, err.splitlines()[0]), (0, "plot.py: left out: 1 of 2 runs have no evaluation (yet)"), kind)


if __name__ == "__main__":
    unittest.main()
