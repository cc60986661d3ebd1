"""Judging: every contender's answer on every Case, in worker processes."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hanglab.harness.corpus.workers import WorkerDied, WorkerPool
from hanglab.harness.errors import HanglabError
from hanglab.harness.evaluation.answers import CaseAnswer
from hanglab.harness.evaluation.cases import LabelledCase
from hanglab.harness.evaluation.contenders import Contender

#: Relative, so that a verdict that names a file says the same wherever it is given.
_FOLDER = Path("job")


@dataclass
class Judged:
    """A Case with the contenders' answers, by their names; ``broken`` says why it has none."""

    case: LabelledCase
    answers: dict[str, CaseAnswer]
    broken: str = ""


def judge(
    cases: Sequence[LabelledCase],
    contenders: Sequence[Contender],
    jobs: int,
    stop: threading.Event | None = None,
) -> Iterator[Judged]:
    """Each Case with its answers, in order; once ``stop`` is set, no more of them."""
    function = partial(_judge_one, tuple(contenders))
    pool: WorkerPool[LabelledCase, Judged] = WorkerPool(function, jobs)
    for case, judged in zip(cases, pool.map(cases, stop), strict=False):
        if isinstance(judged, WorkerDied):
            crash = str(judged)
            yield Judged(case, {one.name: CaseAnswer(crash=crash) for one in contenders})
        else:
            yield judged


def _judge_one(contenders: Sequence[Contender], case: LabelledCase) -> Judged:
    judged = Judged(case, {})
    try:
        folder = case.source.place(_FOLDER)
        for contender in contenders:
            judged.answers[contender.name] = _ask(contender, folder)
    except HanglabError as error:
        judged.broken = str(error)
    except Exception as error:
        judged.broken = f"{case.name} cannot be made ready: {type(error).__name__}: {error}."
    finally:
        shutil.rmtree(_FOLDER, ignore_errors=True)
    return judged


def _ask(contender: Contender, folder: Path) -> CaseAnswer:
    begun = time.perf_counter()
    try:
        answer = contender.conclude(folder)
    except (Exception, SystemExit) as error:
        answer = CaseAnswer(crash=f"{type(error).__name__}: {error}")
    answer.seconds = time.perf_counter() - begun
    return answer
