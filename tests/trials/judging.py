"""Judgement of verdicts on trials.

    python -m tests.trials.judging --show SEED [--into FOLDER]

prints truth and verdict of one trial; `benchmarks/oracle.py` judges many.
"""

from __future__ import annotations

import argparse
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.verdict import Status, Verdict
from hanglab.harness.trials.drawing import make_trial
from hanglab.harness.trials.folders import write_folder
from hanglab.harness.trials.truth import Trial


class Judgement(str, Enum):
    RIGHT = "right"
    #: Nobody could tell, and the verdict says so.
    INCONCLUSIVE = "inconclusive"
    #: It could have been told.
    MISSED = "missed"
    #: Its status, or its lack of culprits, is false.
    WRONG = "wrong"
    #: The right ranks by a cause that they do not have.
    CAUSE = "cause"
    #: A culprit is named alone though others explain the dumps as well.
    GUESS = "guess"
    #: A rank is accused that nothing speaks against.
    INNOCENT = "innocent"


def judge(trial: Trial, verdict: Verdict) -> Judgement:
    accused = set(verdict.culprits)
    causes = {verdict.cause} if verdict.culprits else set()
    for finding in verdict.findings:
        accused |= set(finding.culprits)
        causes |= {finding.cause} if finding.culprits else set()
    if accused & _certainly_innocent(trial) and accused & trial.innocent:
        return Judgement.INNOCENT
    unsaid = Judgement.MISSED if trial.decidable else Judgement.INCONCLUSIVE
    if verdict.status is Status.INCONCLUSIVE:
        return unsaid
    if verdict.status is Status.HEALTHY:
        return Judgement.RIGHT if trial.healthy_too else Judgement.WRONG
    expected = (Status.CORRUPT,) if trial.corrupt else (Status.HUNG, Status.CORRUPT)
    if not trial.faults or verdict.status not in expected:
        return Judgement.WRONG
    if not accused:
        return unsaid
    if not accused & trial.culprits:
        return Judgement.GUESS if accused & trial.rivals else Judgement.WRONG
    if trial.rivals - accused:
        return Judgement.GUESS
    if not trial.rivals and not any(cause and cause.value in trial.causes for cause in causes):
        return Judgement.CAUSE
    return Judgement.RIGHT


def _certainly_innocent(trial: Trial) -> frozenset[int]:
    """All but culprits and partners; rivals are worked out, which takes time, only then."""
    return frozenset(range(trial.program.size)) - trial.culprits - trial.partners


def try_trial(trial: Trial) -> Verdict:
    with TemporaryDirectory(prefix="hanglab-trial-") as folder:
        write_folder(trial, Path(folder))
        return analyze(folder)


def try_seed(seed: int) -> tuple[Trial, Verdict, Judgement] | None:
    trial = make_trial(seed)
    if trial is None:
        return None
    verdict = try_trial(trial)
    return trial, verdict, judge(trial, verdict)


def describe(trial: Trial, verdict: Verdict, judgement: Judgement) -> str:
    losses = ",".join(trial.loss.kinds) or "no loss"
    transport = trial.program.transport
    odd = [name for name in ("eager", "tolerant") if getattr(transport, name)]
    odd += [f"lanes={transport.lanes}"] if transport.lanes == 1 else []
    odd += [f"queue={transport.queue}"] if transport.queue < 1024 else []
    cause = verdict.cause.value if verdict.cause else None
    return (
        f"{judgement.value:13}seed {trial.seed} {trial.shape}/{trial.fault} "
        f"of {trial.program.size} [{losses}; {' '.join(odd) or 'plain'}]"
        f" truth {sorted(trial.culprits)} partners {sorted(trial.partners)}"
        f" rivals {sorted(trial.rivals)} decidable {trial.decidable}"
        f" verdict {verdict.status.value} {cause} {verdict.culprits} {verdict.confidence:.2f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--show", type=int, required=True, help="seed of the trial")
    parser.add_argument("--into", type=Path, help="folder to write its dumps to")
    options = parser.parse_args()
    shown = try_seed(options.show)
    if shown is None:
        raise SystemExit("The fault of this seed does no harm.")
    trial, verdict, _ = shown
    print(describe(*shown), *trial.faults, f"causes {sorted(trial.causes)}", sep="\n")
    print(verdict.summary)
    for finding in verdict.findings:
        print(" finding", finding.status.value, finding.cause, finding.culprits, finding.summary)
    for one in verdict.evidence:
        print("  ", one.rank, one.detail)
    for alternative in verdict.alternatives:
        print(" alternative", alternative.cause.value, alternative.culprits, alternative.confidence)
    if options.into is not None:
        write_folder(trial, options.into)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
