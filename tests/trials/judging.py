"""Judgement of verdicts on trials; `python -m tests.trials.judging` prints a table."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.verdict import Status, Verdict

from .dumps import write_dumps
from .truth import Trial, make_trial


def judge(trial: Trial, verdict: Verdict) -> str:
    """``right``, ``inconclusive`` or ``wrong``."""
    if verdict.status is Status.INCONCLUSIVE:
        return "inconclusive"
    accused = set(verdict.culprits)
    for finding in verdict.findings:
        accused |= set(finding.culprits)
    if accused & trial.innocent:
        return "wrong"
    if trial.culprit is None:
        return "right" if verdict.status is Status.HEALTHY else "wrong"
    if verdict.status is not Status.HUNG:
        return "wrong"
    return "right" if trial.culprit in accused else "inconclusive" if not accused else "wrong"


def try_seed(seed: int) -> tuple[Trial, Verdict, str] | None:
    trial = make_trial(seed)
    if trial is None:
        return None
    with TemporaryDirectory() as folder:
        write_dumps(trial.play, Path(folder))
        verdict = analyze(folder)
    return trial, verdict, judge(trial, verdict)


def describe(trial: Trial, verdict: Verdict, judgement: str) -> str:
    return (
        f"{judgement:13}seed {trial.seed} {trial.shape}/{trial.fault} truth {trial.culprit} "
        f"verdict {verdict.status.value} {verdict.cause and verdict.cause.value} "
        f"{verdict.culprits} {verdict.confidence:.2f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, help="one seed, its dumps written to --into")
    parser.add_argument("--into", type=Path)
    options = parser.parse_args()
    if options.show is not None:
        shown = try_seed(options.show)
        if shown is None:
            raise SystemExit("The fault of this seed does no harm.")
        print(describe(*shown), shown[1].summary, sep="\n")
        if options.into is not None:
            options.into.mkdir(parents=True, exist_ok=True)
            write_dumps(shown[0].play, options.into)
        return 0
    table: dict[tuple[str, str], Counter[str]] = {}
    for seed in range(options.seed, options.seed + options.cases):
        if (result := try_seed(seed)) is not None:
            trial, _, judgement = result
            table.setdefault((trial.shape, trial.fault), Counter())[judgement] += 1
            if judgement == "wrong":
                print(describe(*result))
    for (shape, fault), counts in sorted(table.items()):
        print(f"{shape:20}{fault:14}", dict(counts))
    total = sum(table.values(), Counter())
    print("all", dict(total))
    return 1 if total["wrong"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
