#!/usr/bin/env python3
"""Draws what runs have recorded, from their HDF5 files alone.

    scripts/plot.py results/quickstart                                     accuracy by mixer
    scripts/plot.py results/quickstart --x state_bytes --hue model.mixer   accuracy against any config key or summary value
    scripts/plot.py results/quickstart --x overwrites                      accuracy against overwrites, distance or segment of the test
    scripts/plot.py results/quickstart --kind curves                       training loss and valid accuracy by step
    scripts/plot.py results/quickstart --kind classes                      what the wrong answers were
    scripts/plot.py results/quickstart --kind heat --x overwrites          accuracy and stale answers as coloured tables, for many mixers

PATH is a sweep's folder, run folders, HDF5 files, or their names below the results, as palimpsest compare takes them; so are the keys.
Spread is over whatever is neither axis, hue nor panel: normally the seeds; a note below the picture names what else.
The same input gives the same bytes; the picture's metadata name the runs and their commit.
"""

import argparse
import os
import sys
import warnings

import own_python  # noqa: F401, first: starts this script anew where numpy and its like are
import numpy as np

from plot_answers import (Answers, by_slice, drop_unasked, drop_unmeasured, number_of, pooled_segments, same_but_seed,
                          segment_options, varies_by_segment)
from plot_best import best_over
from plot_marks import (POLICY_STYLE, add_legend, add_note, draw_bars, draw_line, draw_range, make_room, plain_number, scale_axis,
                        share_axis, style, wrap)
from plot_records import (ACCURACY, SLICE_AXES, PlotError, apply_filters, check_key, choose_axes, distinct, format_value, having,
                          is_measured, labels_of, mixer_key, is_number, place_of, read_paths, varying, words)

CLASS_COLOURS = {
    "correct": "#009E73",
    "stale": "#D55E00",
    "other_current": "#E69F00",
    "other_former": "#F0E442",
    "unbound": "#56B4E9",
    "not_a_value": "#AAAAAA",
}
CLASS_WORDS = {
    "stale": "stale value of this key",
    "other_current": "other key's value",
    "other_former": "other key's former value",
    "unbound": "never bound here",
    "not_a_value": "not a value",
}


# ------ drawing


def start_drawing():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({
        "figure.dpi": 200, "savefig.dpi": 200, "figure.constrained_layout.use": True,
        "font.size": 9, "axes.titlesize": 9, "axes.labelsize": 9, "legend.fontsize": 8, "legend.title_fontsize": 8,
        "xtick.labelsize": 8, "ytick.labelsize": 8,
        "axes.grid": True, "grid.color": "#DDDDDD", "grid.linewidth": 0.6, "axes.axisbelow": True,
        "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": "#666666",
        "lines.linewidth": 1.5, "lines.markersize": 4.5, "legend.frameon": False,
        "svg.hashsalt": "palimpsest",
        "text.parse_math": False,  # names of options, mixers and runs are text, whatever signs they hold
    })
    return plt


def panels(plt, options, runs, rows=1, width=3.5, height=2.7, sharex=True):
    values = distinct(runs, options.panel)
    size = (width * len(values) + 0.9, height * rows)
    figure, axes = plt.subplots(rows, len(values), figsize=size, squeeze=False, sharex=sharex, sharey="row")
    figure.least = [(0.5 * width, 0.5 * height)] * axes.size  # of each axes, in inches
    if options.panel:
        names = labels_of(runs, options.panel)
        for axis, value in zip(axes[0], values):
            axis.set_title(wrap(f"{words(options.panel, runs)}: {names[value]}", 40))
    return figure, axes, values


def draw_accuracy(plt, options, runs):
    metric = options.y
    if options.x in SLICE_AXES or (options.x and varies_by_segment(options.x, runs)):
        return draw_slices(plt, options, runs)
    if options.segment:
        raise PlotError(f"--segment needs an axis of the questions: --x {', '.join(SLICE_AXES)}")
    if options.x is None:
        options.x = mixer_key(varying(runs)) or next(iter(varying(runs)), "model.mixer")
    check_key(metric, runs, "--y", config=False)
    options.x = check_key(options.x, runs, "--x", SLICE_AXES)
    runs = drop_unmeasured(runs, [metric, options.x])
    choose_axes(options, runs)
    x_values = distinct(runs, options.x)
    figure, axes, values = panels(plt, options, runs)
    with_policy = metric in ("test_accuracy", "best_test_accuracy") and any("best_policy_accuracy" in run.summary for run in runs)
    counts = []
    for axis, value in zip(axes[0], values):
        chosen = having(runs, options.panel, value)
        if all(is_number(x) for x in x_values):
            counts += draw_numeric(axis, options, runs, chosen, with_policy)
            scale_axis(axis, "x", x_values)
            if len(x_values) <= 8 and not is_measured(options.x, runs):
                axis.set_xticks(sorted(x_values), [plain_number(x) for x in sorted(x_values)])
                axis.minorticks_off()
        else:
            counts += draw_categories(axis, options, runs, chosen, with_policy)
        axis.set_xlabel(words(options.x, runs))
        share_axis(axis, metric, 1.2 if any(text.get_rotation() for text in axis.texts) else 1.08)
        if not ACCURACY.match(metric):
            scale_axis(axis, "y", [run.value(metric) for run in runs])
    axes[0][0].set_ylabel(words(metric, runs))
    add_legend(axes, options, runs, with_policy)
    spread = "band" if all(is_number(x) for x in x_values) else "whisker"
    add_note(figure, options, counts, f"mean of {{runs}}, each a dot; {spread}: one standard deviation")
    return figure


def policy_of(runs):
    shares = [run.summary["best_policy_accuracy"] for run in runs if np.isfinite(run.summary.get("best_policy_accuracy", np.nan))]
    return float(np.mean(shares)) if shares else None


def draw_numeric(axis, options, everything, runs, with_policy):
    measured, counts = is_measured(options.x, runs), []
    for i, (hue, label) in enumerate(labels_of(everything, options.hue).items()):  # of all panels, so that a colour means one thing
        points = {}
        for group in same_but_seed(having(runs, options.hue, hue)) if measured else [[run] for run in having(runs, options.hue, hue)]:
            # A measured x (seconds) differs a little between seeds: one point at its mean.
            x = float(np.mean([run.value(options.x) for run in group]))
            points.setdefault(x, []).extend(run.value(options.y) for run in group)
        if points:
            counts += draw_line(axis, points, style(i), label)
    if with_policy:
        shares = {}
        for run in runs:
            shares.setdefault(run.value(options.x), []).append(run)
        steps = [(x, policy_of(group)) for x, group in sorted(shares.items()) if policy_of(group) is not None]
        if len({share for _, share in steps}) == 1:
            axis.axhline(steps[0][1], zorder=1, **POLICY_STYLE)
        else:
            axis.plot([x for x, _ in steps], [share for _, share in steps], zorder=1, **POLICY_STYLE)
    return counts


def draw_categories(axis, options, everything, runs, with_policy):
    # Places and hues of all panels: they share one axis and one legend.
    places, hues, counts = labels_of(everything, options.x), labels_of(everything, options.hue), []
    width = 0.8 / len(hues)
    crowded = len(places) * len(hues) > 12
    for i, (hue, label) in enumerate(hues.items()):
        for p, place in enumerate(places):
            values = [run.value(options.y) for run in having(having(runs, options.x, place), options.hue, hue)]
            if not values:
                continue
            look = style(i) if options.hue else style(p)
            draw_bars(axis, p + (i - (len(hues) - 1) / 2) * width, values, look, width, label, crowded)
            counts.append(len(values))
    shares = [policy_of(having(runs, options.x, place)) if with_policy else None for place in places]
    if len(set(shares)) == 1 and shares[0] is not None:
        axis.axhline(shares[0], zorder=5, **POLICY_STYLE)
    else:
        for p, share in enumerate(shares):
            if share is not None:
                axis.plot([p - 0.45, p + 0.45], [share, share], zorder=5, **POLICY_STYLE)
    axis.set_xticks(range(len(places)), [wrap(name) for name in places.values()])
    axis.grid(axis="x", visible=False)
    axis.set_xlim(-0.55, len(places) - 0.45)
    return counts


def axis_of_segments(options, runs):
    """Segments that differ in one number stand at its true places: --x segment is then that option of the task."""
    found = {}
    for run in runs:
        answers = Answers(run)
        for label, keep in zip(answers.labels, answers.splits["test"] & answers.of_segments(options.segment)):
            for name, value in segment_options(label).items() if keep else ():
                found.setdefault(name, set()).add(value)
    free = [name for name, values in found.items() if len(values) > 1]
    if len(free) == 1 and all(np.isfinite(number_of(value)[0]) for value in found[free[0]]):
        return f"task.{free[0]}"
    return "segment"


def note_pooled(options, runs):
    if pooled := pooled_segments(runs, options.y, options.x, options.segment):
        options.notes.append(f"pooled over the segments {', '.join(pooled)}")
        print(f"plot.py: pooled over the segments {'; '.join(pooled)}; --segment takes one", file=sys.stderr)


def draw_slices(plt, options, runs):
    runs = drop_unasked(runs)
    if options.x == "segment":
        options.x = axis_of_segments(options, runs)
    choose_axes(options, runs)
    measured = {run.run_id: by_slice(run, options.y, options.x, options.segment) for run in runs}
    note_pooled(options, runs)
    figure, axes, values = panels(plt, options, runs, sharex=False)  # tasks have other segments and distances
    with_policy = any(policies for _, policies in measured.values())
    counts = []
    for axis, value in zip(axes[0], values):
        chosen = having(runs, options.panel, value)
        places = sorted({place for run in chosen for place in measured[run.run_id][0]})
        to_scale = options.x.startswith("task.") and all(np.isfinite(place[0]) for place in places)
        index = {place: place[0] if to_scale else i for i, place in enumerate(places)}
        for i, (hue, label) in enumerate(labels_of(runs, options.hue).items()):
            points = {}
            for run in having(chosen, options.hue, hue):
                for place, rate in measured[run.run_id][0].items():
                    points.setdefault(index[place], []).append(rate)
            if points:
                counts += draw_line(axis, points, style(i), label)
        best = [max((measured[run.run_id][1].get(place, np.nan) for run in chosen), default=np.nan) for place in places]
        if with_policy:
            axis.plot([index[place] for place in places], best, zorder=1, **POLICY_STYLE)
        if to_scale:
            scale_axis(axis, "x", [place[0] for place in places])
            axis.minorticks_off()
        axis.set_xticks([index[place] for place in places], [wrap(place[1]) for place in places])
        axis.set_xlabel(words(options.x))
        axis.margins(x=0.06)
        share_axis(axis, options.y)
    axes[0][0].set_ylabel(words(options.y, runs))
    add_legend(axes, options, runs, with_policy)
    add_note(figure, options, counts, "mean of {runs}, each a dot; band: one standard deviation")
    return figure


def draw_heat(plt, options, runs):
    """A row for each hue, a column for each place on the axis, the mean over seeds in every cell; one panel for each metric."""
    if options.x not in SLICE_AXES and not (options.x and varies_by_segment(options.x, runs)):
        raise PlotError(f"--kind heat needs --x {', '.join(SLICE_AXES[:-1])} or {SLICE_AXES[-1]}")
    runs = drop_unasked(runs)
    metrics = ["test_accuracy", "test_stale_rate"] if options.y == "test_accuracy" else [options.y]
    choose_axes(options, runs)
    if len(tasks := distinct(runs, "task.name")) > 1:
        raise PlotError(f"--kind heat draws one task; these runs have {', '.join(map(format_value, tasks))}: choose with --filter task.name=…")
    note_pooled(options, runs)
    hues = labels_of(runs, options.hue)
    names = [wrap(name or "") for name in hues.values()]
    width = 0.9 + 0.075 * max(len(line) for name in names for line in name.split("\n"))
    tables = []
    for metric in metrics:
        measured = [[by_slice(run, metric, options.x, options.segment) for run in having(runs, options.hue, hue)] for hue in hues]
        places = sorted({place for row in measured for rates, _ in row for place in rates})
        known = [[[rates[place] for rates, _ in row if place in rates] for place in places] for row in measured]
        cells = np.array([[np.mean(rates) if rates else np.nan for rates in row] for row in known])
        counts = [len(rates) for row in known for rates in row if rates]
        labels = list(names)
        policies = [policy for row in measured for _, policy in row if policy]
        if policies:
            cells = np.vstack([cells, [max((policy[place] for policy in policies if place in policy), default=np.nan) for place in places]])
            labels.append("best shallow policy")
            width = max(width, 0.9 + 0.075 * len(labels[-1]))
        tables.append((metric, [place[1] for place in places], labels, cells))
    rows = max(len(labels) for _, _, labels, _ in tables)
    for _, _, labels, _ in tables:  # rows of all panels stand side by side
        labels += [""] * (rows - len(labels))
    figure, axes = plt.subplots(1, len(tables), figsize=(sum(0.55 * len(t[1]) + width for t in tables), 0.9 + 0.3 * rows), squeeze=False)
    figure.least = [(0.45 * len(columns), 0.2 * rows) for _, columns, _, _ in tables]
    for axis, (metric, columns, labels, cells) in zip(axes[0], tables):
        cells = np.vstack([cells, np.full((rows - len(cells), len(columns)), np.nan)])
        axis.imshow(cells, cmap="Blues" if metric.endswith("_accuracy") else "Oranges", vmin=0, vmax=1, aspect="auto")
        for (row, column), value in np.ndenumerate(cells):
            if not labels[row] and options.hue:
                continue
            text = "–" if np.isnan(value) else f"{value:.2f}"
            axis.text(column, row, text, ha="center", va="center", fontsize=7.5, color="white" if value > 0.6 else "#222222")
        if rows > len(names):
            axis.axhline(len(names) - 0.5, color="white", linewidth=4)
        axis.set_xticks(range(len(columns)), [wrap(column) for column in columns])
        axis.set_yticks(range(len(labels)), labels)
        axis.set_xlabel(words(options.x))
        axis.set_title(words(metric, runs))
        axis.tick_params(length=0)
        axis.grid(visible=False)
        axis.spines[:].set_visible(False)
    add_note(figure, options, counts, "cells: mean of {runs}")
    return figure


def draw_curves(plt, options, runs):
    options.x = None
    choose_axes(options, runs)
    series, behind = {}, []
    for run in runs:
        step, loss, eval_step, counts, split = run.columns("train/step", "train/loss", "eval/eval_step", "eval/answers", "eval/slice_split")
        valid = None
        if counts is not None and (split == 0).any():
            picked = counts[:, split == 0]
            valid = picked[:, :, 0].sum(1) / picked.sum((1, 2))
        series[run.run_id] = ((step, loss), (eval_step, valid))
    figure, axes, values = panels(plt, options, runs, rows=2, height=2.2)
    losses = [y for (_, loss), _ in series.values() if loss is not None for y in loss[np.isfinite(loss)]]
    for column, value in enumerate(values):
        for i, (hue, label) in enumerate(labels_of(runs, options.hue).items()):
            group = having(having(runs, options.panel, value), options.hue, hue)
            behind += [len(group)] if group else []
            for row in (0, 1):
                draw_range(axes[row][column], [series[run.run_id][row] for run in group], style(i), label)
        axes[1][column].set_xlabel("training step")
        share_axis(axes[1][column], "valid_accuracy")
        scale_axis(axes[0][column], "y", losses)
    axes[0][0].set_ylabel("training loss")
    axes[1][0].set_ylabel("valid accuracy")
    add_legend(axes, options, runs, False)
    add_note(figure, options, behind, "mean of {runs}; band: from the lowest to the highest of them")
    return figure


def draw_classes(plt, options, runs):
    runs = drop_unasked(runs)
    options.x = None
    choose_axes(options, runs)
    answers = {run.run_id: Answers(run) for run in runs}
    hues, classes = labels_of(runs, options.hue), answers[runs[0].run_id].classes
    figure, axes, values = panels(plt, options, runs, width=3.6, height=max(1.7, 0.95 + 0.33 * len(hues)))
    drawn, asked = set(), []
    for axis, value in zip(axes[0], values):
        for row, hue in enumerate(hues):
            shares = []
            for run in having(having(runs, options.panel, value), options.hue, hue):
                chosen = answers[run.run_id].splits["test"] & answers[run.run_id].of_segments(options.segment)
                if not chosen.any():
                    raise PlotError(f"no segment has {' or '.join(options.segment)}")
                counts = answers[run.run_id].counts[chosen].sum(0)
                shares.append(counts / counts.sum())
            if not shares:
                continue
            asked.append(len(shares))
            left = 0.0
            for name, share in zip(classes, np.mean(shares, 0)):
                if share == 0:
                    continue
                colour = CLASS_COLOURS.get(name, "#666666")
                drawn.add(name)
                axis.barh(row, share, 0.72, left=left, color=colour, edgecolor="white", linewidth=0.6)
                if share >= 0.075:
                    ink = "white" if name in ("correct", "stale") else "#222222"
                    axis.text(left + share / 2, row, f"{100 * share:.0f}", ha="center", va="center", fontsize=7, color=ink)
                left += share
        names = hues.values() if options.hue else [format_value(runs[0].value("model.mixer"))]
        axis.set_yticks(range(len(hues)), [wrap(name) for name in names])
        axis.set_ylim(len(hues) - 0.5, -0.5)
        axis.set_xlim(0, 1)
        axis.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100"])
        axis.set_xlabel("test answers (%)")
        axis.grid(axis="y", visible=False)
        axis.tick_params(axis="y", length=0)
    handles = [plt.Rectangle((0, 0), 1, 1, color=CLASS_COLOURS.get(name, "#666666")) for name in classes if name in drawn]
    labels = [CLASS_WORDS.get(name, name.replace("_", " ")) for name in classes if name in drawn]
    axes[0][-1].legend(handles, labels, loc="upper left", bbox_to_anchor=(1.01, 1.02), borderaxespad=0, handlelength=1, handleheight=1)
    add_note(figure, options, asked, "mean shares of {runs}")
    return figure


KINDS = {"accuracy": draw_accuracy, "curves": draw_curves, "classes": draw_classes, "heat": draw_heat}


# ------ the command


def save(figure, out, with_svg, runs):
    commits = ", ".join(sorted({run.commit for run in runs if run.commit})) or "unknown"
    about = f"runs {' '.join(run.run_id for run in runs)}; commit {commits}"
    targets = [out]
    if with_svg and not out.endswith(".svg"):
        targets.append(os.path.splitext(out)[0] + ".svg")
    for target in targets:
        svg = target.endswith(".svg")
        metadata = {"Description": about, "Date": None} if svg else {"Description": about}
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*layout not applied")  # a picture that lacks a text is none
            try:
                figure.savefig(target, metadata=metadata)
            except UserWarning as warning:
                raise PlotError(str(warning))
        print(target)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="plot.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", metavar="PATH", nargs="+")
    parser.add_argument("--kind", choices=list(KINDS), default="accuracy")
    parser.add_argument("--x", metavar="KEY", help="config key, summary value, or overwrites, distance, segment (default: model.mixer)")
    parser.add_argument("--y", metavar="METRIC", help="summary value (default: test_accuracy)")
    parser.add_argument("--hue", metavar="KEY", help="one colour per value (default: model.mixer where it varies)")
    parser.add_argument("--panel", metavar="KEY", help="one panel per value (default: task.name where it varies)")
    parser.add_argument("--filter", metavar="KEY=VALUE,…", action="append", default=[], help="only runs with this value; may be repeated")
    parser.add_argument("--results", metavar="FOLDER", default="results", help="where to look for a name (default: results)")
    parser.add_argument("--segment", metavar="OPTIONS", action="append", default=[],
                        help="only questions of the test segments with these options (\"length=64 pairs=4\"); may be repeated")
    parser.add_argument("--best-over", metavar="KEY", action="append", default=[],
                        help="only the runs at this key's best value (train.lr), chosen on valid questions for each of the others; may be repeated")
    parser.add_argument("--out", metavar="FILE", help=".png or .svg (default: KIND-X.png beside the first PATH's files)")
    parser.add_argument("--svg", action="store_true", help="write an SVG beside the PNG")
    return parser.parse_args(arguments)


def settle(options):
    """An option that a kind of picture has no use for is a mistake, not a decoration."""
    for name in {"curves": ("x", "y", "segment"), "classes": ("x", "y")}.get(options.kind, ()):
        if getattr(options, name):
            raise PlotError(f"--kind {options.kind} has no --{name}")
    options.y = options.y or "test_accuracy"
    options.notes = []  # what the picture averages over
    options.paths = [place_of(path, options.results) for path in options.paths]


def picture(options):
    """The figure, laid out, and the runs that it shows."""
    runs = read_paths(options.paths)
    if not runs:
        raise PlotError("no readable run")
    for name in ("hue", "panel"):
        if getattr(options, name):
            setattr(options, name, check_key(getattr(options, name), runs, f"--{name}"))
    runs = apply_filters(runs, options.filter)
    if options.best_over:
        runs, said = best_over(runs, options.best_over)
        print("\n".join(said), file=sys.stderr)
        if not runs:
            raise PlotError("--best-over: no run has a valid accuracy yet")
        options.notes.append(f"each at its best {', '.join(options.best_over)} by valid accuracy")
    figure = KINDS[options.kind](start_drawing(), options, runs)
    make_room(figure)
    return figure, runs


def main(arguments=None):
    options = parse(arguments)
    try:
        settle(options)
        out = options.out
        if out is None:
            first = options.paths[0]
            out = os.path.join(first if os.path.isdir(first) else os.path.dirname(first), "-".join([options.kind, *([options.x] if options.x else [])]) + ".png")
        if not out.endswith((".png", ".svg")):
            raise PlotError(f"--out must end in .png or .svg, got '{out}'")
        figure, runs = picture(options)
        save(figure, out, options.svg, runs)
    except (PlotError, OSError) as error:
        print(f"plot.py: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
