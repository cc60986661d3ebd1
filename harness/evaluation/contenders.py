"""Contenders: whoever answers on a Case, all held against the same truth."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hanglab.analyzer.errors import InputError
from hanglab.harness.evaluation.answers import BASELINE, SUBJECT, CaseAnswer, answer_of
from hanglab.harness.evaluation.heuristics import HeuristicChoice
from hanglab.harness.evaluation.peers.resiliency_ext import ResiliencyExt
from hanglab.harness.evaluation.peers.torchfrtrace import Torchfrtrace


class Contender(Protocol):
    """One that gives answers; it crosses over to worker processes."""

    @property
    def name(self) -> str: ...

    def conclude(self, folder: Path) -> CaseAnswer:
        """The answer on what lies in ``folder``.  May raise anything: that is a crash."""
        ...


@dataclass(frozen=True)
class Hanglab:
    """The analyzer, with the heuristics that were chosen."""

    choice: HeuristicChoice = HeuristicChoice()
    name: str = SUBJECT

    def conclude(self, folder: Path) -> CaseAnswer:
        # numpy would start a thread per core for algebra that nobody asks for.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        from hanglab.analyzer.engine import analyze

        try:
            return answer_of(analyze(folder, self.choice.resolve()))
        except InputError as error:
            return CaseAnswer(refused=str(error))


#: Peers by name.
PEERS: dict[str, Callable[[], Contender]] = {
    "torchfrtrace": Torchfrtrace,
    "nvidia-resiliency-ext": ResiliencyExt,
}


def contenders_of(
    choice: HeuristicChoice, peers: Sequence[str], *, compared: bool
) -> list[Contender]:
    """All that are asked: the choice, what is installed to compare it with, and peers."""
    found: list[Contender] = [Hanglab(choice, SUBJECT)]
    if compared and choice.changes:
        found.append(Hanglab(name=BASELINE))
    return found + [PEERS[peer]() for peer in peers]
