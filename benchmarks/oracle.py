"""Share of trials on which the analyzer is right, inconclusive or wrong.

    python benchmarks/oracle.py [--cases 10000] [--seed 0] [--jobs 2] [--by shape fault]

Trials are programs of threads on NCCL and gloo, played by a player of its own, with faults and
losses (harness/trials); their truth says which are decidable.  Prints a table by shape and fault,
or by loss, and the first seeds of what is not right: `python -m tests.trials.judging --show SEED`.
Exit code 1 if a verdict is wrong, or if over 1 % of the decidable are inconclusive.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from math import inf
from os import cpu_count
from pathlib import Path
from time import monotonic, process_time
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.trials.judging import Judgement, describe, try_seed

#: Judgements that no verdict may get.
FALSE = (Judgement.WRONG, Judgement.CAUSE, Judgement.GUESS, Judgement.INNOCENT)


class Result(NamedTuple):
    seed: int
    shape: str
    fault: str
    loss: str
    decidable: bool
    judgement: Judgement
    #: Truth and verdict in one line, where the judgement is not good.
    text: str
    #: The cause that the verdict names.
    cause: str


def judge_seeds(seeds: range) -> tuple[list[Result], float]:
    """Results, and the processor time that they took, in seconds."""
    found, began = [], process_time()
    for seed in seeds:
        result = try_seed(seed)
        if result is None:
            continue
        trial, verdict, judgement = result
        good = judgement in (Judgement.RIGHT, Judgement.INCONCLUSIVE)
        found.append(
            Result(
                seed, trial.shape, trial.fault if len(trial.faults) < 2 else "two",
                "+".join(sorted(trial.loss.kinds)) or "none", trial.decidable, judgement,
                "" if good else describe(*result), verdict.cause.value if verdict.cause else "",
            )
        )  # fmt: skip
    return found, process_time() - began


def results(cases: int, first: int, jobs: int) -> Iterator[tuple[list[Result], float]]:
    """Blocks of results, until there are that many cases."""
    block, found, following = 50, 0, first
    with ProcessPoolExecutor(jobs) as pool:
        running: list[Future[tuple[list[Result], float]]] = []
        try:
            while found < cases:
                while len(running) < 4 * jobs:
                    running.append(pool.submit(judge_seeds, range(following, following + block)))
                    following += block
                made, took = running.pop(0).result()
                kept = made[: cases - found]
                found += len(kept)
                yield kept, took
        finally:
            for future in running:
                future.cancel()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=cpu_count() or 1, help="processes")
    parser.add_argument("--seconds", type=float, default=inf, help="end after so long all the same")
    parser.add_argument("--by", nargs="+", default=["shape", "fault"], choices=Result._fields)
    parser.add_argument("--examples", type=int, default=20, help="seeds shown a judgement")
    parser.add_argument("--false", type=Path, help="file for a line of each that is not right")
    options = parser.parse_args()
    table: dict[tuple[str, ...], Counter[str]] = {}
    bad: list[Result] = []
    seconds = 0.0
    began = told = monotonic()
    for block, took in results(options.cases, options.seed, options.jobs):
        seconds += took
        for result in block:
            key = tuple(str(getattr(result, name)) for name in options.by)
            counts = table.setdefault(key, Counter())
            counts[result.judgement.value] += 1
            counts["decidable"] += result.decidable
            if result.text:
                bad.append(result)
        if monotonic() - told > 60:
            told = monotonic()
            print_progress(table, told - began)
        if monotonic() - began > options.seconds:
            break
    print_table(table)
    total = sum(table.values(), Counter())
    cases = sum(total[j.value] for j in Judgement)
    for judgement in (*FALSE, Judgement.MISSED):
        texts = [result.text for result in bad if result.judgement is judgement]
        print(*texts[: options.examples], sep="\n")
    if options.false:
        options.false.write_text("".join(json.dumps(r._asdict()) + "\n" for r in bad))
    missed = total[Judgement.MISSED.value] / max(1, total["decidable"])
    print(f"inconclusive although decidable: {missed:.3%} of {total['decidable']}")
    print(f"{cases} cases, {seconds / max(1, cases) * 1e3:.0f} ms of processor time each")
    return 1 if any(total[j.value] for j in FALSE) or missed > 0.01 else 0


def print_progress(table: dict[tuple[str, ...], Counter[str]], seconds: float) -> None:
    total = sum(table.values(), Counter())
    cases = sum(total[judgement.value] for judgement in Judgement)
    false = ", ".join(f"{total[j.value]} {j.value}" for j in (*FALSE, Judgement.MISSED))
    print(f"{cases} cases in {seconds / 60:.0f} min: {false}", file=sys.stderr, flush=True)


def print_table(table: dict[tuple[str, ...], Counter[str]]) -> None:
    columns = [*(judgement.value for judgement in Judgement), "decidable"]
    print(f"{'':34}" + "".join(f"{name:>13}" for name in ("cases", *columns)))
    rows = [(" ".join(key), counts) for key, counts in sorted(table.items())]
    for name, counts in [*rows, ("all", sum(table.values(), Counter()))]:
        cases = sum(counts[judgement.value] for judgement in Judgement)
        print(f"{name:34}{cases:13}" + "".join(f"{counts[c]:13}" for c in columns))


if __name__ == "__main__":
    raise SystemExit(main())
