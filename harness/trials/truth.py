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
this one, has the opposite fault at them: of two who disagree nobody knows which is odd.  And those
that wait in a collective which no file shows: they look as if they had never come.
All others are innocent, and no verdict may name them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from math import inf

from hanglab.harness.trials.company import (
    another_program,
    draw_company,
    earlier_moment,
    lists_everybody,
)
from hanglab.harness.trials.dumps import is_visible, moment_of
from hanglab.harness.trials.explanations import ExplainedPlay
from hanglab.harness.trials.faults import (
    CAUSES,
    DIFFERENCES,
    IN_ARGUMENTS,
    STOPPED,
    STOPS,
    UNSEEN,
    Fault,
    change,
    partners,
    play_with,
    renamed,
)
from hanglab.harness.trials.losses import Loss
from hanglab.harness.trials.lost_counts import counts_are_lost
from hanglab.harness.trials.player import Play, Played
from hanglab.harness.trials.programs import ANY, Batch, Issue, Program, issues_of
from hanglab.harness.trials.rings_of_waits import RingsOfWaits
from hanglab.harness.trials.stopped_together import StoppedTogether

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
        dumped = frozenset(range(self.program.size)) - self.loss.missing
        found = {m for f in self.faults for m in partners(self.program, f, self._voters(f), dumped)}
        found |= {rank for f in self.faults for rank in self._alone_in_wait(f)}
        found |= {rank for f in self.faults for rank in self._may_have_swapped(f)}
        rings = RingsOfWaits(self.program, self.play, self.loss)
        found |= {rank for f in self.faults for rank in rings.with_culprit(f)}
        found |= {rank for f in self.faults for rank in self._in_exchange(f)}
        found |= {rank for rank in dumped if self._waits_out_of_sight(rank)}
        return frozenset(found) - self.culprits

    def _waits_out_of_sight(self, rank: int) -> bool:
        """True if all that a rank has open are collectives of gloo that no file shows.

        Then its files are those of one that never came to what its peers wait in.
        """
        held = [o for o in self.play.operations[rank] if o.done == inf]
        return bool(held) and all(
            o.gloo and issues_of(o.step)[0].peer is None and not self.dumped.is_in_sight(o.step)
            for o in held
        )

    def _in_exchange(self, fault: Fault) -> set[int]:
        """Members whose dumps show them in the exchange of which a culprit's lists differ.

        No buffer holds lists, and their sums accuse all alike: only who has ended it is out of it.
        """
        if fault.kind != "splits":
            return set()
        odd = [
            o for o in self.play.operations[fault.rank]
            if (o.thread, o.at) == (fault.thread, fault.at)
        ]  # fmt: skip
        return {
            o.rank for o in self.dumped.open_in_sight() for one in odd
            if o.group == one.group and self._number(o) == self._number(one)
        }  # fmt: skip

    def _number(self, played: Played) -> int:
        return self.dumped.issued(played.rank, played.group, played)

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

    def _may_have_swapped(self, fault: Fault) -> set[int]:
        """The one other rank in a call left out and in the next, in which the culprit stands.

        Until that goes on one of the two has swapped them, and nobody else is in both to tell.
        """
        steps = self.program.ranks[fault.rank][fault.thread]
        left_out = issues_of(steps[fault.at])[fault.part] if fault.kind == "skip" else None
        later = [
            o
            for o in self.play.operations[fault.rank]
            if o.thread == fault.thread and o.at >= fault.at
        ]
        if left_out is None or left_out.peer is not None or len(later) != 1:
            return set()
        instead = issues_of(later[0].step)[0]
        if later[0].done < inf or instead.peer is not None:
            return set()
        groups = self.program.groups
        both = set(groups[left_out.group].members) & set(groups[instead.group].members)
        return both - {fault.rank} if len(both & self._seen_at(fault)) < 3 else set()

    def _voters(self, fault: Fault) -> frozenset[int]:
        """Ranks that are seen then, and do nothing wrong of their own in a group of that fault."""
        others = {
            other.rank
            for other in self.faults
            if other is not fault and self._groups_of(other) & self._groups_of(fault)
        }
        seen = self._seen_at(fault) - others
        return frozenset(rank for rank in seen if not self._is_held_before(rank, fault))

    def _is_held_before(self, rank: int, fault: Fault) -> bool:
        """The rank waits, and has yet to issue what the culprit's call met, or was to meet.

        What its program has there it has not shown.
        """
        theirs = self.play.operations[rank]
        if fault.kind not in DIFFERENCES or all(o.done < inf for o in theirs):
            return False
        mine = [
            o.group for o in self.play.operations[fault.rank]
            if o.thread != fault.thread or o.at < fault.at
        ]  # fmt: skip
        issued, groups = [o.group for o in theirs], self.program.groups
        return any(
            issued.count(group) <= mine.count(group)
            for group in self._groups_of(fault)
            if rank in groups[group].members
        )

    def _groups_of(self, fault: Fault) -> set[str]:
        """Groups of the step that a fault changes, and the one that is taken for it.

        Or those that the rank calls by other names.
        """
        if fault.kind == "drift":
            return set(renamed(self.program, fault))
        steps = self.program.ranks[fault.rank][fault.thread]
        at = fault.value if fault.kind == "extra" else fault.at
        found = {issue.group for issue in issues_of(steps[at])} if at < len(steps) else set()
        if fault.kind == "wrong_group":
            found.add(list(self.program.groups)[fault.value])
        return found

    def _seen_at(self, fault: Fault) -> frozenset[int]:
        """Ranks whose dumps hold what they did when the fault struck.

        Or the name of a group of which the culprit's dump holds another one, if any do.
        """
        odd = self._groups_of(fault) & self._names_told(fault.rank)
        telling = frozenset(
            rank for rank in range(self.program.size)
            if rank not in self.loss.missing and odd & self._names_told(rank)
        )  # fmt: skip
        if fault.kind == "drift" and telling - {fault.rank}:
            return telling
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
                e.played.done >= when for e in self.dumped.ring(rank).entries
            )
            and (fault.kind not in IN_ARGUMENTS or self._shows_its_part(rank, fault))
        )  # fmt: skip

    def _shows_its_part(self, rank: int, fault: Fault) -> bool:
        """The rank's ring holds its part of the operation with other arguments, or it has none."""
        mine = self.program.ranks[fault.rank][fault.thread][fault.at]
        issue = issues_of(mine)[fault.part]
        if issue.peer is not None and issue.peer != rank:
            return True
        end = next(
            (o for o in self.play.operations[fault.rank]
             if (o.thread, o.at) == (fault.thread, fault.at)), None
        )  # fmt: skip
        if end is None:
            return True

        def parts(one: int, until: float = inf) -> list[tuple[Played, Issue]]:
            return [
                (o, i) for o in self.play.operations[one] if o.number <= until
                for i in issues_of(o.step)
                if i.group == issue.group and ((i.peer is None) if issue.peer is None else (
                    i.peer == fault.rank + rank - one
                    and (i.kind == issue.kind) == (one == fault.rank)
                ))
            ]  # fmt: skip

        before, theirs = len(parts(fault.rank, end.number)), parts(rank)
        kept = {(entry.played, entry.part) for entry in self.dumped.ring(rank).entries}
        return len(theirs) < before or theirs[before - 1] in kept

    @cached_property
    def dumped(self) -> ExplainedPlay:
        return ExplainedPlay(self.program, self.play, self.loss)

    @cached_property
    def corrupt(self) -> bool:
        """Operations ended although their arguments differ.

        Unless the dumps, taken on the way, are those of a job in which they never end.
        """
        if not self.faults or self.stuck:
            return False
        strict = replace(self.program.transport, tolerant=False)
        hung = play_with(replace(self.program, transport=strict), self.faults)
        return not self.dumped.leaves(hung)

    @cached_property
    def healthy_too(self) -> bool:
        """The program without a fault leaves the same dumps, or one that was a moment further.

        Dumps of a job on its way show nothing wrong where rings are as the program writes them,
        and nothing is open; by a fault that is yet to be seen times have shifted.
        """
        if not self.faults or self.dumped.leaves(play_with(self.program, ())):
            return True
        early = not self.loss.settled and not self._shows_open
        return early and all(
            self._begins_alike(fault.rank)
            or self._is_of_messages(fault)
            or self._is_of_threads(fault)
            for fault in self.faults
        )

    def _is_of_threads(self, fault: Fault) -> bool:
        """The fault is of one of several threads, and all members show the same calls of a group.

        Threads take turns as they like: where all has ended, the calls that another thread made, in
        a program that gives it one more and that one fewer, are as sound.
        """
        return len(self.program.ranks[fault.rank]) > 1 and all(
            len({self._calls_shown(rank, name) for rank in {*group.members} - self.loss.missing})
            <= 1
            for name, group in self.program.groups.items()
        )

    def _calls_shown(self, rank: int, group: str) -> tuple[object, ...]:
        """The name of the group at the rank, and its calls of it, but for lines and threads."""
        parts = (e.part for e in self.dumped.ring(rank).entries if e.group == group)
        calls = ((p.kind, p.peer, p.dtype, p.numel) for p in parts if p is not None)
        return self.play.program.name(rank, group), *calls

    def _is_of_messages(self, fault: Fault) -> bool:
        """The fault is one of sends and receives: those that have ended could be so in any program.

        Unless the two halves have other arguments.
        """
        steps = self.program.ranks[fault.rank][fault.thread]
        at = fault.value if fault.kind == "extra" else fault.at
        issues = issues_of(steps[at]) if at < len(steps) else ()
        plain = fault.kind not in IN_ARGUMENTS and fault.kind not in ("drift", *STOPS)
        return plain and bool(issues) and all(issue.peer is not None for issue in issues)

    @cached_property
    def rivals(self) -> frozenset[int]:
        """Ranks besides the culprits that would leave the same dumps by a fault of their own."""
        if not self.faults:
            return frozenset()
        together = StoppedTogether(self.program, self.play, self.loss).besides(self.culprits)
        if self._told_by_its_ring():
            return together
        others = set(range(self.program.size)) - self.culprits - together
        explaining = {rank for rank in others if self.dumped.explained_by(rank)}
        return together | self._out_of_sight() | explaining

    def _out_of_sight(self) -> frozenset[int]:
        """Ranks without an open operation to see, where messages are not to be seen.

        Who waits for whom there is known to the program alone, which nobody has who analyzes.  Of
        gloo's collectives beside NCCL nothing shows, not even that there are any: what such files
        tell is what those of a job without them do.
        If the culprit is such a rank, whoever makes such operations may have left out the other
        half of one that the culprit is in, if something shows that there are any.
        """
        program, found, hiding = self.program, set(), set()
        for rank, mine in enumerate(self.play.operations):
            seen = [o for o in mine if is_visible(program, issues_of(o.step)[0], self.loss)]
            hidden = any(
                issue.peer is not None and not is_visible(program, issue, self.loss)
                for steps in program.ranks[rank] for step in steps for issue in issues_of(step)
            )  # fmt: skip
            if hidden and self.dumped.shows_gloo:
                hiding.add(rank)
            if hidden and all(o.done < inf for o in seen):
                found.add(rank)
        return frozenset(hiding if found & self.culprits else found) - self.culprits

    @property
    def decidable(self) -> bool:
        if (
            self.loss.company == "earlier_moment"
            or not self.loss.settled
            or not self.loss.file_times
        ):
            return False
        if not self.faults:
            whole = not self.loss.missing and not self._size_unknown and self._company_is_healthy
            return whole and self.loss.waited_s <= RECENT_S and self._dated
        if any(map(self._votes_lack, self.faults)) or any(map(self._is_anybodys, self.faults)):
            return False
        if any(map(self._may_be_own_order, self.faults)):
            return False
        if any(counts_are_lost(self.program, self.play, self.loss, one) for one in self.faults):
            return False
        if self.stuck and not self._shows_open:
            return False
        return not self.rivals and not self.healthy_too and not self.dumped.stalls_without_fault

    @property
    def _shows_open(self) -> bool:
        """Some dump has something that has not ended."""
        return any(True for _ in self.dumped.open_in_sight())

    @property
    def _dated(self) -> bool:
        """An entry is left that tells when something was done last; counts alone do not."""
        return any(self.dumped.ring(rank).entries for rank in range(self.program.size))

    @property
    def _size_unknown(self) -> bool:
        """No file lists the members of a group of all: there may be a rank more than files."""
        return not lists_everybody(self.program)

    @property
    def _company_is_healthy(self) -> bool:
        """True if the job beside it could be called healthy by itself."""
        _, random = draw_company(self.seed)
        return self.loss.company != "another_job" or lists_everybody(
            another_program(random, self.program)
        )

    def _is_anybodys(self, fault: Fault) -> bool:
        """The one that was to collect takes another for the root, so that nobody collects.

        Only a root has outputs of a gather, so no file tells which member was to be it.
        """
        if fault.kind != "root":
            return False
        (issue,) = issues_of(self.program.ranks[fault.rank][fault.thread][fault.at])
        return issue.kind == "gather" and issue.root == fault.rank

    def _may_be_own_order(self, fault: Fault) -> bool:
        """Each of two swapped collectives has a member that left no dump.

        On streams that do not wait for each other ranks may have orders of their own, and both lack
        a part if such a member stopped.  What all have issued who left dumps would have run.
        """
        if fault.kind != "order":
            return False
        steps = self.program.ranks[fault.rank][fault.thread]
        issues = [issues_of(steps[at])[0] for at in (fault.at, fault.value)]
        groups = [self.program.groups[issue.group] for issue in issues]
        return all(
            issue.peer is None and group.backend == "nccl" and self.loss.missing & {*group.members}
            for issue, group in zip(issues, groups, strict=True)
        )

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
        if any(map(self._swaps_out_of_sight, self.faults)):
            found |= CAUSES["extra"] | STOPPED  # Of a job without that operation.
        if any(map(self._is_from_elsewhere, self.faults)):
            found |= {"collective_mismatch"}
        # No buffer holds a root, or split lists: another one may look like a stop of its rank.
        if any(map(self.dumped.may_have_stopped, hidden)):
            return found | STOPPED
        return found | STOPPED if any(map(self._may_be_all_calls, self.faults)) else found

    def _may_be_all_calls(self, fault: Fault) -> bool:
        """True if a program in which all call so leaves the files, where the culprit stopped.

        Then no dump holds what its peers called.
        """
        if fault.kind not in IN_ARGUMENTS:
            return False
        places = self._places_of_peers(fault)
        if places is None:
            return False
        program = self.program
        for rank, thread, at, part in places:
            program = change(program, replace(fault, rank=rank, thread=thread, at=at, part=part))
        return replace(self.dumped, program=program).may_have_stopped(fault.rank)

    def _is_from_elsewhere(self, fault: Fault) -> bool:
        """True if the culprit calls from a line of its own, of which its file has no earlier call.

        Then nobody knows that it is its peers' call, with other arguments.
        """
        places = self._places_of_peers(fault) if fault.kind in ("size", "dtype") else None
        if not places:
            return False
        mine = self._issue_at(fault.rank, fault.thread, fault.at, fault.part)
        peers = [self._issue_at(*place) for place in places if place[0] != fault.rank]
        earlier = [
            entry.part for entry in self.dumped.ring(fault.rank).entries
            if entry.part is not None and entry.played.at < fault.at
        ]  # fmt: skip
        own = all(one.line != mine.line for one in peers)
        return own and all(one.line != mine.line for one in earlier)

    def _issue_at(self, rank: int, thread: int, at: int, part: int) -> Issue:
        return issues_of(self.program.ranks[rank][thread][at])[part]

    def _places_of_peers(self, fault: Fault) -> list[tuple[int, int, int, int]] | None:
        """Rank, thread, step and part of what all call in the culprit's collective.

        None for a message, and where the turns of threads give the numbers.
        """
        changed = self._issue_at(fault.rank, fault.thread, fault.at, fault.part)
        if changed.peer is not None:
            return None
        group = changed.group
        steps = self.program.ranks[fault.rank][fault.thread]
        before = (issue for step in steps[: fault.at] for issue in issues_of(step))
        number = sum(issue.group == group and issue.peer is None for issue in before)
        found = []
        for rank, threads in enumerate(self.program.ranks):
            places = [
                (rank, thread, at, part) for thread, steps in enumerate(threads)
                for at, step in enumerate(steps) for part, issue in enumerate(issues_of(step))
                if issue.group == group and issue.peer is None
            ]  # fmt: skip
            if len({thread for _, thread, *_ in places}) > 1:
                return None
            found += places[number : number + 1]
        return found

    def _swaps_out_of_sight(self, fault: Fault) -> bool:
        """True if no buffer holds one of the two operations that a rank has swapped."""
        steps = self.program.ranks[fault.rank][fault.thread]
        return fault.kind == "order" and not all(
            self.dumped.is_in_sight(steps[at]) for at in (fault.at, fault.value)
        )

    def _told_by_its_ring(self) -> bool:
        """A culprit's ring holds what no rank does without a fault of its own."""
        return any(
            fault.kind not in ("host_stop", "device_stop")
            and dumped.observed[fault.rank] is not None
            and not self._begins_alike(fault.rank, dumped)
            for dumped in (self.dumped, *self._dumped_before)
            for fault in self.faults
        )

    @cached_property
    def _dumped_before(self) -> tuple[ExplainedPlay, ...]:
        """The dumps of an earlier moment that lie in the same folder."""
        if self.loss.company != "earlier_moment":
            return ()
        _, random = draw_company(self.seed)
        loss = earlier_moment(random, self.play, self.loss)
        return (ExplainedPlay(self.program, self.play, loss),)

    def _begins_alike(self, rank: int, dumped: ExplainedPlay | None = None) -> bool:
        """True if the rest of the rank's buffer is as its program, so far, writes it."""
        dumped = dumped or self.dumped
        kept = {entry.played for entry in dumped.ring(rank).entries}
        for thread, steps in enumerate(self.program.ranks[rank]):
            planned = [
                step for step in steps
                if isinstance(step, Issue | Batch) and dumped.is_in_sight(step)
            ]  # fmt: skip
            mine = [
                o for o in self.play.operations[rank]
                if o.thread == thread and dumped.is_in_sight(o.step)
            ]  # fmt: skip
            for plan, one in zip_longest(planned, mine):
                if one in kept and (
                    plan is None or dumped.seen_part(plan) != dumped.seen_part(one.step)
                ):
                    return False
        named = {group for odd, group in self.play.program.names if odd == rank}
        return named.isdisjoint(self._names_told(rank))

    def _names_told(self, rank: int) -> set[str]:
        """Groups whose names the rank's dump holds: in its list of groups, or in an entry."""
        program = self.program
        listed = {g for g in program.groups_of(rank) if program.groups[g].backend == "nccl"}
        return listed | {entry.group for entry in self.dumped.ring(rank).entries}
