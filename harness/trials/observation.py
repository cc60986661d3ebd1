"""Files of the ranks of a play, and what they hold: all that somebody who analyzes sees of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from hanglab.harness.trials.dumps import Ring, is_visible, moment_of, ring_of, sizes
from hanglab.harness.trials.losses import Loss
from hanglab.harness.trials.player import Play, Played
from hanglab.harness.trials.programs import Batch, Issue, Program, Step, issues_of


@dataclass(frozen=True, eq=False)
class DumpedPlay:
    """A play, and what is lost of it on the way to a folder."""

    program: Program
    play: Play
    loss: Loss

    def ring(self, rank: int) -> Ring:
        return ring_of(self.play, rank, self.loss)

    @cached_property
    def observed(self) -> list[object]:
        return [observe(self.play, rank, self.loss) for rank in range(self.program.size)]

    @cached_property
    def shows_gloo(self) -> bool:
        """Some file tells that the job has a group of gloo."""
        rings = (self.ring(rank).entries for rank in range(self.program.size))
        return any(entry.played.gloo for entries in rings for entry in entries)

    def leaves(self, other: Play) -> bool:
        """True if another play leaves the same files."""
        return all(
            observe(other, rank, self.loss) == mine or self._leaves_in_other_turns(other, rank)
            for rank, mine in enumerate(self.observed)
        )

    def _leaves_in_other_turns(self, other: Play, rank: int) -> bool:
        """True if another play leaves a rank's file where its threads take other turns.

        Of each thread a ring that dropped entries holds the last, of one more and of another fewer.
        """
        threads = self.play.program.ranks[rank]
        if rank in self.loss.missing or len(threads) < 2 or not self.ring(rank).dropped:
            return False
        unlimited = replace(self.loss, rings=(sys.maxsize,) * self.program.size)
        mine, all_there = observe(self.play, rank, self.loss), observe(other, rank, unlimited)
        assert mine is not None and all_there is not None
        return mine[1:] == all_there[1:] and all(
            kept == all_there[0].get(thread, [])[-len(kept) :] for thread, kept in mine[0].items()
        )

    def open_in_sight(self) -> Iterator[Played]:
        for rank, mine in enumerate(self.play.operations):
            moment = moment_of(self.play, rank, self.loss)
            if rank not in self.loss.missing:
                yield from (
                    o for o in mine if o.created <= moment < o.done and self.is_in_sight(o.step)
                )

    def issued(
        self, rank: int, group: str, until: Played | None = None, *, thread: int | None = None
    ) -> int:
        """Collectives of the group that the rank has issued, the last of them ``until``."""
        last = until.number if until is not None else inf
        return sum(
            o.group == group and o.number <= last and issues_of(o.step)[0].peer is None
            and thread in (None, o.thread)
            for o in self.play.operations[rank]
        )  # fmt: skip

    def is_in_sight(self, step: Step) -> bool:
        return any(is_visible(self.program, issue, self.loss) for issue in issues_of(step))

    def seen_part(self, step: Issue | Batch) -> object:
        """The part of a step that a buffer holds: no roots, reductions or split lists."""
        return step.line, tuple(
            (i.group, i.kind, i.peer, i.dtype, i.numel, sum(i.gives), sum(i.takes))
            for i in issues_of(step)
        )  # fmt: skip


#: Entries by thread, or group; how many the rank made; and statuses.
Observed = tuple[dict[object, list[object]], int, dict[str, tuple[int, int]]]


def observe(play: Play, rank: int, loss: Loss) -> Observed | None:
    """The content of one rank's file, without times and without the interleaving of its threads."""
    if rank in loss.missing:
        return None
    ring = ring_of(play, rank, loss)
    threads: dict[object, list[object]] = {}
    known = loss.versions[rank] != "2.4"
    program = play.program
    for entry in ring.entries:
        played, part = entry.played, entry.part
        key = played.thread if known else entry.group
        line = played.step.line if loss.frames and rank not in loss.json else 0
        shape = part and (
            part.kind,
            part.peer,
            part.dtype,
            sizes(part, rank, program.groups[entry.group]),
        )
        threads.setdefault(key, []).append((
            program.name(rank, entry.group), shape, line, entry.collective, entry.p2p,
            entry.operation, entry.state, entry.retired,
        ))  # fmt: skip
    return threads, ring.dropped + len(ring.entries), ring.status
