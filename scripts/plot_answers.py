"""What was measured on a run's answers, by slice of the questions, for plot.py."""

import re
import sys

import numpy as np

from plot_records import ACCURACY, PlotError, is_number


def same_but_seed(runs):
    groups = {}
    for run in runs:
        rest = tuple(sorted((key, str(value)) for key, value in run.config.items() if key not in ("seed", "name")))
        groups.setdefault(rest, []).append(run)
    return list(groups.values())


def drop_unmeasured(runs, keys):
    def measured(value):
        return value is not None and (not is_number(value) or np.isfinite(value))

    kept = [run for run in runs if all(measured(run.value(key)) for key in keys)]
    if len(kept) < len(runs):
        print(f"plot.py: left out: {len(runs) - len(kept)} of {len(runs)} runs have no {' or '.join(keys)} (yet)", file=sys.stderr)
    if not kept:
        raise PlotError(f"no run has both {' and '.join(keys)}" if len(keys) > 1 else f"no run has {keys[0]} yet")
    return kept


def drop_unasked(runs):
    """Without those that were never evaluated; an error when that leaves none."""
    def asked(run):
        counts, = run.columns("eval/answers")  # of a sweep.h5 alone there are none, and that is said here
        return counts is not None and len(counts) > 0

    kept = [run for run in runs if asked(run)]
    if not kept:
        raise PlotError(f"run {runs[0].run_id} has no evaluation")
    if len(kept) < len(runs):
        print(f"plot.py: left out: {len(runs) - len(kept)} of {len(runs)} runs have no evaluation (yet)", file=sys.stderr)
    return kept


class Answers:
    """Counts of the last evaluation, [slices, classes], and the coordinates of the slices."""

    def __init__(self, run):
        counts, self.classes, policies, self.labels, split = run.columns(
            "eval/answers", "eval/answer_class", "eval/policy_answers", "eval/slice_label", "eval/slice_split")
        if counts is None or len(counts) == 0:
            raise PlotError(f"run {run.run_id} has no evaluation")
        self.counts, self.classes = counts[-1], list(self.classes)
        # [policies, slices, classes]; -1 in slices where a policy is no shortcut and was not scored.
        self.policies = policies if policies is not None and (policies >= 0).any() else None
        self.overwrites, self.low, self.high, self.segment = run.columns(
            "eval/slice_overwrites", "eval/slice_distance_from", "eval/slice_distance_to", "eval/slice_segment")
        self.splits = {"valid": split == 0, "test": split == 1}

    def positions(self, axis):
        """What each slice is on an axis: a value to sort by and its words."""
        if axis == "overwrites":
            return [(int(n), str(n)) for n in self.overwrites]
        if axis == "distance":
            return [(int(a), str(a) if a == b else f"{a}–{b}") for a, b in zip(self.low, self.high)]
        if axis.startswith("task."):  # an option of the segments
            return [number_of(segment_options(label).get(axis[5:], "")) for label in self.labels]
        return [(int(s), segment_words(label, s)) for s, label in zip(self.segment, self.labels)]

    def of_segments(self, wanted):
        """Which slices lie in a segment that has all of these options ("length=64 pairs=4")."""
        options = [dict(word.partition("=")[::2] for word in text.split()) for text in wanted]
        return np.array([any(chosen.items() <= segment_options(label).items() for chosen in options) for label in self.labels]) if wanted else True

    def best_policy(self, rows):
        """Correct share of the best shallow policy: in each segment the best of those scored there. None where none was."""
        right = asked = 0
        for segment in np.unique(self.segment[rows]):
            here = rows & (self.segment == segment)
            scored = [(counts[:, 0].sum(), counts.sum()) for counts in self.policies[:, here] if (counts >= 0).all()]
            if not scored:
                return None
            best = max(scored, key=lambda share: share[0])
            right, asked = right + best[0], asked + best[1]
        return right / asked


def segment_label(label):
    found = re.fullmatch(r"(?:valid|test) (.*) overwrites=\S+ distance=\S+", label)
    return found.group(1) if found else ""


def segment_words(label, index):
    return segment_label(label).replace(" ", "\n") or str(index)


def segment_options(label):
    return dict(word.partition("=")[::2] for word in segment_label(label).split())


def number_of(text):
    """A place on an axis: (number to sort by, words)."""
    try:
        return (float(text), text)
    except ValueError:
        return (float("inf"), text or "–")


def varies_by_segment(key, runs):
    """Whether the test's segments set this option of the task themselves, so that the run as a whole has no value of it."""
    name = re.escape(key.removeprefix("task."))
    return key.startswith("task.") and any(re.fullmatch(rf"task\.test\.\d+\.{name}", known) for run in runs for known in run.config)


def pooled_segments(runs, metric, axis, wanted):
    """Labels of the segments that share a place on the axis, where several do."""
    pooled = set()
    for run in runs:
        answers = Answers(run)
        chosen = answers.splits[ACCURACY.match(metric).group(1)] & answers.of_segments(wanted)
        at = {}
        for place, label, keep in zip(answers.positions(axis), answers.labels, chosen):
            if keep:
                at.setdefault(place, set()).add(segment_label(label))
        pooled |= {label for labels in at.values() if len(labels) > 1 for label in labels}
    return sorted(pooled)


def by_slice(run, metric, axis, wanted=()):
    """Rate of the metric's answer class along an axis of the slices: {position: rate}, and the same for the best shallow policy."""
    found = ACCURACY.match(metric)
    if not found:
        raise PlotError(f"--x {axis} needs --y test_accuracy, valid_accuracy, or a rate of answers such as test_stale_rate, not '{metric}'")
    answers = Answers(run)
    name = found.group(3) or "correct"
    if name not in answers.classes:
        raise PlotError(f"no answer class '{name}'; there are: {', '.join(answers.classes)}")
    column, chosen = answers.classes.index(name), answers.splits[found.group(1)] & answers.of_segments(wanted)
    if not np.any(chosen):
        labels = sorted({segment_label(label) for label, keep in zip(answers.labels, answers.splits[found.group(1)]) if keep})
        raise PlotError(f"no segment has {' or '.join(wanted)}; there are: {'; '.join(labels)}")
    rates, policies = {}, {}
    places = answers.positions(axis)
    for place in sorted(set(place for place, keep in zip(places, chosen) if keep)):
        rows = np.array([p == place and keep for p, keep in zip(places, chosen)])
        rates[place] = answers.counts[rows, column].sum() / answers.counts[rows].sum()
        if name == "correct" and answers.policies is not None and (best := answers.best_policy(rows)) is not None:
            policies[place] = best
    return rates, policies
