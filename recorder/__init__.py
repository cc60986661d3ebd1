"""Records a distributed training job, so that a hang can be explained afterwards.

In a rank's own code::

    from hanglab import recorder

    recorder.start()
    for batch in loader:
        recorder.step()
        with recorder.section("forward"):
            ...

``start`` suffices; the rest adds detail, and does nothing where the process is
not being recorded.  A job that ``hanglab record`` started needs none of it.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hanglab.recorder.rank.recorder import RankRecorder

_active: RankRecorder | None = None
_NOTHING = contextlib.nullcontext()


def start(out: str | os.PathLike[str] | None = None, hang_after: float | None = None) -> None:
    """Record this process, as a rank of the job that it belongs to.

    To be called in every rank, best before torch is imported, with the same
    arguments.  ``out`` is the folder of the Case, new or empty; by default
    ``hanglab-case-<time>`` in the working directory.  ``hang_after`` is the
    time in seconds without movement after which the job counts as hung and is
    captured, 30 by default.  The ranks of a host share one Case and one agent
    process, which the first of them starts and which ends after the last.

    Under ``hanglab record`` or ``hanglab run`` the Case and the time are
    theirs, and the arguments count for nothing.  Starting twice does nothing.
    Never raises: where the job cannot be recorded, a line on standard error
    says why.
    """
    from hanglab.recorder.rank import start_alone, start_from_environment

    if os.environ.get("HANGLAB_CASE"):
        start_from_environment()
    elif _active is None:
        start_alone(out, hang_after)


def step(number: int | None = None) -> None:
    """A step of training begins; its number is one more than the last one's unless given."""
    if _active is not None:
        _active.step(number)


def section(name: str) -> contextlib.AbstractContextManager[None]:
    """Context manager around a named stretch of a step."""
    if _active is None:
        return _NOTHING
    return _active.section(name)


_unrecorded = {"step": step, "section": section}


def _record_with(recorder: RankRecorder | None) -> None:
    """Let ``step`` and ``section`` be the recorder's own, with nothing in between.

    After a pause each function of Python costs several microseconds.  Those above do for
    whoever got hold of them before there was a recorder.
    """
    global _active
    _active = recorder
    if recorder is None:
        globals().update(_unrecorded)
    else:
        globals().update(step=recorder.step, section=recorder.section)


def dump() -> None:
    """Write this rank's Flight Recorder buffer into the Case now."""
    if _active is not None:
        _active.dump()


def profile(
    duration_ms: int = 500,
    *,
    iterations: int = 0,
    ranks: Sequence[int] | None = None,
    stacks: bool = False,
) -> bool:
    """Have a trace taken of this job, of these ranks or of all, without waiting for it.

    By time, or by optimizer steps where ``iterations`` is not 0.  The traces come
    into the Case.  False where the job is not being recorded.
    """
    runtime = os.environ.get("HANGLAB_RUNTIME")
    if not runtime:
        return False
    from hanglab.recorder.rank.profile_request import leave_request

    return leave_request(runtime, duration_ms, iterations, ranks, stacks)
