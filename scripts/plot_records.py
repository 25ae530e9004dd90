"""What plot.py draws: runs read from HDF5, chosen by key and value, and what was measured on them."""

import difflib
import os
import re
import sys

import h5py
import numpy as np

SLICE_AXES = ("overwrites", "distance", "segment")
ACCURACY = re.compile(r"(test|valid)_(accuracy|(\w+)_rate)$")

NEEDED_WITH = {  # what a dataset cannot be read without
    "train/loss": ["train/step"],
    "eval/answers": [f"eval/{name}" for name in ("eval_step", "answer_class", "slice_label", "slice_split", "slice_overwrites",
                                                 "slice_distance_from", "slice_distance_to", "slice_segment")],
}
DAMAGED = (OSError, KeyError, ValueError, RuntimeError, TypeError, AttributeError)  # what h5py and its users say of a file that lacks parts

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
        self.layers, self.sweep = {}, None  # the options of each layer, {"model.layers.1.kernel": 8}; where the run stands
        self.bases = ()  # keys that its sweep set and its own record does not hold: several settings under one name
        for i, layer in enumerate(layers_of(self.config.get("model.layers")) or ()):
            shared = f"mixers.{layer['mixer']}."
            options = {key.removeprefix(shared): value for key, value in self.config.items() if key.startswith(shared)}
            self.layers.update({f"model.layers.{i}.{option}": value for option, value in {**options, **layer}.items()})

    def choice(self, key):
        """What was chosen under this key, by the names that compare takes too; None for what was measured."""
        if key == "sweep" and self.sweep:
            return self.sweep
        return self.config.get(key, self.layers.get(key, self.config.get(f"{key}.name")))

    def choices(self):
        """The config, with the options of each layer in place of the mixers and theirs."""
        of_mixers = ("model.layers", "model.mixer", "mixers.") if self.layers else ()
        return {key: value for key, value in self.config.items() if not key.startswith(of_mixers)} | self.layers

    def value(self, key):
        chosen = self.choice(key)
        return self.summary.get(key) if chosen is None else chosen

    def columns(self, *paths):
        if self.file is None:
            raise PlotError(f"run {self.run_id}: its run.h5 is needed for this plot, and only sweep.h5 was given")
        try:
            with h5py.File(self.file, "r", locking=False) as file:
                return [read_column(file[path]) if path in file else None for path in paths]
        except DAMAGED as error:
            raise PlotError(f"'{self.file}' is damaged ({reason(error)})")


def reason(error):
    return error.args[0] if isinstance(error, KeyError) and error.args else error


def read_or_tell(read, path, *more):
    """What is read from a file; None of a damaged one, which is told."""
    try:
        return read(path, *more)
    except DAMAGED as error:
        print(f"plot.py: left out: '{path}' is damaged ({reason(error)})", file=sys.stderr)
        return None


def plain(value):
    """A numpy scalar as Python's own; whole floats stay floats."""
    return value.item() if isinstance(value, np.generic) else value


def read_column(dataset):
    return dataset.asstr()[()] if h5py.check_string_dtype(dataset.dtype) else dataset[()]


def split_values(text):
    """At commas outside of brackets: "[base_conv, softmax], delta" has two items."""
    items, depth = [""], 0
    for sign in text:
        depth += (sign in "[{") - (sign in "]}")
        if sign == "," and depth == 0:
            items.append("")
        else:
            items[-1] += sign
    return [item.strip() for item in items]


def plain_word(text):
    """A number in words as a number."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def layers_of(value):
    """Each layer's mixer and options of its own: "[{mixer: base_conv, kernel: 3}, delta]"; None of any other value."""
    if not isinstance(value, str) or not (value.startswith("[") and value.endswith("]")):
        return None
    layers = []
    for item in split_values(value[1:-1]):
        if not item.startswith("{"):
            item = f"{{mixer: {item}}}"
        options = dict((word.strip() for word in option.partition(":")[::2]) for option in split_values(item[1:-1]))
        layers.append({"mixer": "–", **{name: plain_word(word) for name, word in options.items()}})
    return layers


def read_run(path, swept={}):
    """A run, with what its sweep set under keys that its own record does not hold."""
    with h5py.File(path, "r", locking=False) as file:
        if file.attrs.get("format") != "palimpsest-run":
            raise PlotError(f"'{path}' is not the file of a run")
        config = {key: plain(value) for key, value in file["config"].attrs.items()}
        summary = {name: plain(item[()]) for name, item in file["summary"].items()}
        units = {name: item.attrs.get("units", "") for name, item in file["summary"].items()}
        run_id = file.attrs["run_id"]
        for name, others in NEEDED_WITH.items():
            for other in others if name in file else ():
                file[other]  # a KeyError where it is missing
        of_sweep = swept.get(run_id, {})
        run = Run(run_id, {**of_sweep, **config}, summary, units, file["provenance"].attrs.get("commit", ""), path)
        run.bases = tuple(key for key in of_sweep if key not in config)
        return run


def format_of(path):
    with h5py.File(path, "r", locking=False) as file:
        return file.attrs.get("format", "")


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
            chosen = {name: plain(column[i]) for name, column in config.items()}
            chosen = {name: value for name, value in chosen.items() if value != "" and value == value}  # a run has no "" and no NaN
            rows.append(Run(run_id, chosen, values, {}, "", None))
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


def place_of(name, results):
    """What a name stands for, as for the verbs of palimpsest: a file or folder from here or from the results, or the beginning of a
    run's id, of its folder's name or of its path from the results. What holds runs goes before what only happens to be called so.
    """
    there = [path for path in (name, os.path.join(results, name)) if name and os.path.exists(path)]
    holding = [path for path in there if os.path.isfile(path) or {"run.h5", "sweep.h5", "manifest.yaml"} & set(os.listdir(path))]
    if there:
        return (holding or there)[0]
    runs = [os.path.dirname(file) for file in find_files(results)]
    found = [run for run in runs if name and any(path.startswith(name) for path in (os.path.basename(run), os.path.relpath(run, results)))]
    exact = [run for run in found if os.path.basename(run) == name]
    if len(exact or found) == 1:
        return (exact or found)[0]
    if found:
        raise PlotError(f"'{name}' may be any of {len(found)} runs: {', '.join(found[:10])}{', …' * (len(found) > 10)}")
    near = difflib.get_close_matches(name, os.listdir(results) if os.path.isdir(results) else (), 1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    raise PlotError(f"no such file or folder: '{name}', and no sweep or run of that name in '{results}'{hint}")


def sweep_of(file, path, paths):
    """Where a run stands: the folder that was named, or the one above the run as seen from there."""
    names = [os.path.basename(os.path.abspath(named)) for named in paths]
    name = os.path.basename(os.path.abspath(path)) if len(set(names)) == len(names) else path
    above = os.path.relpath(os.path.dirname(os.path.dirname(file)), path) if os.path.isdir(path) else "."
    if above in (".", ".."):
        return name
    return above if len(paths) == 1 else f"{name}/{above}"


def read_paths(paths):
    runs, order, seen, sweeps = [], {}, set(), {}

    def rows_in(folder):
        """The rows of the sweep.h5 there, if there is one."""
        path = os.path.join(folder, "sweep.h5")
        if (real := os.path.realpath(path)) not in sweeps:
            sweeps[real] = os.path.exists(path) and read_or_tell(read_sweep, path) or []
        return sweeps[real]

    for path in paths:
        files = []
        if os.path.isdir(path):
            sweep, rows, files = os.path.join(path, "sweep.h5"), rows_in(path), find_files(path)
            order.update({row.run_id: len(order) + i for i, row in enumerate(rows)})
            if not files and not os.path.exists(sweep):
                raise PlotError(f"'{path}' holds no run.h5 and no sweep.h5")
            if not files:
                runs += rows
                for row in rows:
                    row.sweep = sweep_of(sweep, os.path.join(path, "."), paths)
        elif not os.path.isfile(path):
            raise PlotError(f"no such file or folder: '{path}'")
        elif (form := read_or_tell(format_of, path)) == "palimpsest-sweep":
            runs += read_or_tell(read_sweep, path) or []
        elif form is not None:
            files = [path]
        for file in files:
            if os.path.realpath(file) in seen:
                continue
            seen.add(os.path.realpath(file))
            beside = rows_in(os.path.dirname(os.path.dirname(os.path.realpath(file))))
            if run := read_or_tell(read_run, file, {row.run_id: row.config for row in beside}):
                run.sweep = sweep_of(file, path, paths)
                runs.append(run)
    unique = {run.run_id: run for run in reversed(runs)}
    for run in runs:
        if run is not unique[run.run_id]:
            print(f"plot.py: the run {run.run_id} stands in '{unique[run.run_id].file}' and in '{run.file}'; the first counts", file=sys.stderr)
    return sorted(reversed(unique.values()), key=lambda run: order.get(run.run_id, len(order)))


# ------ choosing


def check_key(key, runs, what, extra=(), config=True, summary=True):
    """The key by its full name ("task" is "task.name"); an error where no run has it."""
    known = {name for run in runs for name in (*(run.config if config else ()), *(run.summary if summary else ()))} | set(extra)
    if config:
        known |= {"sweep"} | {name for name in ("task",) if f"{name}.name" in known}
    if key in known or (config and any(key in run.layers for run in runs)):
        return key if key == "sweep" or any(key in run.config for run in runs) or f"{key}.name" not in known else f"{key}.name"
    known = sorted(known)
    near = difflib.get_close_matches(key, known, 1)
    hint = f"; did you mean '{near[0]}'?" if near else "."
    raise PlotError(f"no run has '{key}' ({what}){hint} There are: {', '.join(known)}")


def matches(value, text):
    """Whether the value is one of those in the text, as for compare: numbers as numbers, spaces do not count."""
    if value is None:
        return False

    def same(wanted):
        try:
            return float(value) == float(wanted)
        except ValueError:
            return str(value).replace(" ", "") == wanted.replace(" ", "")

    return any(same(wanted) for wanted in split_values(text))


def apply_filters(runs, filters):
    for text in filters:
        key, equals, wanted = text.partition("=")
        if not equals:
            raise PlotError(f"--filter wants key=value, got '{text}'")
        key = check_key(key, runs, "--filter")
        kept = [run for run in runs if matches(run.value(key), wanted)]
        if not kept:
            values = {run.value(key) for run in runs}
            values = ", ".join(sorted(value if layers_of(value) else format_value(value) for value in values))
            raise PlotError(f"no run has {key}={wanted}; its values are: {values}")
        runs = kept
    return runs


def varying(runs, by_layer=False):
    """Config keys with more than one value, in order of the config, without the seed; the mixers as one value or layer by layer."""
    keys = list(dict.fromkeys(key for run in runs for key in (run.choices() if by_layer else run.config)))
    keys = [key for key in keys if key not in ("seed", "name") and (by_layer or not key.startswith("model.layers"))]
    return [key for key in keys if len({str(run.choice(key)) for run in runs}) > 1]


def distinct(runs, key):
    return list(dict.fromkeys(run.value(key) for run in runs)) if key else [None]


def having(runs, key, value):
    return runs if key is None else [run for run in runs if run.value(key) == value]


def mixer_key(free):
    """The key that says which mixers a run has, of every layer or layer by layer, where they vary."""
    return "model.mixer" if "model.mixer" in free else None


def choose_axes(options, runs):
    """Hue and panel where the user left them open: mixers by colour, tasks by panel. Notes what else varies: that is averaged over."""
    free = varying(runs, any(axis and axis.startswith("model.layers.") for axis in (options.x, options.hue, options.panel)))
    axes = [axis for axis in (options.x, options.hue, options.panel) if axis]
    if options.hue is None and options.x not in ("model.mixer", "model.layers"):
        everywhere = [key for key in free if all(run.choice(key) is not None for run in runs) and not follows(runs, key, axes)]
        options.hue = mixer_key(free) or next(iter(everywhere), None)
    if options.panel is None and "task.name" in free and not {"task", "task.name"} & {options.x, options.hue}:
        options.panel = "task.name"
    axes, mixed = [axis for axis in (options.x, options.hue, options.panel) if axis], []
    for key in free:
        if not follows(runs, key, [*axes, *mixed]):
            mixed.append(key)
    if mixed and not is_measured(options.x, runs):
        options.notes.append(f"averaged over {', '.join(mixed)}")
        print(f"plot.py: averaged over {', '.join(mixed)}; --filter or --panel takes them apart", file=sys.stderr)


def follows(runs, key, axes, choice=Run.choice):
    """Whether the axes already determine the key, as the options of a mixer follow from the mixer."""
    seen = {}
    for run in runs:
        place, value = tuple(str(choice(run, axis)) for axis in axes), str(choice(run, key))
        if seen.setdefault(place, value) != value:
            return False
    return True


# ------ words


def format_value(value):
    if isinstance(value, float):
        return f"{value:g}"
    if layers := layers_of(value):
        return in_short(layers)
    return "–" if value is None else str(value)


def in_short(layers, shown=None):
    """"base_conv kernel=3 + delta", with all options or those that are to be shown; one name where all layers are the same."""
    def name(i, layer):
        options = [option for option in layer if option != "mixer" and (shown is None or (i, layer["mixer"], option) in shown)]
        return " ".join([str(layer["mixer"]), *(f"{option}={layer[option]}" for option in options)])

    names = [name(i, layer) for i, layer in enumerate(layers)]
    return names[0] if len(set(names)) == 1 else " + ".join(names)


def differing_options(lists):
    """Of lists of layers: the options that are not the same wherever a layer has this mixer, as (layer, mixer, option)."""
    found = {}
    for layers in lists:
        for i, layer in enumerate(layers):
            same = [other[i] for other in lists if i < len(other) and other[i]["mixer"] == layer["mixer"]]
            found.update({(i, layer["mixer"], option): len({other.get(option) for other in same}) > 1 for option in layer})
    return sorted(place for place, differs in found.items() if differs)


def labels_of(runs, key):
    """{value: label} for a key of the picture: the shortest way to write its values that tells them apart. Of layers with options that is
    the mixers alone, or the options that differ, or both.
    """
    values = distinct(runs, key)
    if not key:
        return {None: None}
    lists = {value: layers for value in values if (layers := layers_of(value))}
    differing = differing_options(list(lists.values()))
    mixers = {tuple(layer["mixer"] for layer in layers) for layers in lists.values()}
    ways = [lambda layers: in_short(layers, ()), lambda layers: in_short(layers, differing), in_short]
    if len(mixers) == 1 and len(lists) == len(values):
        named = [(i, option, f"layers.{i}.{option}") for i, _, option in differing]
        ways.insert(1, lambda layers: " ".join(f"{name}={layers[i][option]}" for i, option, name in named if option in layers[i]))
    for way in ways:
        labels = {value: way(lists[value]) if value in lists else format_value(value) for value in values}
        if all(labels.values()) and len(set(labels.values())) == len(values):
            return labels
    return {value: str(value) for value in values}


def words(key, runs=()):
    if key in WORDS:
        return WORDS[key]
    if found := re.fullmatch(r"model\.layers\.(\d+)\.(.+)", key):
        return f"{found.group(2).replace('_', ' ')} of layer {found.group(1)}"
    unit = next((run.units[key] for run in runs if run.units.get(key)), "")
    name = key.rsplit(".", 1)[-1].replace("_", " ")
    return f"{name} ({unit})" if unit not in ("", "1") else name


def is_measured(key, runs):
    """A summary value, not a choice: it may differ between seeds."""
    return key is not None and runs[0].choice(key) is None and key in runs[0].summary


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)
