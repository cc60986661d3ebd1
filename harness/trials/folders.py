"""Folders as people hand them over: the dumps of a trial, and what else came along."""

from __future__ import annotations

from pathlib import Path

from hanglab.harness.trials.company import another_program, draw_company, earlier_moment
from hanglab.harness.trials.dumps import write_dumps
from hanglab.harness.trials.faults import play_with
from hanglab.harness.trials.losses import no_loss
from hanglab.harness.trials.truth import Trial

#: Seconds between the starts of two attempts.
_LATER_S = 3_600.0


def write_folder(trial: Trial, folder: Path) -> None:
    """``another_job`` healthy beside it, ``earlier_attempt`` that ended, or ``earlier_moment``."""
    company = trial.loss.company
    if not company:
        write_dumps(trial.play, folder, trial.loss)
        return
    split, random = draw_company(trial.seed)  # else told apart by their names

    def place(name: str) -> tuple[Path, str]:
        return (folder / name, "rank_") if split else (folder, f"{name}_rank_")

    later_s = 0.0
    if company == "earlier_moment":
        loss = earlier_moment(random, trial.play, trial.loss)
        into, prefix = place("first")
        write_dumps(trial.play, into, loss, prefix=prefix)
    elif company == "earlier_attempt":
        later_s = _LATER_S
        healthy = play_with(trial.program, ())
        into, prefix = place("attempt_0")
        write_dumps(healthy, into, no_loss(healthy, 1.0), prefix=prefix)
    else:
        other = play_with(another_program(random, trial.program), ())
        into, prefix = place("rollout")
        write_dumps(other, into, no_loss(other, 1.0), prefix=prefix, later_s=random.uniform(0, 60))
    names = {"earlier_moment": "second", "earlier_attempt": "attempt_1", "another_job": "actor"}
    into, prefix = place(names[company])
    write_dumps(trial.play, into, trial.loss, prefix=prefix, later_s=later_s)
