"""What plot.py draws with: lines, bands and bars of several runs, scales, the legend and the note that says what the marks mean."""

import numpy as np

from plot_records import ACCURACY, distinct, format_value, words

# Okabe and Ito's colours, told apart by colour-blind readers; markers tell them apart in grey.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#7F6A00", "#333333", "#999999"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*", "p"]
POLICY_STYLE = {"color": "#555555", "linestyle": (0, (4, 2)), "linewidth": 1.1}


def style(index):
    return {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)]}


def add_legend(axes, options, runs, policy):
    """One legend over all panels, in the order of the hues, beside the last."""
    found = {}
    for axis in axes.flat:
        for handle in (*axis.lines, *axis.containers):
            if (hue := getattr(handle, "hue", None)) is not None:
                found.setdefault(hue, handle)
    order = [format_value(hue) for hue in distinct(runs, options.hue)] if options.hue else []
    labels = [hue for hue in order if hue in found]
    handles = [found[hue] for hue in labels]
    last = axes[0][-1]
    if policy:
        handles.append(last.plot([], [], **POLICY_STYLE)[0])
        labels.append("best shallow\npolicy")
    if handles:
        title = words(options.hue, runs) if options.hue else None
        # A label that begins with a line below is left out of a legend; a text may.
        legend = last.legend(handles, [str(i) for i in range(len(labels))], title=title, loc="upper left", bbox_to_anchor=(1.01, 1.02),
                             borderaxespad=0, alignment="left")
        for text, label in zip(legend.get_texts(), labels):
            text.set_text(label)


def add_note(figure, text):
    """What the marks mean, small below the picture."""
    figure.supxlabel(text, fontsize=7, color="#666666", x=0.01, ha="left")


def runs_in_words(counts):
    """"3 runs", "1 to 3 runs": how many stand behind a point."""
    low, high = min(counts, default=0), max(counts, default=0)
    return f"{low} to {high} runs" if low != high else f"{high} run{'s' * (high != 1)}"


def scale_axis(axis, which, values):
    """Logarithmic where positive values span a decade; ticks at 1, 2, 5 where powers of ten alone would be few."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    values = np.array([v for v in values if np.isfinite(v)], dtype=float)
    if len(values) == 0 or values.min() <= 0 or values.max() / values.min() < 10:
        return
    getattr(axis, f"set_{which}scale")("log")
    ticks = getattr(axis, f"{which}axis")
    if values.max() / values.min() < 300:
        ticks.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ticks.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))
    ticks.set_minor_formatter(NullFormatter())


def plain_number(value):
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def share_axis(axis, metric, top=1.03):
    if metric.endswith("_accuracy"):
        axis.set_ylim(-0.02, top)
        axis.set_yticks([0, 0.25, 0.5, 0.75, 1])
    elif ACCURACY.match(metric):
        axis.set_ylim(bottom=0)


def mean_and_deviation(values):
    values = np.array(values, dtype=float)
    return values.mean(), values.std(ddof=1) if len(values) > 1 else 0.0


def draw_line(axis, points, look, hue):
    """Mean as a line with markers, one deviation as a band, single runs as dots. points: {x: [y, ...]}. Returns the runs of each."""
    xs = sorted(points)
    stats = [mean_and_deviation(points[x]) for x in xs]
    mean, deviation = np.array([s[0] for s in stats]), np.array([s[1] for s in stats])
    axis.plot(xs, mean, zorder=3, **look)[0].hue = hue
    if len(xs) > 1 and deviation.any():
        axis.fill_between(xs, mean - deviation, mean + deviation, color=look["color"], alpha=0.15, linewidth=0, zorder=1)
    for x in xs:
        if len(points[x]) > 1:
            axis.plot([x] * len(points[x]), points[x], ".", color=look["color"], alpha=0.55, markersize=3.5, zorder=2)
    return [len(points[x]) for x in xs]


def draw_bars(axis, place, values, look, width, hue):
    """One bar: mean, deviation as a whisker, single runs as dots, the mean in figures above."""
    mean, deviation = mean_and_deviation(values)
    axis.bar(place, mean, width * 0.9, color=look["color"], alpha=0.55, zorder=2).hue = hue
    top = max(values)
    if len(values) > 1:
        axis.errorbar(place, mean, deviation, color=look["color"], linewidth=1.2, capsize=2, zorder=3)
        offsets = np.linspace(-0.22, 0.22, len(values)) * width
        axis.plot(place + offsets, values, "o", color=look["color"], markersize=3, markeredgecolor="white", markeredgewidth=0.4, zorder=4)
        top = max(top, mean + deviation)
    text = axis.annotate(short(mean), (place, top), (0, 2), textcoords="offset points", ha="center", va="bottom", fontsize=7)
    text.set(zorder=6, color="#333333", bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})


def short(value):
    if 0 <= value <= 1:
        return f"{value:.2f}"
    return f"{value:.3g}"


def draw_range(axis, curves, look, hue):
    """Mean over runs as a line, their range as a band, where all of them were measured; a run alone further on ends the line."""
    curves = [(np.asarray(x, dtype=float), np.asarray(y, dtype=float)) for x, y in curves if y is not None and len(y)]
    curves = [(x[np.isfinite(y)], y[np.isfinite(y)]) for x, y in curves]
    curves = [(x, y) for x, y in curves if len(x)]
    if not curves:
        return
    steps = np.unique(np.concatenate([x for x, _ in curves]))
    steps = steps[(steps >= max(x[0] for x, _ in curves)) & (steps <= min(x[-1] for x, _ in curves))]
    values = np.array([np.interp(steps, x, y) for x, y in curves])
    marker = look["marker"] if len(steps) <= 30 else None  # a curve of one point is its marker
    axis.plot(steps, values.mean(0), color=look["color"], marker=marker, markersize=3, linewidth=1.3, zorder=3)[0].hue = hue
    if len(curves) > 1:
        axis.fill_between(steps, values.min(0), values.max(0), color=look["color"], alpha=0.18, linewidth=0, zorder=1)
