"""The best value of a key, as `palimpsest compare --best-over` chooses it."""

import re

import numpy as np

from plot_records import PlotError, check_key, follows, format_value, is_number, varying

# Two runs that differ in these alone are one run. No record tells which they are: these are the schemas' (src/config/sections.cpp).
NO_OTHER_RUN = ("name", "train.eval_batch", "data.check_overlap", "eval.policies", "run.device", "run.threads", "run.log_every",
                "run.flush_seconds", "run.checkpoint_every")


def valid_questions(run):
    """What decides which questions the valid split asks, by key, as for compare; accuracies on other questions do not compare."""
    def segments(split):
        found = {}
        for key, value in run.config.items():
            if name := re.fullmatch(rf"task\.{split}\.(\d+)\.(.+)", key):
                found.setdefault(int(name.group(1)), {})[name.group(2)] = value
        return found

    of_task = {key[5:]: value for key, value in run.config.items() if re.fullmatch(r"task\.[^.]+", key)}
    shared = {option: value for option, value in of_task.items() if option not in ("name", "train", "valid", "test")}
    as_train = of_task.get("valid") == "train"  # of their options, with a number of examples that is always the same
    asked = segments("valid") or segments("train" if as_train else "test")
    asked = asked or {0: {"valid": of_task.get("valid")}}  # of a sweep.h5 alone: what varies is all that is known
    questions = {key: run.choice(key) for key in ("task.name", "data.seed", "eval.mean")}
    for number, own in asked.items():
        questions |= {f"task.{option} of segment {number}": value for option, value in {**shared, **own}.items()
                      if not (as_train and option == "examples")}
    return questions


def differing_question(candidates):
    """A key of the questions that the candidates do not share; None where all answered the same."""
    asked = []
    for tried in candidates:
        asked.append({})
        for key, value in (entry for run in tried for entry in valid_questions(run).items()):
            asked[-1].setdefault(key, set()).add(str(value))
    differing = {key for other in asked for key in (*asked[0], *other) if asked[0].get(key) != other.get(key)}
    return "task.name" if "task.name" in differing else min(differing, default=None)


class Settings:
    """What makes the runs different ones, for a choice over some keys: `free` is all that varies beside these and the seeds, `rows` what is
    to be kept apart, as compare keeps it. Not apart: what follows from the rest, as the options of a schedule do from the schedule.
    """

    def __init__(self, runs, over):
        self.chosen, mixers = {}, {"model.mixer", "model.layers"}
        for run in runs:
            config = run.choices()
            if mixers & set(over):
                config = {key: value for key, value in run.config.items() if key not in mixers}
            self.chosen[run.run_id] = {**config, **{key: run.choice(key) for key in over}}
        all_keys = dict.fromkeys(key for chosen in self.chosen.values() for key in chosen)
        self.free = [key for key in all_keys if key not in ("seed", *NO_OTHER_RUN, *over) and not follows(runs, key, (), self.value)]
        bases = [key for key in (*over, *self.free) if any(key in run.bases for run in runs)]
        held = [key for key in self.free if all(key in chosen for chosen in self.chosen.values())]
        self.rows = [key for key in held if key in bases or not follows(runs, key, bases, self.value)]
        given = [*over, *self.rows]
        self.rows += [key for key in self.free if key not in held and not follows(runs, key, given, self.value)]

    def value(self, run, key):
        return self.chosen[run.run_id].get(key)

    def differing(self, candidates):
        """Keys that all the runs have, and not all candidates alike: a choice among them is one of these too."""
        found = []
        for key in self.free:
            values = [{str(self.value(run, key)) for run in tried} for tried in candidates]
            if "None" not in set().union(*values) and any(other != values[0] for other in values):
                found.append(key)
        return found


def best_over(runs, keys):
    """Of runs that differ in `keys` and seeds alone, those at the values with the best mean valid accuracy, and what is to be said of each
    choice. The rules and the words are those of compare --best-over (src/store/compare.cpp): the test questions have no say, the first of
    equals wins, and what would pick luck is refused.
    """
    keys = list(dict.fromkeys(check_key(key, runs, "--best-over", summary=False) for key in keys))
    for key in keys:
        if key == "seed":
            raise PlotError("--best-over seed would pick luck: a seed is no setting. The mean over seeds is taken by itself")
        if key in NO_OTHER_RUN:
            raise PlotError(f"--best-over {key} would pick luck: {key} makes no other run")
    settings, groups = Settings(runs, keys), {}
    for run in runs:
        group = groups.setdefault(tuple(str(settings.value(run, key)) for key in settings.rows), {})
        group.setdefault(tuple(run.choice(key) for key in keys), []).append(run)
    best, said, names = [], [], ", ".join(keys)
    by_layer = any(key.startswith("model.layers.") for key in settings.rows)
    shown = [key for key in varying(runs) if key in settings.rows or (by_layer and key == "model.mixer")]
    for candidates in groups.values():
        one = next(iter(candidates.values()))[0]
        who = " ".join(format_value(one.choice(key)) for key in shown if one.choice(key) is not None) + ": " if shown else ""
        if asked := differing_question(candidates.values()):
            raise PlotError(f"{who}the values of {names} were tried on different questions ({asked} differs), so their accuracies do not "
                            "compare; --filter takes them apart")
        judged = {value: [run.summary.get("valid_accuracy", np.nan) for run in tried] for value, tried in candidates.items()}
        judged = {value: [accuracy for accuracy in found if np.isfinite(accuracy)] for value, found in judged.items()}
        means = {value: np.mean(found) for value, found in judged.items() if found}
        if not means:
            said.append(f"note: {who}no run has a valid_accuracy yet: nothing was chosen")
            continue
        winner = max(means, key=means.get)  # the first of equals
        best += candidates[winner]
        in_words = {value: ", ".join(map(format_value, value)) for value in candidates}
        chosen = ", ".join(f"{key}={format_value(value)}" for key, value in zip(keys, winner))
        missing = sum(len(tried) - len(judged[value]) for value, tried in candidates.items())
        without = f"; {missing} run{'s have' if missing > 1 else ' has'} none" if missing else ""
        count = f"{len(candidates)} candidate{'s' * (len(candidates) > 1)}"
        said.append(f"{who}{chosen}: chosen among {count} by the mean valid_accuracy {means[winner]:.3f}{without}")
        tied = [in_words[value] for value, mean in means.items() if abs(mean - means[winner]) < 1e-12]
        if len(tied) > 1:
            said.append(f"note: {who}{names} {' and '.join(tied)} tie at {means[winner]:.4f}; the first is shown")
        for key, value, tried in zip(keys, winner, zip(*candidates)):
            numbers = {other for other in tried if is_number(other)}
            if is_number(value) and len(numbers) > 1 and value in (min(numbers), max(numbers)):
                end = "largest" if value == max(numbers) else "smallest"
                said.append(f"note: {who}best {key} {format_value(value)} is the {end} tried")
        if len(judged[winner]) < len(candidates[winner]):
            said.append(f"note: {who}{names} {in_words[winner]} was judged by {len(judged[winner])} of its {len(candidates[winner])} runs")
        if others := settings.differing(candidates.values()):
            said.append(f"note: {who}the candidates differ in {', '.join(others)} too")
    order = {id(run): i for i, run in enumerate(runs)}
    return sorted(best, key=lambda run: order[id(run)]), said
