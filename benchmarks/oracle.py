"""Share of random trials on which the analyzer is right, inconclusive or wrong.

    python benchmarks/oracle.py [--cases 10000] [--seed 0] [--largest 64] [--jobs 2]

Prints the shares; of the inconclusive ones those that name candidates, the culprit
among them, and those that the oracle says could have been decided.  Exit code 1
if any is wrong, or if more than 0.1 % of the decidable are inconclusive.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from os import cpu_count
from random import Random

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.program.oracle import TrialJudgement, decidable, judge
from hanglab.analyzer.program.trials import random_trial

#: (kind, judgement, something was found, decidable, seed)
Result = tuple[str, str, bool, bool, int]


def try_seed(seed: int, largest: int) -> Result | None:
    trial = random_trial(Random(seed), largest=largest)
    if trial is None:
        return None
    graph = build_wait_for_graph(trial.dumps(), expected=range(trial.run.program.world_size))
    findings = synchronization_findings(graph)
    judgement = judge(trial, findings)
    kind = trial.fault.kind if trial.fault is not None else "healthy"
    return kind, judgement.value, bool(findings), decidable(trial), seed


def try_seeds(seeds: range, largest: int) -> list[Result]:
    return [result for seed in seeds if (result := try_seed(seed, largest)) is not None]


def results(cases: int, first: int, largest: int, jobs: int) -> Iterator[Result]:
    """The first ``cases`` trials that there are from seed ``first`` on."""
    block, found = 50, 0
    with ProcessPoolExecutor(jobs) as pool:
        running = []
        following = first
        while found < cases:
            while len(running) < 4 * jobs:
                seeds = range(following, following + block)
                running.append(pool.submit(try_seeds, seeds, largest))
                following += block
            for result in running.pop(0).result():
                if found < cases:
                    found += 1
                    yield result
        for future in running:
            future.cancel()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--largest", type=int, default=64, help="largest world size")
    parser.add_argument("--jobs", type=int, default=cpu_count() or 1, help="processes")
    options = parser.parse_args()
    table: dict[str, Counter[str]] = {}
    examples: dict[str, list[int]] = {"wrong": [], "missed": []}
    trials = results(options.cases, options.seed, options.largest, options.jobs)
    for kind, judgement, found, could, seed in trials:
        counts = table.setdefault(kind, Counter())
        counts[judgement] += 1
        counts["decidable"] += could
        counts["candidates"] += found and judgement == TrialJudgement.INCONCLUSIVE
        if judgement == TrialJudgement.WRONG:
            examples["wrong"].append(seed)
        if could and judgement == TrialJudgement.INCONCLUSIVE:
            counts["missed"] += 1
            examples["missed"].append(seed)
    columns = ("right", "inconclusive", "wrong", "candidates", "decidable", "missed")
    print(f"{'fault':16}" + "".join(f"{name:>14}" for name in ("cases", *columns)))
    total: Counter[str] = Counter()
    for kind, counts in sorted(table.items()):
        total += counts
        cases = sum(counts[name] for name in columns[:3])
        print(f"{kind:16}{cases:14}" + "".join(f"{counts[name]:14}" for name in columns))
    cases = sum(total[name] for name in columns[:3])
    print(f"{'all':16}{cases:14}" + "".join(f"{total[name]:14}" for name in columns))
    for name in columns[:3]:
        print(f"{name}: {total[name] / cases:.2%}")
    missed = total["missed"] / max(1, total["decidable"])
    print(f"inconclusive although decidable: {missed:.3%} of {total['decidable']}")
    for name, seeds in examples.items():
        if seeds:
            print(f"{name} seeds: {seeds[:20]}")
    return 1 if total["wrong"] or missed > 0.001 else 0


if __name__ == "__main__":
    raise SystemExit(main())
