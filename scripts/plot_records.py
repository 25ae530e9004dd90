"""What plot.py draws: runs read from HDF5, chosen by key and value, and what was measured on them."""

import difflib
import os
import re
import sys

import h5py
import numpy as np

SLICE_AXES = ("overwrites", "distance", "segment")
ACCURACY = re.compile(r"(test|valid)_(accuracy|(\w+)_rate)$")

WORDS = {
    "distance": "distance since the last write (tokens)",
    "model.mixer": "mixer",
    "model.layers": "mixer",
    "overwrites": "overwrites before the read",
    "segment": "test segment",
    "state_bytes": "state (bytes)",
    "parameters": "parameters",
    "seconds": "training time (s)",
    "task.name": "task",
    "tokens_per_second": "training speed (tokens/s)",
    "train.lr": "learning rate",
}


class PlotError(Exception):
    """The user's mistake, said in one line."""


# ------ reading


class Run:
    """One run's config, summary and place; its curves and answers are read when asked for."""

    def __init__(self, run_id, config, summary, units, commit, file):
        self.run_id, self.config, self.summary, self.units, self.commit, self.file = run_id, config, summary, units, commit, file
        # Where layers are given they are the mixers, whatever an older record says beside them.
        if self.config.get("model.layers", "[]") != "[]":
            self.config["model.mixer"] = self.config["model.layers"]
        elif "model.layers" in self.config:
            del self.config["model.layers"]

    def value(self, key):
        if key in self.config:
            return self.config[key]
        return self.summary.get(key)

    def columns(self, *paths):
        if self.file is None:
            raise PlotError(f"run {self.run_id}: its run.h5 is needed for this plot, and only sweep.h5 was given")
        with h5py.File(self.file, "r", locking=False) as file:
            return [read_column(file[path]) if path in file else None for path in paths]


def plain(value):
    """A numpy scalar as Python's own; whole floats stay floats."""
    return value.item() if isinstance(value, np.generic) else value


def read_column(dataset):
    return dataset.asstr()[()] if h5py.check_string_dtype(dataset.dtype) else dataset[()]


def read_run(path):
    with h5py.File(path, "r", locking=False) as file:
        if file.attrs.get("format") != "palimpsest-run":
            raise PlotError(f"'{path}' is not the file of a run")
        config = {key: plain(value) for key, value in file["config"].attrs.items()}
        summary = {name: plain(item[()]) for name, item in file["summary"].items()}
        units = {name: item.attrs.get("units", "") for name, item in file["summary"].items()}
        return Run(file.attrs["run_id"], config, summary, units, file["provenance"].attrs.get("commit", ""), path)


def read_sweep(path):
    """The rows of a sweep.h5: config keys that vary, and summaries."""
    with h5py.File(path, "r", locking=False) as file:
        if file.attrs.get("format") != "palimpsest-sweep":
            raise PlotError(f"'{path}' is not the file of a sweep")
        config = {name: read_column(item) for name, item in file["runs/config"].items() if name != "run_id"}
        summary = {name: item[()] for name, item in file["runs/summary"].items() if name != "run_id"}
        ids, present = read_column(file["runs/run_id"]), file["runs/present"][()]
        rows = []
        for i, run_id in enumerate(ids):
            values = {name: plain(column[i]) for name, column in summary.items() if np.isfinite(column[i])} if present[i] else {}
            rows.append(Run(run_id, {name: plain(column[i]) for name, column in config.items()}, values, {}, "", None))
        return rows


def find_files(path):
    """Every run.h5 below, behind links too; a folder that several paths lead to counts once."""
    found, seen = [], set()
    for folder, folders, files in os.walk(path, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders.sort(key=lambda name: (os.path.islink(os.path.join(folder, name)), name))  # what lies here, before what points here
        found += [os.path.join(folder, name) for name in files if name == "run.h5"]
    return found


def read_paths(paths):
    runs, order, seen = [], {}, set()
    for path in paths:
        if os.path.isdir(path):
            sweep = os.path.join(path, "sweep.h5")
            rows = read_sweep(sweep) if os.path.exists(sweep) else []
            order.update({row.run_id: len(order) + i for i, row in enumerate(rows)})
            files = find_files(path)
            if not files and not rows:
                raise PlotError(f"'{path}' holds no run.h5 and no sweep.h5")
            if not files:
                runs += rows
        elif os.path.isfile(path):
            files = [path]
            with h5py.File(path, "r", locking=False) as file:
                if file.attrs.get("format") == "palimpsest-sweep":
                    files = []
            if not files:
                runs += read_sweep(path)
        else:
            raise PlotError(f"no such file or folder: '{path}'")
        for file in files:
            if os.path.realpath(file) in seen:
                continue
            seen.add(os.path.realpath(file))
            try:
                runs.append(read_run(file))
            except OSError as error:
                print(f"plot.py: left out: '{file}' is damaged ({error})", file=sys.stderr)
    unique = {run.run_id: run for run in reversed(runs)}
    for run in runs:
        if run is not unique[run.run_id]:
            print(f"plot.py: the run {run.run_id} stands in '{unique[run.run_id].file}' and in '{run.file}'; the first counts", file=sys.stderr)
    return sorted(reversed(unique.values()), key=lambda run: order.get(run.run_id, len(order)))


# ------ choosing


def check_key(key, runs, what, extra=(), config=True):
    known = sorted({name for run in runs for name in (*(run.config if config else ()), *run.summary)} | set(extra))
    if key in known:
        return
    near = difflib.get_close_matches(key, known, 1)
    hint = f"; did you mean '{near[0]}'?" if near else "."
    raise PlotError(f"no run has '{key}' ({what}){hint} There are: {', '.join(known)}")


def matches(value, text):
    if value is None:
        return False
    try:
        return float(value) == float(text)
    except ValueError:
        return str(value) == text


def apply_filters(runs, filters):
    for text in filters:
        key, equals, wanted = text.partition("=")
        if not equals:
            raise PlotError(f"--filter wants key=value, got '{text}'")
        check_key(key, runs, "--filter")
        kept = [run for run in runs if matches(run.value(key), wanted)]
        if not kept:
            values = ", ".join(sorted({format_value(run.value(key)) for run in runs}))
            raise PlotError(f"no run has {key}={wanted}; its values are: {values}")
        runs = kept
    return runs


def varying(runs):
    """Config keys with more than one value, in order of the config, without the seed."""
    keys = list(dict.fromkeys(key for run in runs for key in run.config))
    return [key for key in keys if key not in ("seed", "name", "model.layers") and len({str(run.config.get(key)) for run in runs}) > 1]


def distinct(runs, key):
    return list(dict.fromkeys(run.value(key) for run in runs)) if key else [None]


def having(runs, key, value):
    return runs if key is None else [run for run in runs if run.value(key) == value]


def mixer_key(free):
    """The key that says which mixers a run has, of every layer or layer by layer, where they vary."""
    return "model.mixer" if "model.mixer" in free else None


def choose_axes(options, runs):
    """Hue and panel where the user left them open: mixers by colour, tasks by panel."""
    free = varying(runs)
    if options.hue is None and options.x not in ("model.mixer", "model.layers"):
        everywhere = [key for key in free if key not in (options.x, options.panel) and all(key in run.config for run in runs)]
        options.hue = mixer_key(free) or next(iter(everywhere), None)
    if options.panel is None and "task.name" in free and "task.name" not in (options.x, options.hue):
        options.panel = "task.name"
    mixed = [key for key in free if key not in (options.x, options.hue, options.panel) and not follows(runs, key, options)]
    if mixed and not is_measured(options.x, runs):
        print(f"plot.py: averaged over {', '.join(mixed)}; --filter or --panel takes them apart", file=sys.stderr)


def follows(runs, key, options):
    """Whether the axes already determine the key, as the options of a mixer follow from the mixer."""
    axes = [axis for axis in (options.x, options.hue, options.panel) if axis]
    seen = {}
    for run in runs:
        place, value = tuple(str(run.config.get(axis)) for axis in axes), str(run.config.get(key))
        if seen.setdefault(place, value) != value:
            return False
    return True


def best_over(runs, keys):
    """Of runs that differ in `keys` and seeds alone, those at the values with the best mean valid accuracy; and a line on each choice.

    The test questions have no say. A tie goes to the value that comes first.
    """
    for key in keys:
        check_key(key, runs, "--best-over")
    groups = {}
    for run in runs:
        rest = tuple(sorted((key, str(value)) for key, value in run.config.items() if key not in ("seed", "name", *keys)))
        groups.setdefault(rest, {}).setdefault(tuple(run.value(key) for key in keys), []).append(run)
    best, said = [], []
    for rest, candidates in groups.items():
        means = {value: np.mean([run.summary.get("valid_accuracy", np.nan) for run in group]) for value, group in candidates.items()}
        means = {value: mean for value, mean in means.items() if np.isfinite(mean)}
        if not means:
            continue
        winner = max(means, key=means.get)  # the first of equals
        best += candidates[winner]
        one = candidates[winner][0]
        name = format_value(one.value(mixer_key(varying(runs)) or "model.mixer"))
        chosen = ", ".join(f"{key}={format_value(value)}" for key, value in zip(keys, winner))
        said.append(f"{name}: {chosen} of {len(means)} by valid accuracy {means[winner]:.3f}")
    order = {id(run): i for i, run in enumerate(runs)}
    return sorted(best, key=lambda run: order[id(run)]), said


# ------ measuring


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


def format_value(value):
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str) and value.startswith("[") and value.endswith("]"):  # layers: one name where all are the same
        names = [name.strip() for name in value[1:-1].split(",")]
        return names[0] if len(set(names)) == 1 else " + ".join(names)
    return "–" if value is None else str(value)


def words(key, runs=()):
    if key in WORDS:
        return WORDS[key]
    unit = next((run.units[key] for run in runs if run.units.get(key)), "")
    name = key.rsplit(".", 1)[-1].replace("_", " ")
    return f"{name} ({unit})" if unit not in ("", "1") else name


def is_measured(key, runs):
    """A summary value, not a choice: it may differ between seeds."""
    return key is not None and key not in runs[0].config and key in runs[0].summary


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)
