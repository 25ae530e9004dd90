"""Run files with believable curves, made with h5py after docs/results_format.md, for the tests of the plots."""

import os

import h5py
import numpy as np

CLASSES = ["correct", "stale", "other_current", "other_former", "unbound", "not_a_value"]
POLICIES = ["last_write", "majority"]
STATE_BYTES = {"softmax": 65536, "linear": 8192, "delta": 8192, "gated_delta": 8192}
SKILL = {"softmax": 0.98, "linear": 0.45, "delta": 0.86, "gated_delta": 0.92}


def texts(group, name, values):
    group.create_dataset(name, data=np.array(values, dtype=object), dtype=h5py.string_dtype())


def write_run(folder, run_id, mixer, seed, task="overwrite", config=(), finished=True):
    os.makedirs(folder, exist_ok=True)
    rng = np.random.default_rng([seed, len(mixer), len(task)])
    skill = SKILL[mixer] * (1 if task == "mqar" else 0.9) + rng.normal(0, 0.015)
    path = os.path.join(folder, "run.h5")
    with h5py.File(path, "w") as file:
        file.attrs.update({"format": "palimpsest-run", "format_version": "1.0", "run_id": run_id})
        group = file.create_group("config")
        group.attrs.update({"task.name": task, "model.mixer": mixer, "model.width": 64, "train.lr": 1e-3, "seed": seed, **dict(config)})
        file.create_group("provenance").attrs["commit"] = "0123456789abcdef"

        step = np.arange(20, 2001, 20)
        train = file.create_group("train")
        train["step"] = step
        progress = 1 / (1 + np.exp(-(step - 700 - 60 * seed) / 150))
        train["loss"] = (4.1 * (1 - skill * progress) + rng.normal(0, 0.05, len(step))).clip(0.01).astype("f4")

        # Slices: both splits, two segments, 0..3 overwrites, two distance buckets.
        rows = [(split, segment, n, low, high) for split in (0, 1) for segment in (0, 1) for n in range(4) for low, high in ((1, 8), (9, 32), (33, 64))]
        evaluation = file.create_group("eval")
        eval_step = np.arange(200, 2001, 200)
        evaluation["eval_step"] = eval_step
        for i, name in enumerate(("split", "segment", "overwrites", "distance_from", "distance_to")):
            evaluation["slice_" + name] = np.array([row[i] for row in rows])
        labels = [f"{('valid', 'test')[s]} length={64 * (g + 1)} pairs={4 * (g + 1)} overwrites={n} distance={a}..{b}" for s, g, n, a, b in rows]
        texts(evaluation, "slice_label", labels)
        texts(evaluation, "answer_class", CLASSES)
        counts = np.zeros((len(eval_step), len(rows), len(CLASSES)), dtype="i8")
        for e, at in enumerate(eval_step):
            for s, (_, segment, n, low, _) in enumerate(rows):
                right = skill / (1 + np.exp(-(at - 700 - 60 * seed) / 150)) * (1 - 0.08 * n * (mixer != "softmax")) - 0.05 * segment - 0.001 * low
                right = max(right, 0.02)
                wrong, stale = 1 - right, (1 - right) * (0.6 if n else 0)
                counts[e, s] = np.round(1000 * np.array([right, stale, (wrong - stale) * 0.5, (wrong - stale) * 0.2, (wrong - stale) * 0.25, (wrong - stale) * 0.05]))
        evaluation["answers"] = counts
        texts(evaluation, "policy", POLICIES)
        policy = np.zeros((2, len(rows), len(CLASSES)), dtype="i8")
        policy[0, :, 0], policy[0, :, 1] = 340, 660
        policy[1, :, 0], policy[1, :, 5] = [400 - 50 * row[2] for row in rows], [600 + 50 * row[2] for row in rows]
        evaluation["policy_answers"] = policy

        summary = file.create_group("summary")
        if finished:
            test = counts[-1, [row[0] == 1 for row in rows]].sum(0)
            values = {
                "test_accuracy": (test[0] / test.sum(), "1"),
                "test_stale_rate": (test[1] / test.sum(), "1"),
                "best_policy_accuracy": (0.36 if task == "overwrite" else 0.12, "1"),
                "state_bytes": (STATE_BYTES[mixer] * dict(config).get("model.width", 64) / 64, "byte"),
                "parameters": (50000.0, "1"),
                "seconds": (20 + 10 * rng.random() + (15 if mixer == "softmax" else 0), "s"),
            }
            for name, (value, unit) in values.items():
                summary[name] = float(value)
                summary[name].attrs["units"] = unit
    return path


def write_sweep(folder, tasks=("overwrite", "mqar"), mixers=tuple(SKILL), seeds=3):
    for task in tasks:
        for mixer in mixers:
            for seed in range(1, seeds + 1):
                name = f"{task}-{mixer}-{seed}"
                write_run(os.path.join(folder, name), name, mixer, seed, task)


def write_sweep_file(folder, ids, mixers, accuracies):
    with h5py.File(os.path.join(folder, "sweep.h5"), "w") as file:
        file.attrs["format"] = "palimpsest-sweep"
        runs = file.create_group("runs")
        texts(runs, "run_id", ids)
        runs["present"] = np.isfinite(accuracies).astype("u1")
        config, summary = runs.create_group("config"), runs.create_group("summary")
        for group in (config, summary):
            texts(group, "run_id", ids)
        texts(config, "model.mixer", mixers)
        summary["test_accuracy"] = np.array(accuracies)
