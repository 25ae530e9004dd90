"""What plot.py draws with: lines, bands and bars of several runs, scales, the legend and the note that says what the marks mean."""

import re
import warnings

import numpy as np

from plot_records import ACCURACY, PlotError, labels_of, words

# Okabe and Ito's colours, told apart by colour-blind readers; markers tell them apart in grey.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#7F6A00", "#333333", "#999999"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*", "p"]
POLICY_STYLE = {"color": "#555555", "linestyle": (0, (4, 2)), "linewidth": 1.1}


def style(index):
    return {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)]}


LONGEST = 26  # signs in a line of a legend or of a label
WIDEST = 60  # inches of a page


def wrap(text, width=LONGEST):
    """Broken into lines at spaces; within a longer word after signs that divide it, else anywhere."""
    lines = []
    for line in text.split("\n"):
        lines.append("")
        for word in re.split(r"(?<= )", line):
            parts = [word] if len(word.rstrip()) <= width else re.findall(r".+?[,/_+=.:-]+|.+", word)
            for part in (part[i:i + width] for part in parts for i in range(0, len(part), width)):
                if lines[-1] and len((lines[-1] + part).rstrip()) > width:
                    lines[-1:] = [lines[-1].rstrip(), ""]
                lines[-1] += part
    return "\n".join(lines)


def add_legend(axes, options, runs, policy):
    """One legend over all panels, in the order of the hues, beside the last."""
    found = {}
    for axis in axes.flat:
        for handle in (*axis.lines, *axis.containers):
            if (hue := getattr(handle, "hue", None)) is not None:
                found.setdefault(hue, handle)
    labels = [label for label in labels_of(runs, options.hue).values() if label in found]
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
            text.set_text(wrap(label))


def add_note(figure, options, counts, marks):
    """What the marks of several runs mean, and what is averaged over, small below the picture. counts: runs behind each mark."""
    marks = [marks.format(runs=runs_in_words(counts))] if max(counts, default=1) > 1 else []
    if text := "; ".join([*marks, *options.notes]):
        width = int(figure.get_size_inches()[0] / 0.055)
        figure.supxlabel(wrap(text, width), fontsize=7, color="#666666", x=0.01, ha="left")


# ------ room for every text


def touching(texts, renderer, gap=1):
    """Whether of neighbours in a row or column two overlap. Of slanted ones their feet have to keep apart."""
    texts = [text for text in texts if text.get_text() and text.get_visible()]
    boxes = [text.get_window_extent(renderer) for text in texts]
    if texts and texts[0].get_rotation() % 90:
        least = 2.4 * renderer.points_to_pixels(texts[0].get_fontsize())
        ends = sorted(box.x1 for box in boxes)
        return any(right - left < least for left, right in zip(ends, ends[1:]))
    return any(a.padded(gap).overlaps(b) for a, b in zip(boxes, boxes[1:]))


def lacking(figure):
    """The inches of width and height that the page lacks for its texts to lie inside, apart, and to leave the axes their least size."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        figure.draw_without_rendering()
    if any("layout not applied" in str(warning.message) for warning in said):
        return 1.0, 1.0
    renderer, page, dpi = figure.canvas.get_renderer(), figure.bbox, figure.dpi
    rows, columns = figure.axes[0].get_gridspec().get_geometry()
    boxes = [axis.get_tightbbox(renderer) for axis in figure.axes]
    boxes += [figure._supxlabel.get_window_extent(renderer)] if figure._supxlabel else []
    wide = max(max(page.x0 - box.x0, 0) + max(box.x1 - page.x1, 0) for box in boxes) / dpi
    high = max(max(page.y0 - box.y0, 0) + max(box.y1 - page.y1, 0) for box in boxes) / dpi
    for axis, (least_width, least_height) in zip(figure.axes, figure.least):
        box = axis.get_window_extent(renderer)
        wide = max(wide, columns * (least_width - box.width / dpi))
        high = max(high, rows * (least_height - box.height / dpi))
        ticks = axis.get_xticklabels()
        if touching(ticks, renderer):
            if ticks[0].get_rotation() or any("\n" in text.get_text() for text in ticks):
                wide = max(wide, 0.5 * columns)
            else:
                axis.tick_params(axis="x", rotation=30)
                for text in ticks:
                    text.set(ha="right", rotation_mode="anchor")
                wide = max(wide, 0.01)  # looks anew
        if touching(axis.get_yticklabels(), renderer, 0):
            high = max(high, 0.3 * rows)
    for texts in ([axis.title for axis in figure.axes], [axis.xaxis.label for axis in figure.axes]):
        if touching(texts, renderer):
            wide = max(wide, 0.5 * columns)
    if touching([axis.yaxis.label for axis in figure.axes], renderer):
        high = max(high, 0.3 * rows)
    return wide, high


def make_room(figure):
    """Lays the figure out, and enlarges the page until every text has its room."""
    while max(lack := lacking(figure)) > 0.005:
        size = figure.get_size_inches() + [1.05 * inches for inches in lack]
        if max(size) > WIDEST:
            raise PlotError(f"the labels have no room on a page of {WIDEST} inches; --filter takes fewer runs, --hue another key")
        figure.set_size_inches(size)


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


def draw_bars(axis, place, values, look, width, hue, crowded):
    """One bar: mean, deviation as a whisker, single runs as dots, the mean in figures above, upright where bars are narrow."""
    mean, deviation = mean_and_deviation(values)
    axis.bar(place, mean, width * 0.9, color=look["color"], alpha=0.55, zorder=2).hue = hue
    top = max(values)
    if len(values) > 1:
        axis.errorbar(place, mean, deviation, color=look["color"], linewidth=1.2, capsize=2, zorder=3)
        offsets = np.linspace(-0.22, 0.22, len(values)) * width
        axis.plot(place + offsets, values, "o", color=look["color"], markersize=3, markeredgecolor="white", markeredgewidth=0.4, zorder=4)
        top = max(top, mean + deviation)
    text = axis.annotate(short(mean), (place, top), (0, 2), textcoords="offset points", ha="center", va="bottom", fontsize=7)
    text.set(zorder=6, rotation=90 if crowded else 0, color="#333333", bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})


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
