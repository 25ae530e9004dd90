"""scripts/plot.py over run files of believable curves: what it draws, that nothing is clipped or hidden, and what it says when it cannot."""

import contextlib
import io
import os
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import h5py
import numpy as np

SOURCE = os.environ.get("PALIMPSEST_SOURCE_DIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(SOURCE, "scripts"), os.path.join(SOURCE, "tests", "python")]

import plot
import plot_answers
import plot_best
import plot_records
import synthetic


def setUpModule():
    global folder, sweep
    folder = tempfile.mkdtemp(prefix="palimpsest-plot-")
    sweep = os.path.join(folder, "sweep")
    synthetic.write_sweep(sweep)
    for mixer in ("delta", "softmax"):
        for width in (16, 64, 256):
            for seed in (1, 2):
                name = f"{mixer}-{width}-{seed}"
                synthetic.write_run(os.path.join(folder, "widths", name), name, mixer, seed, config={"model.width": width})


def tearDownModule():
    shutil.rmtree(folder)


def call(*arguments):
    """(exit code, stdout, stderr) of the command."""
    out, err = io.StringIO(), io.StringIO()
    plot.start_drawing().close("all")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = plot.main([str(a) for a in arguments])
    return code, out.getvalue(), err.getvalue()


def drawn(kind, *arguments):
    """The figure itself, laid out."""
    plot.start_drawing().close("all")
    with contextlib.redirect_stderr(io.StringIO()):
        options = plot.parse([*map(str, arguments), "--kind", kind])
        plot.settle(options)
        figure, _ = plot.picture(options)
    figure.draw_without_rendering()
    return figure


def png_size(path):
    with open(path, "rb") as file:
        return struct.unpack(">II", file.read(24)[16:])


WAYS = {
    "tasks": ("accuracy", "--x", "task.name", "--hue", "model.mixer"),
    "mixers": ("accuracy",),
    "seconds": ("accuracy", "--x", "seconds"),
    "overwrites": ("accuracy", "--x", "overwrites"),
    "segment": ("accuracy", "--x", "segment"),
    "distance": ("accuracy", "--x", "distance", "--y", "test_stale_rate"),
    "stale": ("accuracy", "--y", "test_stale_rate"),
    "curves": ("curves",),
    "classes": ("classes",),
    "heat": ("heat", "--x", "overwrites", "--filter", "task.name=overwrite"),
    "one run": ("classes", "--filter", "seed=1", "--filter", "task.name=mqar", "--filter", "model.mixer=delta"),
}


class Pictures(unittest.TestCase):
    def test_nothing_is_clipped_and_no_legend_covers_data(self):
        import matplotlib.pyplot as plt

        for name, (kind, *arguments) in WAYS.items():
            with self.subTest(name):
                figure = drawn(kind, sweep, *arguments)
                renderer = figure.canvas.get_renderer()
                page = figure.bbox
                for axis in figure.axes:
                    box = axis.get_tightbbox(renderer)
                    self.assertTrue(page.x0 - 1 <= box.x0 and box.x1 <= page.x1 + 1, f"{name}: {box} leaves the page {page}")
                    self.assertTrue(page.y0 - 1 <= box.y0 and box.y1 <= page.y1 + 1, f"{name}: {box} leaves the page {page}")
                    legend = axis.get_legend()
                    if legend:
                        for other in figure.axes:
                            self.assertFalse(legend.get_window_extent(renderer).overlaps(other.get_window_extent(renderer)), name)
                            labels = [t for t in other.get_xticklabels() if t.get_text()]
                            for label in labels:
                                self.assertFalse(legend.get_window_extent(renderer).overlaps(label.get_window_extent(renderer)), name)
                    boxes = [t.get_window_extent(renderer) for t in axis.get_xticklabels() if t.get_text() and t.get_visible()]
                    for left, right in zip(boxes, boxes[1:]):
                        self.assertFalse(left.overlaps(right), f"{name}: tick labels overlap")
                    self.assertTrue(axis.get_xlabel() or kind == "curves", name)
                plt.close(figure)

    def test_bars_show_the_mean_over_seeds(self):
        figure = drawn("accuracy", sweep, "--filter", "task.name=mqar")
        runs = plot_records.read_paths([sweep])
        for bar, label in zip(figure.axes[0].patches, figure.axes[0].get_xticklabels()):
            values = [r.summary["test_accuracy"] for r in runs if r.config["model.mixer"] == label.get_text() and r.config["task.name"] == "mqar"]
            self.assertEqual(len(values), 3)
            self.assertAlmostEqual(bar.get_height(), np.mean(values))
        policy = [line for line in figure.axes[0].lines if line.get_linestyle() == "--" and len(line.get_ydata()) == 2]
        self.assertAlmostEqual(policy[0].get_ydata()[0], 0.12)

    def test_numeric_axes_are_logarithmic_over_a_decade(self):
        figure = drawn("accuracy", os.path.join(folder, "widths"), "--x", "model.width")
        self.assertEqual(figure.axes[0].get_xscale(), "log")
        self.assertEqual([t.get_text() for t in figure.axes[0].get_xticklabels()], ["16", "64", "256"])
        line = figure.axes[0].lines[0]
        self.assertEqual(list(line.get_xdata()), [16, 64, 256])
        figure = drawn("accuracy", os.path.join(folder, "widths"), "--x", "seconds")
        self.assertEqual(figure.axes[0].get_xscale(), "linear")

    def test_curves_show_mean_and_range(self):
        figure = drawn("curves", sweep, "--filter", "task.name=mqar", "--filter", "model.mixer=delta")
        runs = plot_records.apply_filters(plot_records.read_paths([sweep]), ["task.name=mqar", "model.mixer=delta"])
        losses = np.array([run.columns("train/loss")[0] for run in runs])
        line = figure.axes[0].lines[0]
        self.assertEqual(losses.shape, (3, 100))
        np.testing.assert_allclose(line.get_ydata(), losses.mean(0), rtol=1e-6)
        band = figure.axes[0].collections[0].get_paths()[0].vertices[:, 1]
        self.assertAlmostEqual(band.max(), losses.max(), places=6)
        self.assertAlmostEqual(band.min(), losses.min(), places=6)

    def test_class_bars_add_up(self):
        figure = drawn("classes", sweep, "--filter", "task.name=mqar")
        widths = {}
        for bar in figure.axes[0].patches:
            widths.setdefault(round(bar.get_y(), 3), []).append(bar.get_width())
        self.assertEqual(len(widths), 4)
        for parts in widths.values():
            self.assertAlmostEqual(sum(parts), 1)

    def test_heat_cells_are_means_over_seeds(self):
        figure = drawn("heat", sweep, "--x", "overwrites", "--filter", "task.name=overwrite")
        accuracy, stale = figure.axes
        self.assertEqual((accuracy.get_title(), stale.get_title()), ("test accuracy", "test stale rate"))
        mixers = [t.get_text() for t in stale.get_yticklabels() if t.get_text()]
        self.assertEqual(sorted(mixers), sorted(synthetic.SKILL))
        self.assertEqual([t.get_text() for t in accuracy.get_yticklabels()], [*mixers, "best shallow policy"])
        runs = plot_records.apply_filters(plot_records.read_paths([sweep]), ["task.name=overwrite", "model.mixer=linear"])
        rates = [plot_answers.by_slice(run, "test_accuracy", "overwrites")[0][(2, "2")] for run in runs]
        self.assertAlmostEqual(accuracy.images[0].get_array()[mixers.index("linear"), 2], np.mean(rates))

    def test_best_over_chooses_on_valid_questions_alone(self):
        rates = os.path.join(folder, "rates")
        valid = {1e-3: 0.7, 3e-3: 0.9, 1e-2: 0.9}  # a tie: the first wins, whatever the test says
        for lr, accuracy in valid.items():
            for seed in (1, 2):
                path = synthetic.write_run(os.path.join(rates, f"{lr}-{seed}"), f"{lr}-{seed}", "delta", seed, config={"train.lr": lr})
                with h5py.File(path, "r+") as file:
                    file["summary/valid_accuracy"] = accuracy + 0.05 * (seed - 1.5)
        runs, said = plot_best.best_over(plot_records.read_paths([rates]), ["train.lr"])
        self.assertEqual(sorted(run.run_id for run in runs), ["0.003-1", "0.003-2"])
        lines = ["train.lr=0.003: chosen among 3 candidates by the mean valid_accuracy 0.900",
                 "note: train.lr 0.003 and 0.01 tie at 0.9000; the first is shown"]
        self.assertEqual(said, lines)
        code, _, err = call(rates, "--best-over", "train.lr", "--out", os.path.join(folder, "rates.png"))
        self.assertEqual((code, err.splitlines()), (0, lines))

    def test_a_key_that_names_no_axis_is_reported_as_averaged(self):
        widths = os.path.join(folder, "widths")
        code, _, err = call(widths, "--out", os.path.join(folder, "w.png"))
        self.assertEqual((code, err), (0, "plot.py: averaged over model.width; --filter or --panel takes them apart\n"))
        code, _, err = call(widths, "--x", "model.width", "--out", os.path.join(folder, "w.png"))
        self.assertEqual((code, err), (0, ""))


def places(axis):
    return [text.get_text() for text in axis.get_xticklabels()]


def legend(figure):
    return [text.get_text() for axis in figure.axes if axis.get_legend() for text in axis.get_legend().get_texts()]


class Mixed(unittest.TestCase):
    """Folders that hold more than one sweep, names of any signs, runs that differ in what they have."""

    def folder_of(self, name, *runs):
        root = os.path.join(folder, name)
        for number, (mixer, task, config) in enumerate(runs):
            synthetic.write_run(os.path.join(root, str(number)), f"{name}{number}", mixer, 1, task, config)
        return root

    def test_bars_stand_under_their_own_names_whatever_a_panel_holds(self):
        root = self.folder_of("panels", ("softmax", "overwrite", {}), ("delta", "overwrite", {}), ("linear", "mqar", {}))
        figure = drawn("accuracy", root)
        for axis in figure.axes:
            heights = {round(bar.get_x() + bar.get_width() / 2): bar.get_height() for bar in axis.patches if bar.get_height() > 0}
            names = ["softmax", "delta", "linear"]
            expected = {"overwrite": {0, 1}, "mqar": {2}}[axis.get_title().split()[-1]]
            self.assertEqual(set(heights), expected)
            self.assertEqual(places(figure.axes[0]), names)

    def test_one_legend_over_all_panels(self):
        root = self.folder_of("hues", ("softmax", "overwrite", {}), ("delta", "overwrite", {}), ("linear", "mqar", {}))
        figure = drawn("accuracy", root, "--x", "overwrites", "--hue", "model.mixer")
        self.assertEqual(legend(figure), ["softmax", "delta", "linear", "best shallow\npolicy"])
        colours = {line.hue: line.get_color() for axis in figure.axes for line in axis.lines if getattr(line, "hue", None)}
        self.assertEqual(len(set(colours.values())), 3)

    def test_layers_are_the_mixers_where_they_are_given(self):
        root = self.folder_of("layers", ("softmax", "overwrite", {"model.layers": "[base_conv, delta]"}), ("linear", "overwrite", {"model.layers": "[]"}))
        self.assertEqual(places(drawn("accuracy", root).axes[0]), ["base_conv + delta", "linear"])
        code, _, err = call(root, "--filter", "model.mixer=softmax", "--out", os.path.join(folder, "l.png"))
        self.assertEqual((code, err), (2, "plot.py: error: no run has model.mixer=softmax; its values are: [base_conv, delta], linear\n"))
        self.assertEqual(call(root, "--filter", "model.mixer=[base_conv,delta]", "--out", os.path.join(folder, "l.png"))[0], 0)

    def test_names_of_any_signs(self):
        names = ["_hidden", "$x", "a_{b", "x^2", "100%", "\\frac"]
        root = self.folder_of("signs", *(("delta", "overwrite", {"model.note": name}) for name in names))
        figure = drawn("accuracy", root, "--x", "overwrites", "--hue", "model.note")
        self.assertEqual(legend(figure)[:-1], names)
        self.assertEqual(call(root, "--x", "model.note", "--svg", "--out", os.path.join(folder, "signs.png"))[0], 0)

    def test_a_curve_of_one_point_is_seen(self):
        root = self.folder_of("point", ("delta", "overwrite", {}))
        path = os.path.join(root, "0", "run.h5")
        with h5py.File(path, "r+") as file:
            for group, names in (("train", ["step", "loss"]), ("eval", ["eval_step", "answers"])):
                for name in names:
                    first = file[group][name][:1]
                    del file[group][name]
                    file[group][name] = first
        for axis in drawn("curves", root).axes:
            self.assertEqual([line.get_marker() for line in axis.lines if len(line.get_xdata())], ["o"])

    def test_heat_draws_one_task_and_every_value(self):
        root = self.folder_of("heat", ("softmax", "overwrite", {}), ("softmax", "mqar", {}))
        code, _, err = call(root, "--kind", "heat", "--x", "overwrites", "--out", os.path.join(folder, "h.png"))
        self.assertEqual((code, err), (2, "plot.py: error: --kind heat draws one task; these runs have overwrite, mqar: choose with --filter task.name=…\n"))

    def test_what_the_marks_mean_stands_below(self):
        notes = {kind: drawn(kind, sweep, *arguments)._supxlabel.get_text() for kind, arguments in
                 (("accuracy", []), ("curves", []), ("classes", []), ("heat", ["--x", "overwrites", "--filter", "task.name=overwrite"]))}
        self.assertEqual(notes, {"accuracy": "mean of 3 runs, each a dot; whisker: one standard deviation",
                                 "curves": "mean of 3 runs; band: from the lowest to the highest of them",
                                 "classes": "mean shares of 3 runs",
                                 "heat": "cells: mean of 3 runs; pooled over the segments length=128 pairs=8, length=64 pairs=4"})

    def test_what_is_averaged_over_stands_below_every_kind(self):
        widths = os.path.join(folder, "widths")
        marks = {"accuracy": "mean of 6 runs, each a dot; whisker: one standard deviation", "classes": "mean shares of 6 runs",
                 "curves": "mean of 6 runs; band: from the lowest to the highest of them", "heat": "cells: mean of 6 runs"}
        for kind, mark in marks.items():
            arguments = ["--x", "overwrites", "--segment", "pairs=4"] if kind == "heat" else []
            note = drawn(kind, widths, *arguments)._supxlabel.get_text().replace("\n", " ")
            self.assertEqual(note, f"{mark}; averaged over model.width", kind)
        note = drawn("accuracy", widths, "--x", "distance")._supxlabel.get_text().replace("\n", " ")
        self.assertEqual(note, "mean of 6 runs, each a dot; band: one standard deviation; averaged over model.width; "
                               "pooled over the segments length=128 pairs=8, length=64 pairs=4")
        self.assertIsNone(drawn("accuracy", widths, "--x", "model.width", "--filter", "seed=1")._supxlabel)

    def test_a_run_counts_once_by_whatever_path(self):
        root = self.folder_of("paths", ("delta", "overwrite", {}), ("linear", "overwrite", {}))
        os.symlink(".", os.path.join(root, "cycle"))
        os.symlink("0", os.path.join(root, "latest"))
        outside = os.path.join(folder, "elsewhere")
        synthetic.write_run(outside, "elsewhere", "softmax", 1)
        os.symlink(outside, os.path.join(root, "link"))
        self.assertEqual(sorted(run.run_id for run in plot_records.read_paths([root, root])), ["elsewhere", "paths0", "paths1"])

    def test_a_run_under_two_names_is_told(self):
        root = os.path.join(folder, "twice")
        files = [synthetic.write_run(os.path.join(root, name), "one", "delta", 1) for name in ("a", "b")]
        code, _, err = call(root, "--out", os.path.join(folder, "t.png"))
        self.assertEqual((code, err), (0, f"plot.py: the run one stands in '{files[0]}' and in '{files[1]}'; the first counts\n"))


def convs(*kernels):
    return "[" + ", ".join([*(f"{{mixer: base_conv, kernel: {kernel}}}" for kernel in kernels), "softmax"]) + "]"


class Labels(unittest.TestCase):
    """Names of any length: layers with options first of all."""

    @classmethod
    def setUpClass(cls):
        cls.layers, cls.mixed, cls.long = (os.path.join(folder, name) for name in ("conv", "conv-mixed", "conv-long"))
        for kernel in (8, 16, 32, 64):
            for seed in (1, 2):
                name = f"conv{kernel}-{seed}"
                config = {"model.layers": convs(3, kernel, 3)}
                synthetic.write_run(os.path.join(cls.layers, name), name, "softmax", seed, config=config)
        for name, mixer, task, layers in (("m1", "softmax", "overwrite", convs(3, 8)), ("m2", "softmax", "overwrite", convs(3, 16)),
                                          ("m3", "linear", "overwrite", "[]"), ("m4", "delta", "mqar", "[delta, delta]")):
            synthetic.write_run(os.path.join(cls.mixed, name), name, mixer, 1, task, config={"model.layers": layers})
        for number in range(5):
            note = "a_very-long/name.without+spaces_" * 4
            config = {"model.note": f"{note}{number}", "train.schedule": "word " * 14 + str(number % 2)}
            synthetic.write_run(os.path.join(cls.long, str(number)), f"long{number}", "delta", 1, config=config)

    def texts(self, figure):
        for axis in figure.axes:
            yield from (axis.title, axis.xaxis.label, axis.yaxis.label, *axis.texts)
            for ticks, (low, high) in ((axis.xaxis, axis.get_xlim()), (axis.yaxis, sorted(axis.get_ylim()))):
                yield from (text for text, place in zip(ticks.get_ticklabels(), ticks.get_ticklocs()) if low <= place <= high)
            if axis.get_legend():
                yield from (axis.get_legend().get_title(), *axis.get_legend().get_texts())
        if figure._supxlabel:
            yield figure._supxlabel

    def test_every_text_lies_inside_and_is_told_apart(self):
        ways = [(self.layers, *way) for way in (["accuracy"], ["accuracy", "--x", "overwrites"], ["curves"], ["classes"],
                                                ["heat", "--x", "distance"], ["classes", "--panel", "model.mixer"])]
        ways += [(self.mixed, "accuracy"), (self.mixed, "curves"),
                 (self.long, "accuracy", "--x", "model.note", "--hue", "train.schedule"),
                 (self.long, "accuracy", "--x", "overwrites", "--hue", "model.note", "--panel", "train.schedule"),
                 (self.long, "heat", "--x", "overwrites", "--hue", "model.note"), (self.long, "classes", "--hue", "model.note")]
        for root, kind, *arguments in ways:
            with self.subTest(" ".join([os.path.basename(root), kind, *arguments])):
                figure = drawn(kind, root, *arguments)
                page, renderer = figure.bbox, figure.canvas.get_renderer()
                for text in self.texts(figure):
                    if text.get_text() and text.get_visible():
                        box = text.get_window_extent(renderer)
                        inside = page.x0 - 1 <= box.x0 and box.x1 <= page.x1 + 1 and page.y0 - 1 <= box.y0 and box.y1 <= page.y1 + 1
                        self.assertTrue(inside, f"'{text.get_text()}' at {box} leaves the page {page}")
                for axis in figure.axes:
                    box = axis.get_window_extent(renderer)
                    self.assertGreater(min(box.width, box.height) / figure.dpi, 0.6)
                    for texts in (places(axis), legend(figure)):
                        self.assertEqual(len(set(texts)), len(texts))
                    for texts in (axis.get_xticklabels(), axis.get_yticklabels()):
                        boxes = [text.get_window_extent(renderer) for text in texts if text.get_text() and text.get_rotation() == 0]
                        self.assertFalse(any(a.overlaps(b) for a, b in zip(boxes, boxes[1:])), "tick labels overlap")

    def test_layers_are_named_by_what_differs(self):
        names = [f"layers.1.kernel={kernel}" for kernel in (16, 32, 64, 8)]
        self.assertEqual(places(drawn("accuracy", self.layers).axes[0]), names)
        self.assertEqual(legend(drawn("curves", self.mixed)), ["base_conv + base_conv\nkernel=8 + softmax",
                                                               "base_conv + base_conv\nkernel=16 + softmax", "linear", "delta"])
        runs = plot_records.read_paths([self.layers])
        for run, text in zip(runs, ("delta", "[delta, delta]")):  # one name for both would be none
            run.config["model.mixer"] = text
        self.assertEqual(plot_records.labels_of(runs[:2], "model.mixer"), {"delta": "delta", "[delta, delta]": "[delta, delta]"})

    def test_a_page_without_room_is_an_error(self):
        out = os.path.join(folder, "tiny.png")
        with unittest.mock.patch("plot.make_room", lambda figure: figure.set_size_inches(0.4, 0.4)):
            code, text, err = call(self.layers, "--out", out)
        self.assertEqual((code, text, os.path.exists(out)), (2, "", False))
        self.assertTrue(err.startswith("plot.py: error: constrained_layout not applied"), err)
        with unittest.mock.patch("plot_marks.WIDEST", 3):
            self.assertEqual(call(self.long, "--x", "model.note", "--out", out)[2].split(";")[0],
                             "plot.py: error: the labels have no room on a page of 3 inches")


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


class Segments(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = os.path.join(folder, "segments")
        cls.path = synthetic.write_run(os.path.join(cls.root, "a"), "a", "delta", 1)
        with h5py.File(cls.path, "r+") as file:  # two segments of one length: 4 and 8 pairs
            file["config"].attrs.update({"task.pairs": 3, "task.test.0.pairs": 4, "task.test.1.pairs": 8})
            labels = [label.replace("length=128", "length=64") for label in file["eval/slice_label"].asstr()[:]]
            file["eval/slice_label"][...] = labels

    def test_an_option_that_varies_by_segment_is_an_axis_to_scale(self):
        for x in ("task.pairs", "segment"):
            axis = drawn("accuracy", self.root, "--x", x).axes[0]
            self.assertEqual(list(axis.lines[0].get_xdata()), [4, 8], x)
            self.assertEqual(places(axis), ["4", "8"])
            self.assertEqual(axis.get_xlabel(), "pairs")

    def test_segments_are_not_pooled_in_silence(self):
        out = os.path.join(folder, "s.png")
        code, _, err = call(self.root, "--x", "distance", "--out", out)
        self.assertEqual((code, err), (0, "plot.py: pooled over the segments length=64 pairs=4; length=64 pairs=8; --segment takes one\n"))
        self.assertEqual(call(self.root, "--x", "distance", "--segment", "pairs=4", "--out", out)[::2], (0, ""))
        one = drawn("accuracy", self.root, "--x", "distance", "--segment", "pairs=8").axes[0].lines[0].get_ydata()
        both = drawn("accuracy", self.root, "--x", "distance").axes[0].lines[0].get_ydata()
        self.assertTrue(np.all(one < both))  # more pairs are harder
        code, _, err = call(self.root, "--x", "distance", "--segment", "pairs=5", "--out", out)
        self.assertEqual((code, err), (2, "plot.py: error: no segment has pairs=5; there are: length=64 pairs=4; length=64 pairs=8\n"))

    def test_the_best_policy_is_the_best_of_each_segment(self):
        with h5py.File(self.path, "r") as file:
            counts, segment = file["eval/policy_answers"][:], file["eval/slice_segment"][:]
        counts[0, segment == 0] = -1  # no shortcut there
        counts[1, segment == 1] = 0
        counts[1, segment == 1, 5] = 1000
        path = synthetic.write_run(os.path.join(folder, "policies"), "p", "delta", 1)
        with h5py.File(path, "r+") as file:
            file["eval/policy_answers"][...] = counts
        _, policies = plot_answers.by_slice(plot_records.read_run(path), "test_accuracy", "overwrites")
        # segment 0: 400 - 50 n by the second; segment 1: 340 by the first
        self.assertEqual([round(share, 6) for share in policies.values()], [(400 - 50 * n + 340) / 2000 for n in range(4)])


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


class Measures(unittest.TestCase):
    def test_rates_by_slice(self):
        run = plot_records.read_run(synthetic.write_run(os.path.join(folder, "hand"), "hand", "delta", 1))
        with h5py.File(run.file, "r") as file:
            counts, overwrites = file["eval/answers"][-1], file["eval/slice_overwrites"][:]
            test = file["eval/slice_split"][:] == 1
        rates, policies = plot_answers.by_slice(run, "test_accuracy", "overwrites")
        self.assertEqual(list(rates), [(n, str(n)) for n in range(4)])
        for (n, _), rate in rates.items():
            rows = counts[test & (overwrites == n)]
            self.assertAlmostEqual(rate, rows[:, 0].sum() / rows.sum())
        # last_write: 340 of 1000 everywhere; majority: 400 - 50 n
        self.assertEqual([round(share, 6) for share in policies.values()], [0.4, 0.35, 0.34, 0.34])
        stale, none = plot_answers.by_slice(run, "valid_stale_rate", "distance")
        self.assertEqual([words for _, words in stale], ["1–8", "9–32", "33–64"])
        self.assertEqual(none, {})
        segments, _ = plot_answers.by_slice(run, "test_accuracy", "segment")
        self.assertEqual([words for _, words in segments], ["length=64\npairs=4", "length=128\npairs=8"])


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
