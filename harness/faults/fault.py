"""Base of all faults from outside: a rank, a moment, a strike."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from hanglab.harness.faults.conditions import Condition, Elapsed, Steps
from hanglab.harness.faults.proof import Probe
from hanglab.harness.hosts import HostSettings


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something done to rank ``rank`` from outside, once.

    Exactly one of the three says when: ``at_step`` (the rank has reached that
    step, counted from 0), ``after_s`` (seconds after every rank has started) or
    ``when`` (a condition on the progress of any rank).
    """

    #: Capability that the machine must have for it, if any; ``hanglab doctor`` lists them.
    needs: ClassVar[str] = ""

    rank: int
    at_step: int | None = None
    after_s: float | None = None
    when: Condition | None = None

    def __post_init__(self) -> None:
        given = [moment for moment in (self.at_step, self.after_s, self.when) if moment is not None]
        if len(given) != 1:
            raise ValueError(
                f"{type(self).__name__} needs exactly one of at_step=, after_s= and when="
            )

    @property
    def condition(self) -> Condition:
        if self.when is not None:
            return self.when
        if self.at_step is not None:
            return Steps(self.rank, self.at_step)
        assert self.after_s is not None
        return Elapsed(self.rank, self.after_s)

    @property
    def ranks(self) -> frozenset[int]:
        """Ranks that it is done to."""
        return frozenset({self.rank})

    def describe(self) -> str:
        return f"{type(self).__name__} of rank {self.rank} once {self.condition.describe()}"

    def prepare(self, number: int, settings: HostSettings) -> None:
        """Changes, in fault and control alike, what container ``number`` is made with.

        A disk that is to be filled must be there in the control, too.
        """

    def settings(self, number: int, settings: HostSettings) -> None:
        """Changes, in the fault alone, what container ``number`` is made with."""

    def strike(self, pid: int) -> Callable[[], None] | None:
        """Does it to the rank's process; returns what clears up behind it, if anything must.

        Raises ProcessLookupError if the process is gone, or another OSError.
        """
        raise NotImplementedError

    def strike_among(self, pids: Mapping[int, int]) -> Callable[[], None] | None:
        """Do the same, given the processes of all ranks that it is done to."""
        return self.strike(pids[self.rank])

    def probe_of(self, pids: Mapping[int, int]) -> Probe | None:
        """Asked just before the strike: the probe that sees whether it did something, if any."""
        return None


@dataclass(frozen=True, kw_only=True)
class SignalFault(Fault):
    """A fault that is one signal to the rank's own process (its children get none)."""

    signal: ClassVar[signal.Signals]

    def strike(self, pid: int) -> None:
        os.kill(pid, self.signal)
