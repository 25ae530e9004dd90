#!/usr/bin/env python3
"""A training step of `palimpsest bench step` beside the same model in eager PyTorch, on the CPU, in turns.

    PYTHON scripts/peers/pytorch_step.py --palimpsest build/release/palimpsest [--case softmax:64,8192 …] [--rounds 7] [--json]
    PYTHON scripts/peers/pytorch_step.py --check       the peer's delta rule and attention against plain loops and products

PYTHON needs torch: the one that build/setup.env names after scripts/setup.sh has it on machines where all of torch was installed.

The peer is the model that `bench step --json` describes (as many parameters, or it refuses), written as one writes it in PyTorch: logits of
the whole sequence, cross-entropy with ignore_index, torch.optim.AdamW, clip_grad_norm_. Its batches have the same shape and as many scored
positions; they are made beforehand, ours inside the step. There are two ways of writing each mixer (pytorch_model.py) and two in which the
threads of OpenMP may wait; we are compared with the fastest of the four. A round measures each of them once, and us.
"""

import argparse
import json
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import time

CASES = ["softmax:64,8192", "softmax:64,256", "softmax:256,256,64", "gated_delta:64,8192", "gated_delta:64,256", "gated_delta:256,256,64"]
WAYS = {"softmax": ["sdpa", "matmul"], "gated_delta": ["rows", "solve"]}
WAITS = ["active", "passive"]
IGNORED = -100


def ours(program, case, arguments, warmup, repeats):
    mixer, shape = case.split(":", 1)
    command = [program, "bench", "step", "--json", "--mixer", mixer, "--shape", shape, "--warmup", str(warmup), "--repeats", str(repeats),
               "--batch", str(arguments.batch), "--width", str(arguments.width), "--threads", str(arguments.threads)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"error: {' '.join(command)}\n{result.stderr.strip()}")
    answer = json.loads(result.stdout)
    return answer["machine"], answer["steps"][0]


class Peer:
    """The same step, in this process."""

    def __init__(self, step, way):
        import torch
        from pytorch_model import Model, need
        self.torch = torch
        train = step["config"]["train"]
        decay_all = train.get("weight_decay_on") == "all"  # missing where nothing decays
        torch.manual_seed(1)
        self.model = Model(step, way)
        count = sum(p.numel() for p in self.model.parameters())
        need(count == step["parameters"], f"this model: it has {count} parameters where palimpsest's has {step['parameters']}")
        decayed = [p for p in self.model.parameters() if p.dim() > 1 or decay_all]
        others = [p for p in self.model.parameters() if p.dim() <= 1 and not decay_all]
        groups = [{"params": decayed, "weight_decay": train["weight_decay"]}, {"params": others, "weight_decay": 0}]
        self.optimizer = torch.optim.AdamW([g for g in groups if g["params"]], lr=train["lr"], betas=(train["beta1"], train["beta2"]), eps=train["eps"])
        self.clip = train["clip"]
        self.batches = [self.batch(step) for _ in range(4)]

    def batch(self, step):
        torch, shape = self.torch, (step["batch"], step["length"])
        tokens = torch.randint(step["vocabulary"], shape)
        places = torch.rand(shape).argsort(1)[:, :step["scored"]]
        targets = torch.full(shape, IGNORED).scatter(1, places, torch.randint(step["vocabulary"], places.shape))
        return tokens, targets

    def step(self, n):
        tokens, targets = self.batches[n % len(self.batches)]
        self.optimizer.zero_grad()
        logits = self.model(tokens)
        loss = self.torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
        loss.backward()
        if self.clip > 0:
            self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        return loss

    def measure(self, warmup, repeats):
        samples = []
        for n in range(warmup + repeats):
            if n == warmup:
                before = time.process_time()
            start = time.perf_counter()
            loss = self.step(n)
            samples.append(1e3 * (time.perf_counter() - start))
        processor = 1e3 * (time.process_time() - before) / repeats
        if not bool(loss.isfinite()):
            raise RuntimeError("the peer's loss is not finite")
        return samples[warmup:], processor


def serve(requests, threads):
    """A process for one way of waiting; keeps its models from round to round."""
    import torch
    torch.set_num_threads(threads)
    peers = {}
    for case, step, way, warmup, repeats in iter(requests.recv, None):
        try:
            if (case, way) not in peers:
                peers[case, way] = Peer(step, way)
            requests.send(peers[case, way].measure(warmup, repeats))
        except Exception as error:
            requests.send(str(error))


class Server:
    def __init__(self, wait, threads):
        before = os.environ.get("OMP_WAIT_POLICY")
        os.environ["OMP_WAIT_POLICY"] = wait  # libgomp reads it when it is loaded
        context = multiprocessing.get_context("spawn")
        self.requests, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, threads), daemon=True)
        self.process.start()
        del os.environ["OMP_WAIT_POLICY"]
        if before is not None:
            os.environ["OMP_WAIT_POLICY"] = before

    def measure(self, *request):
        # Between its turns a peer sleeps: threads that wait actively would hold the cores while others are measured.
        os.kill(self.process.pid, signal.SIGCONT)
        self.requests.send(request)
        answer = self.requests.recv()
        os.kill(self.process.pid, signal.SIGSTOP)
        if isinstance(answer, str):
            sys.exit(f"error: {request[0]}: {answer}")
        return answer

    def close(self):
        os.kill(self.process.pid, signal.SIGCONT)
        self.requests.send(None)
        self.process.join()


def summary(rounds):
    """Of the rounds' (samples, processor time of a step)."""
    samples = [sample for some, _ in rounds for sample in some]
    lower, median, upper = statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else samples * 3
    return {"median": median, "lower": lower, "upper": upper, "least": min(samples), "samples": len(samples),
            "processor": statistics.median(processor for _, processor in rounds)}


def compare_case(arguments, case, step, servers):
    mine, theirs = [], {}
    for _ in range(arguments.rounds):
        now = ours(arguments.palimpsest, case, arguments, arguments.warmup, arguments.repeats)[1]
        mine.append((now["samples"], now["processor_milliseconds"]))
        for way in WAYS[case.split(":")[0]]:
            for wait, server in servers.items():
                theirs.setdefault(f"{way}, {wait}", []).append(server.measure(case, step, way, arguments.warmup, arguments.repeats))
    us, peers = summary(mine), {name: summary(rounds) for name, rounds in theirs.items()}
    fastest = min(peers, key=lambda name: peers[name]["median"])
    return {"case": case, **{key: step[key] for key in ("length", "vocabulary", "scored", "batch", "width", "parameters")},
            "palimpsest": us, "peer": peers, "fastest_peer": fastest, "ratio": peers[fastest]["median"] / us["median"],
            "ratio_of_least": min(p["least"] for p in peers.values()) / us["least"],
            "ratio_of_processor_time": min(p["processor"] for p in peers.values()) / us["processor"]}


def compare(arguments):
    descriptions = {case: ours(arguments.palimpsest, case, arguments, 1, 1) for case in arguments.case}
    machine = next(iter(descriptions.values()))[0]
    servers = {wait: Server(wait, machine["threads"]) for wait in WAITS}
    load, results = [os.getloadavg()[0]], []
    for case, (_, step) in descriptions.items():
        results.append(compare_case(arguments, case, step, servers))
        load.append(os.getloadavg()[0])
        print(f"{case}: {results[-1]['ratio']:.2f}", file=sys.stderr)
    for server in servers.values():
        server.close()
    return {"machine": machine, "rounds": arguments.rounds, "repeats": arguments.repeats, "load": load, "cases": results}


def table(answer):
    def cell(s):
        return f"{s['median']:.1f} ({s['lower']:.1f} - {s['upper']:.1f})"
    machine = answer["machine"]
    lines = [f"{machine['processor']}, {machine['threads']} threads; palimpsest {machine['commit'][:12]}, LibTorch {machine['libtorch']}; "
             f"{answer['rounds']} rounds of {answer['repeats']} steps each; load {min(answer['load']):.1f} to {max(answer['load']):.1f}", "",
             "| mixer | T | V | scored | palimpsest, ms | peer, ms | the fastest peer | ratio | of the least | of processor time |", "|---|---|---|---|---|---|---|---|---|---|"]
    for r in answer["cases"]:
        lines.append(f"| {r['case'].split(':')[0]} | {r['length']} | {r['vocabulary']} | {r['scored']} | {cell(r['palimpsest'])} | "
                     f"{cell(r['peer'][r['fastest_peer']])} | {r['fastest_peer']} | {r['ratio']:.1f} | {r['ratio_of_least']:.1f} | "
                     f"{r['ratio_of_processor_time']:.1f} |")
    return "\n".join(lines)


def check():
    from pytorch_model import differences
    bad = 0
    for what, difference in differences():
        print(f"{difference:.1e}  {what}")
        bad += not difference < 1e-9
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--palimpsest", metavar="PROGRAM", help="the program to measure")
    parser.add_argument("--case", action="append", metavar="MIXER:T,V[,Q]", help=f"may be repeated; default: {' '.join(CASES)}")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--threads", type=int, default=0, help="0: all cores of the machine")
    parser.add_argument("--rounds", type=int, default=5, help="each measures us and every peer once")
    parser.add_argument("--repeats", type=int, default=8, help="steps measured in a round")
    parser.add_argument("--warmup", type=int, default=3, help="steps before them")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--check", action="store_true", help="compare the peer with itself written out, and stop")
    arguments = parser.parse_args()
    try:
        import torch  # noqa: F401
    except ImportError:
        sys.exit(f"error: {sys.executable} has no torch; take a Python that has it (build/setup.env names one after scripts/setup.sh)")
    if arguments.check:
        return check()
    if not arguments.palimpsest:
        parser.error("--palimpsest PROGRAM is needed: the program to measure, such as build/release/palimpsest")
    arguments.case = arguments.case or CASES
    for case in arguments.case:
        if case.split(":")[0] not in WAYS or ":" not in case:
            parser.error(f"--case {case}: MIXER:T,V[,Q] with a mixer of {', '.join(WAYS)}")
    answer = compare(arguments)
    print(json.dumps(answer, indent=2) if arguments.json else table(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
