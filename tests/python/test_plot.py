"""scripts/plot.py over run files of believable curves: what it draws, and that nothing is clipped or hidden."""

import os
import unittest
import unittest.mock

import h5py
import numpy as np

from plots import call, convs, drawn, folder, legend, places, sweep
import plot
import plot_answers
import plot_best
import plot_records
import synthetic


def setUpModule():
    for mixer in ("delta", "softmax"):
        for width in (16, 64, 256):
            for seed in (1, 2):
                name = f"{mixer}-{width}-{seed}"
                synthetic.write_run(os.path.join(folder, "widths", name), name, mixer, seed, config={"model.width": width})


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


if __name__ == "__main__":
    unittest.main()
