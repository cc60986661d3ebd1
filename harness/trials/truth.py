"""Trials: a program, what was put into it, what is left of it, and what may be concluded.

**Decidable.**  The program is played with each other single fault that could be told from
outside: each host stopped where it stands, each device stopped before what it has open, the
next operation of each thread left out, roots and split lists (which no buffer holds) changed,
on each transport, with each operation stalled that some rank is seen in, by the network or the
library and by nobody's fault, and with no fault at all.  Those that leave the same dumps after the
same losses (times apart: they differ from run to run) explain them as well as the truth does.  If
buffers do not hold an operation (gloo's point-to-point), so does whoever has nothing open to see.
If ranks besides the culprits explain the dumps, they are its *rivals*: a verdict that names all
of them, or nobody, or ``inconclusive``, is right, and one that accuses one alone guesses.  If
nobody else does, nor a stalled operation, the trial is decidable, with exceptions: dumps that were
taken while something moved, or whose files lost their times, cannot prove that it stopped moving,
and those in which all has ended cannot prove that something was to follow.

*Partners* are ranks that may be named beside the culprit because another program, as good as
this one, has the opposite fault at them: of two who disagree nobody knows which is odd.
All others are innocent, and no verdict may name them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, zip_longest
from math import inf
from random import Random

from hanglab.harness.trials.dumps import is_visible, moment_of, ring_of, sizes
from hanglab.harness.trials.faults import (
    CAUSES,
    DIFFERENCES,
    STOPPED,
    STOPS,
    UNSEEN,
    Fault,
    partners,
    play_with,
    random_fault,
)
from hanglab.harness.trials.losses import KINDS, Loss, random_loss
from hanglab.harness.trials.lost_counts import counts_are_lost
from hanglab.harness.trials.player import Play, Played, Stops, play
from hanglab.harness.trials.programs import ANY, Batch, Issue, Program, Step, Transport, issues_of
from hanglab.harness.trials.shapes import SHAPES

#: Within which a job that ended may be called healthy by the times of its files, in seconds.
RECENT_S = 30.0


@dataclass(frozen=True, eq=False)
class Trial:
    seed: int
    program: Program
    faults: tuple[Fault, ...]
    play: Play
    loss: Loss

    @property
    def shape(self) -> str:
        return self.program.shape

    @property
    def fault(self) -> str:
        return "+".join(sorted(fault.kind for fault in self.faults)) or "none"

    @property
    def culprits(self) -> frozenset[int]:
        return frozenset(fault.rank for fault in self.faults)

    @property
    def stuck(self) -> bool:
        return bool(self.play.unfinished) or self.play.open

    @cached_property
    def partners(self) -> frozenset[int]:
        found = {m for f in self.faults for m in partners(self.program, f, self._seen_at(f))}
        found |= {rank for f in self.faults for rank in self._alone_in_wait(f)}
        return frozenset(found) - self.culprits

    def _alone_in_wait(self, fault: Fault) -> set[int]:
        """The one that waits for a stopped host, where no other rank is on its way.

        It may have an operation too many, of a program in which the other has none.
        """
        if fault.kind != "host_stop":
            return set()
        waits = [
            (o.rank, issue) for mine in self.play.operations for o in mine if o.done == inf
            for issue in issues_of(o.step) if o.rank != fault.rank
            and fault.rank in (issue.peer, *self.program.groups[issue.group].members)
        ]  # fmt: skip
        waiters = {rank for rank, _ in waits}
        pairs = all(
            i.peer is not None or len(self.program.groups[i.group].members) == 2 for _, i in waits
        )
        besides = [
            mine for rank, mine in enumerate(self.play.operations)
            if rank != fault.rank and rank not in waiters
        ]  # fmt: skip
        idle = not besides or any(all(o.done < inf for o in mine) for mine in besides)
        return waiters if len(waiters) == 1 and pairs and idle else set()

    def _seen_at(self, fault: Fault) -> frozenset[int]:
        """Ranks whose dumps hold what they did when the fault struck."""
        struck = [
            o.created for o in self.play.operations[fault.rank]
            if o.thread == fault.thread and o.at >= fault.at
        ]  # fmt: skip
        # What was left out at the very end is missed from then on.
        mine = [o.created for o in self.play.operations[fault.rank] if o.thread == fault.thread]
        when = min(struck, default=max(mine, default=0.0))
        return frozenset(
            rank for rank in range(self.program.size)
            if rank not in self.loss.missing
            and moment_of(self.play, rank, self.loss) >= when
            and any(
                e.played.done >= when for e in ring_of(self.play, rank, self.loss).entries
            )
        )  # fmt: skip

    @cached_property
    def observed(self) -> list[object]:
        return [observe(self.play, rank, self.loss) for rank in range(self.program.size)]

    @property
    def corrupt(self) -> bool:
        """Operations ended although their arguments differ."""
        return bool(self.faults) and not self.stuck

    @cached_property
    def healthy_too(self) -> bool:
        """The program without a fault leaves the same dumps."""
        return not self.faults or self._same(play_with(self.program, ()))

    @cached_property
    def rivals(self) -> frozenset[int]:
        """Ranks besides the culprits that would leave the same dumps by a fault of their own."""
        if not self.faults:
            return frozenset()
        if self._told_by_its_ring():
            return self._stopped_together()
        others = set(range(self.program.size)) - self.culprits
        return self._out_of_sight() | {rank for rank in others if self._explained_by(rank)}

    def _out_of_sight(self) -> frozenset[int]:
        """Ranks without an open operation to see, where some operations are not to be seen.

        Who waits for whom there is known to the program alone, which nobody has who analyzes.
        If the culprit is such a rank, whoever makes such operations may have left out the other
        half of one that the culprit is in.
        """
        program, found, hiding = self.program, set(), set()
        for rank, mine in enumerate(self.play.operations):
            seen = [o for o in mine if is_visible(program, issues_of(o.step)[0], self.loss)]
            hidden = any(
                not is_visible(program, issue, self.loss)
                for steps in program.ranks[rank] for step in steps for issue in issues_of(step)
            )  # fmt: skip
            if hidden:
                hiding.add(rank)
            if hidden and all(o.done < inf for o in seen):
                found.add(rank)
        return frozenset(hiding if found & self.culprits else found) - self.culprits

    def _stopped_together(self) -> frozenset[int]:
        """Ranks that have not come to what a culprit alone waits in, where they are several.

        Hosts stop together for one reason (a file system, a lock, the end of their data), and
        then whoever was spared waits alone.  Not if it had gone on otherwise from some call of its,
        or otherwise than several others, all of whose calls are known, did there.
        """
        waits = [o for mine in self.play.operations for o in mine if o.done == inf]
        if len({o.rank for o in waits}) != 1 or waits[0].rank not in self.culprits:
            return frozenset()
        first = waits[0]
        absent = {
            member for member in self.program.groups[first.group].members
            if self._issued(member, first.group) < self._issued(first.rank, first.group, first)
        }  # fmt: skip
        if issues_of(first.step)[0].peer is not None or len(absent) < 2 or self._unlike(first):
            return frozenset()
        if any(self._further(member, first) for member in absent) or self._unlike_peers(first):
            return frozenset()
        return frozenset(absent)

    def _further(self, member: int, first: Played) -> bool:
        """The member has issued what comes only behind that operation, from the thread of it.

        Threads keep no order among them, and stages do not send equally often.
        """
        both = (
            name for name, group in self.program.groups.items()
            if {member, first.rank} <= set(group.members) and name != first.group
        )  # fmt: skip
        return any(
            self._issued(member, name, thread=first.thread)
            > self._issued(first.rank, name, first, thread=first.thread)
            for name in both
        )

    def _issued(
        self, rank: int, group: str, until: Played | None = None, *, thread: int | None = None
    ) -> int:
        """Collectives of the group that the rank has issued, the last of them ``until``."""
        last = until.number if until is not None else inf
        return sum(
            o.group == group and o.number <= last and issues_of(o.step)[0].peer is None
            and thread in (None, o.thread)
            for o in self.play.operations[rank]
        )  # fmt: skip

    def _unlike(self, played: Played) -> bool:
        """Its ring shows the rank go on from a call as its program never does, and as it did."""
        kept = {entry.played for entry in ring_of(self.play, played.rank, self.loss).entries}
        mine = [o for o in self.play.operations[played.rank] if o.thread == played.thread]
        seen = [self._seen(o.step) for o in mine[: mine.index(played) + 1] if o in kept]
        planned = [
            self._seen(step) for step in self.program.ranks[played.rank][played.thread]
            if isinstance(step, Issue | Batch)
        ]  # fmt: skip
        steps = set(pairwise(planned))
        usual = {one for one, then in pairwise(seen) if (one, then) in steps}
        return any(one in usual for one, then in pairwise(seen) if (one, then) not in steps)

    def _unlike_peers(self, played: Played) -> bool:
        """Two others or more called alike, by their whole rings, and the rank otherwise.

        Of a program in which it has no order of its own.
        """
        thread = played.thread
        mine = self._whole_order(played.rank, thread)
        alike = [
            rank for rank in range(self.program.size)
            if rank != played.rank and self._plan(rank, thread) == self._plan(played.rank, thread)
        ]  # fmt: skip
        orders = [one for one in (self._whole_order(r, thread) for r in alike) if one is not None]
        if mine is None:
            return False
        unlike = sum(any(a != b for a, b in zip(mine, one, strict=False)) for one in orders)
        return unlike > max(1, len(orders) // 2)

    def _plan(self, rank: int, thread: int) -> list[object]:
        threads = self.program.ranks[rank]
        return [
            self._seen(step) for step in (threads[thread] if thread < len(threads) else ())
            if isinstance(step, Issue | Batch) and self._in_sight(step)
        ]  # fmt: skip

    def _whole_order(self, rank: int, thread: int) -> list[object] | None:
        """Calls of the thread, by the rank's ring; None where that does not hold all of them."""
        ring = ring_of(self.play, rank, self.loss)
        if rank in self.loss.missing or ring.dropped or self.loss.active_only:
            return None
        kept = {entry.played for entry in ring.entries}
        return [
            self._seen(o.step)
            for o in self.play.operations[rank]
            if o.thread == thread and o in kept
        ]

    @property
    def decidable(self) -> bool:
        if (
            self.loss.company == "earlier_moment"
            or not self.loss.settled
            or not self.loss.file_times
        ):
            return False
        if not self.faults:
            whole = not self.loss.missing and not self._size_unknown
            return whole and self.loss.waited_s <= RECENT_S and self._dated
        if any(map(self._votes_lack, self.faults)):
            return False
        if any(counts_are_lost(self.program, self.play, self.loss, one) for one in self.faults):
            return False
        if self.stuck and not self._shows_open:
            return False
        return not self.rivals and not self.healthy_too and not self._stall_explains

    @property
    def _shows_open(self) -> bool:
        """Some dump has something that has not ended."""
        return any(True for _ in self._seen_open())

    def _seen_open(self) -> Iterator[Played]:
        for rank, mine in enumerate(self.play.operations):
            moment = moment_of(self.play, rank, self.loss)
            if rank not in self.loss.missing:
                yield from (
                    o for o in mine if o.created <= moment < o.done and self._in_sight(o.step)
                )

    @cached_property
    def _stall_explains(self) -> bool:
        """An operation that some rank is in leaves the same dumps if it stalls without a fault.

        All have come to it, as far as their dumps tell, and its network, or its library, does not
        let it end: for all who are in it, or, on gloo, for one whose connection is cut.
        """
        stalls = [
            Stops(stalled=(o.rank, o.number, place)) for o in self._seen_open() if o.started < inf
            for place in range(len(issues_of(o.step)))
        ] + [
            Stops(cut=(o.rank, o.number)) for o in self._seen_open()
            if self.program.groups[o.group].backend == "gloo"
        ]  # fmt: skip
        return any(
            self._same(play(replace(self.program, transport=transport), stops))
            for stops in stalls
            for transport in self._transports()
        )

    @property
    def _dated(self) -> bool:
        """An entry is left that tells when something was done last; counts alone do not."""
        return any(ring_of(self.play, rank, self.loss).entries for rank in range(self.program.size))

    @property
    def _size_unknown(self) -> bool:
        """No file lists the members of a group of all: there may be a rank more than files."""
        program = self.program
        lists = [group.members for group in program.groups.values() if group.backend == "nccl"]
        return not any(len(members) == program.size for members in lists)

    def _votes_lack(self, fault: Fault) -> bool:
        """Members of whom nothing is known may have done as the culprit did, and be as many.

        What a branch on the rank does wrong, several ranks do alike: then the program is theirs.
        Of a message there are two ends.  Where the other left no dump, a program that has what the
        culprit did, and in which that other one stopped, leaves the same files.
        """
        if fault.kind in STOPS:
            return False
        step = self.program.ranks[fault.rank][fault.thread][
            fault.value if fault.kind == "extra" else fault.at
        ]
        if fault.kind == "drift" or not issues_of(step):
            return False
        issue = issues_of(step)[0 if fault.kind == "extra" else fault.part]
        seen = self._seen_at(fault)
        if issue.peer is not None:
            ends = {issue.peer, fault.value} if fault.kind == "peer" else {issue.peer}
            return not ends - {ANY} <= seen
        if fault.kind not in DIFFERENCES:
            return False
        members = set(self.program.groups[issue.group].members) - {fault.rank}
        unseen = len(members - seen) + self._size_unknown
        return unseen > 0 and len(members & seen) <= 1 + unseen

    @property
    def innocent(self) -> frozenset[int]:
        everybody = frozenset(range(self.program.size))
        return everybody - self.culprits - self.partners - self.rivals

    @cached_property
    def causes(self) -> frozenset[str]:
        found = frozenset().union(*(CAUSES[fault.kind] for fault in self.faults))
        hidden = [fault.rank for fault in self.faults if fault.kind in UNSEEN]
        # No buffer holds a root, or split lists: another one may look like a stop of its rank.
        return found | STOPPED if any(map(self._may_have_stopped, hidden)) else found

    def _may_have_stopped(self, rank: int) -> bool:
        return any(
            self._same(play_with(replace(self.program, transport=transport), (fault,)))
            for fault in self._hypotheses(rank) if fault.kind in STOPS
            for transport in self._transports()
        )  # fmt: skip

    def _same(self, other: Play) -> bool:
        return all(
            observe(other, rank, self.loss) == mine for rank, mine in enumerate(self.observed)
        )

    def _told_by_its_ring(self) -> bool:
        """A culprit's ring holds what no rank does without a fault of its own."""
        return any(
            fault.kind not in ("host_stop", "device_stop")
            and self.observed[fault.rank] is not None
            and not self._begins_alike(fault.rank)
            for fault in self.faults
        )

    def _begins_alike(self, rank: int) -> bool:
        """True if the rest of the rank's buffer is as its program, so far, writes it."""
        kept = {entry.played for entry in ring_of(self.play, rank, self.loss).entries}
        for thread, steps in enumerate(self.program.ranks[rank]):
            planned = [
                step for step in steps if isinstance(step, Issue | Batch) and self._in_sight(step)
            ]
            mine = [
                o
                for o in self.play.operations[rank]
                if o.thread == thread and self._in_sight(o.step)
            ]
            for plan, one in zip_longest(planned, mine):
                if one in kept and (plan is None or self._seen(plan) != self._seen(one.step)):
                    return False
        named = {group for odd, group in self.play.program.names if odd == rank}
        return named.isdisjoint(self._names_told(rank))

    def _names_told(self, rank: int) -> set[str]:
        """Groups whose names the rank's dump holds: in its list of groups, or in an entry."""
        program = self.program
        listed = {g for g in program.groups_of(rank) if program.groups[g].backend == "nccl"}
        return listed | {entry.group for entry in ring_of(self.play, rank, self.loss).entries}

    def _in_sight(self, step: Step) -> bool:
        return any(is_visible(self.program, issue, self.loss) for issue in issues_of(step))

    def _seen(self, step: Issue | Batch) -> object:
        """The part of a step that a buffer holds: no roots, reductions or split lists."""
        return step.line, tuple(
            (i.group, i.kind, i.peer, i.dtype, i.numel, sum(i.gives), sum(i.takes))
            for i in issues_of(step)
        )  # fmt: skip

    def _explained_by(self, rank: int) -> bool:
        return any(
            self._same(play_with(replace(self.program, transport=transport), (fault,)))
            for fault in self._hypotheses(rank)
            for transport in self._transports()
        )

    def _transports(self) -> list[Transport]:
        """That of the job, and others, as dumps do not tell which it had."""
        own = self.program.transport
        kinds = [
            replace(own, eager=eager, lanes=lanes)
            for eager in (own.eager, not own.eager) for lanes in (own.lanes, Transport().lanes, 1)
        ]  # fmt: skip
        return list(dict.fromkeys((own, Transport(), Transport(eager=True), *kinds)))

    def _hypotheses(self, rank: int) -> Iterator[Fault]:
        mine = self.play.operations[rank]
        if rank in self.loss.missing:
            yield from self._anywhere(rank)
        for thread, steps in enumerate(self.program.ranks[rank]):
            issued = [o.at for o in mine if o.thread == thread]
            at = 1 + max(issued, default=-1)
            if at < len(steps):
                yield Fault("host_stop", rank, thread, at)
                following = next((i for i in range(at, len(steps)) if issues_of(steps[i])), None)
                if following is not None:
                    yield Fault("skip", rank, thread, following)
                    if self.program.groups[issues_of(steps[following])[0].group].backend == "gloo":
                        yield Fault("host_stop", rank, thread, following + 1)
        device = [o for o in mine if self.program.groups[o.group].backend == "nccl"]
        if any(o.done == inf for o in device):
            done = [o.number for o in device if o.done < inf]
            yield Fault("device_stop", rank, at=1 + max(done, default=-1))
        for played in mine:
            is_open = played.done == inf or self._is_open_elsewhere(played)
            if is_open and played.at < len(self.program.ranks[rank][played.thread]):
                yield from self._unseen_arguments(played)

    def _is_open_elsewhere(self, played: Played) -> bool:
        """A rank ended its part of a collective which another one is in: it may lack that part."""
        mine = issues_of(played.step)[0]
        return mine.peer is None and any(
            other.done == inf
            and other.group == played.group
            and issues_of(other.step)[0].peer is None
            and self._issued(other.rank, other.group, other)
            == self._issued(played.rank, played.group, played)
            for operations in self.play.operations
            for other in operations
        )

    def _anywhere(self, rank: int) -> Iterator[Fault]:
        """Stops of a rank that left no dump: nothing tells how far it came."""
        mine = self.play.operations[rank]
        yield from (Fault("host_stop", rank, played.thread, played.at) for played in mine[::-1])
        yield from (Fault("device_stop", rank, at=played.number) for played in mine[::-1])

    def _unseen_arguments(self, played: Played) -> Iterator[Fault]:
        """Another root or split list, of which buffers know nothing."""
        issues = issues_of(self.program.ranks[played.rank][played.thread][played.at])
        if not issues or (issues[0].root is None and not issues[0].gives):
            return
        for place, member in enumerate(self.program.groups[issues[0].group].members):
            if issues[0].root is not None and member != issues[0].root:
                yield Fault("root", played.rank, played.thread, played.at, value=member)
            if issues[0].gives and member != played.rank:
                yield Fault("splits", played.rank, played.thread, played.at, value=place)


def observe(play: Play, rank: int, loss: Loss) -> object:
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


FAULTS = (
    "none", "host_stop", "host_stop", "device_stop", "skip", "extra", "size", "dtype", "kind",
    "root", "splits", "peer", "order", "wrong_group", "drift", "two",
)  # fmt: skip
_SINGLE = tuple(kind for kind in CAUSES)


def random_transport(random: Random) -> Transport:
    return Transport(
        eager=random.random() < 0.3,
        tolerant=random.random() < 0.2,
        lanes=1 if random.random() < 0.15 else 1_000_000,
        queue=random.randint(4, 16) if random.random() < 0.15 else 1024,
    )


def make_trial(seed: int) -> Trial | None:
    """The trial of that seed; None if its fault has no place, or leaves nothing open."""
    random = Random(seed)
    program = random.choice(SHAPES)(random)
    kind = random.choice(FAULTS)
    program = replace(program, transport=random_transport(random))
    return assemble(seed, random, program, kind)


def _shows(program: Program, played: Play, faults: tuple[Fault, ...]) -> bool:
    """All ended, and yet a buffer holds arguments that differ."""
    ended = not played.open and not played.unfinished and program.transport.tolerant
    return ended and all(fault.kind in ("size", "dtype") for fault in faults)


def assemble(seed: int, random: Random, program: Program, kind: str) -> Trial | None:
    healthy = play_with(program, ())
    if healthy.open or healthy.unfinished:
        return None  # Not legal with so few lanes.
    if kind == "none":
        faults: tuple[Fault, ...] = ()
    elif kind == "two":
        kinds = [random.choice(_SINGLE) for _ in range(2)]
        made = [random_fault(random, program, one) for one in kinds]
        found = [fault for fault in made if fault is not None]
        if len({fault.rank for fault in found}) < 2:
            return None
        faults = tuple(found)
    else:
        fault = random_fault(random, program, kind)
        if fault is None:
            return None
        faults = (fault,)
    played = play_with(program, faults)
    if faults and not played.open and not _shows(program, played, faults):
        return None  # No operation shows it, so no dump can.
    count = random.choice((0, 0, 1, 1, 2))
    kinds_of_loss = tuple(random.sample(KINDS, count))
    if program.size == 2:
        kinds_of_loss = tuple(one for one in kinds_of_loss if one != "missing")
    loss = random_loss(random, played, kinds_of_loss)
    if not faults and random.random() < 0.5:
        loss = replace(loss, waited_s=random.uniform(0.05, 10))
    return Trial(seed, program, faults, played, loss)
