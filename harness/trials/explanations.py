"""Other faults, or none, that leave the files that a play left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from hanglab.harness.trials.faults import STOPS, Fault, play_with
from hanglab.harness.trials.observation import DumpedPlay
from hanglab.harness.trials.player import GLOO_WORKERS, Played, Stops, play
from hanglab.harness.trials.programs import Transport, issues_of


@dataclass(frozen=True, eq=False)
class ExplainedPlay(DumpedPlay):
    """A play, and other programs held against its files; times differ from run to run."""

    def explained_by(self, rank: int) -> bool:
        """True if another fault of the rank leaves the files."""
        if self._held_by_nothing - {rank}:
            return False
        faults = [*self._hypotheses(rank)]
        devices = (Stops(devices={rank: f.at}) for f in faults if f.kind == "device_stop")
        return any(map(self._leaves_by, faults)) or self._any_leaves(map(self._followed, devices))

    def _followed(self, stops: Stops) -> Stops:
        """The stops, and each rank's oldest open operation before all later ones of its thread.

        No buffer tells whether a stream waits for what was issued before.
        """
        return replace(stops, followed=self._oldest_held)

    @cached_property
    def _oldest_held(self) -> dict[int, int]:
        """By rank, the first operation behind which none has ended."""
        held = {}
        for rank, mine in enumerate(self.play.operations):
            first = 1 + max((o.number for o in mine if o.done < inf), default=-1)
            later = mine[first + 1 :]
            unseen = rank in self.loss.missing and first < len(mine)
            if unseen or any(one.thread == mine[first].thread for one in later):
                held[rank] = first
        return held

    def may_have_stopped(self, rank: int) -> bool:
        """True if a stop of the rank leaves the files: a device may stop in what it has begun."""
        if self._held_by_nothing - {rank}:
            return False
        stops = (fault for fault in self._hypotheses(rank) if fault.kind in STOPS)
        within = (
            Stops(cut=(rank, o.number)) for o in self.open_in_sight()
            if o.rank == rank and o.started < inf
        )  # fmt: skip
        return any(map(self._leaves_by, stops)) or self._any_leaves(within)

    def _leaves_by(self, fault: Fault) -> bool:
        """True if that fault alone leaves the files, on one of the transports."""
        return any(
            self.leaves(play_with(replace(self.program, transport=transport), (fault,)))
            for transport in self._transports()
        )

    @cached_property
    def stalls_without_fault(self) -> bool:
        """An operation that some rank is in leaves the same dumps if it stalls without a fault.

        All have come to it, as far as their dumps tell, and its network, or its library, does not
        let it end: for all who are in it, or for one whose connection is cut.  Few dumps tell
        whether a device has begun it, so it may be any that is open.
        """
        if self._held_by_nothing:
            return False
        seen = [o for o in self.open_in_sight() if self._may_hold(o)]
        stalls = {
            self._stalled_part(o, place): Stops(stalled=(o.rank, o.number, place))
            for o in seen for place in range(len(o.parts))
        }  # fmt: skip
        cuts = [Stops(cut=(o.rank, o.number)) for o in seen if o.gloo or self._is_passed_on(o)]
        stops = [*stalls.values(), *cuts]
        followed = map(self._followed, stops) if self._oldest_held else ()
        return self._any_leaves(stops) or self._any_leaves(followed)

    def _is_passed_on(self, played: Played) -> bool:
        """A rooted collective of which some member left no dump.

        NCCL passes it from neighbour to neighbour, so that one may hold up who comes behind it.
        """
        members = set(self.program.groups[played.group].members)
        return played.parts[0].root is not None and bool(members & self.loss.missing)

    def _may_hold(self, played: Played) -> bool:
        """False if it cannot have begun, or a member's whole buffer shows that it did not come.

        What comes before it on its stream holds it then, or whatever holds that member.
        """
        mine = self.play.operations[played.rank]
        before = sum(
            o.stream == played.stream and o.done == inf for o in mine[: played.number]
        ) if played.stream is not None else 0  # fmt: skip
        if before >= (GLOO_WORKERS if played.gloo else 1):
            return False
        issue = played.parts[0]
        if issue.peer is not None or issue.root is not None or not self._is_whole(played.rank):
            return True
        calls = self.issued(played.rank, played.group, played)
        return all(
            self.issued(member, played.group) >= calls
            for member in self.program.groups[played.group].members if self._is_whole(member)
        )  # fmt: skip

    def _is_whole(self, rank: int) -> bool:
        """The rank's file lists all that it issued, but for what had ended, and tells that."""
        threads = self.program.ranks[rank]
        return (
            rank not in self.loss.missing
            and self.loss.moments[rank] == inf
            and not self.ring(rank).dropped
            and all(
                self.is_in_sight(step) for steps in threads for step in steps if issues_of(step)
            )
        )

    @cached_property
    def _held_by_nothing(self) -> set[int]:
        """Ranks that have ended all that they issued, and have more to issue: theirs is a fault."""
        found = set()
        for rank, threads in enumerate(self.program.ranks):
            mine = self.play.operations[rank]
            planned = sum(bool(issues_of(step)) for steps in threads for step in steps)
            if all(o.done < inf for o in mine) and len(mine) < planned and self._is_whole(rank):
                found.add(rank)
        return found

    def _stalled_part(self, played: Played, place: int) -> object:
        """Equal for parts that stall alike: a collective without a root lets nobody go before.

        If their numbers are those of the program without a fault, on any transport: a fault before
        them shifts these, and so do the turns of threads.
        """
        part, threads = played.parts[place], self.program.ranks[played.rank]
        steps = threads[played.thread]
        as_meant = len(threads) == 1 and played.at < len(steps) and steps[played.at] is played.step
        if not as_meant or part.peer is not None or part.root is not None:
            return played.rank, played.number, place
        return played.group, self.issued(played.rank, played.group, played)

    def _any_leaves(self, stops: Iterable[Stops]) -> bool:
        """True if one of these stops, and no fault in the program, leaves the files."""
        return any(
            self.leaves(play(replace(self.program, transport=transport), one))
            for one in stops
            for transport in self._transports()
        )

    def _transports(self) -> list[Transport]:
        """That of the job, and others, as dumps do not tell which it had."""
        own = self.program.transport
        kinds = [
            replace(own, eager=eager, lanes=lanes)
            for eager in (own.eager, not own.eager) for lanes in (own.lanes, Transport().lanes, 1)
        ]  # fmt: skip
        all_kinds = (own, Transport(), Transport(eager=True), *kinds)
        return list(dict.fromkeys(map(self._as_far_as_it_matters, all_kinds)))

    def _as_far_as_it_matters(self, transport: Transport) -> Transport:
        """The transport without what no program of these groups can show."""
        sends, streams = self._uses
        if not sends:
            transport = replace(transport, eager=False)
        return transport if streams > 1 else replace(transport, lanes=Transport().lanes)

    @cached_property
    def _uses(self) -> tuple[bool, int]:
        """True with messages or roots; and the most streams of NCCL that a rank may use."""
        issues = [
            (rank, issue) for rank, threads in enumerate(self.program.ranks)
            for steps in threads for step in steps for issue in issues_of(step)
        ]  # fmt: skip
        sends = any(i.peer is not None or i.root is not None for _, i in issues)
        streams = Counter(
            rank for rank, *_ in {
                (rank, i.group, i.peer) for rank, i in issues
                if self.program.groups[i.group].backend == "nccl"
            }
        )  # fmt: skip
        return sends, max(streams.values(), default=0)

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
        yield from self._out_of_sight(rank)
        for played in mine:
            is_open = played.done == inf or self._is_open_elsewhere(played)
            if is_open and played.at < len(self.program.ranks[rank][played.thread]):
                yield from self._unseen_arguments(played)

    def _out_of_sight(self, rank: int) -> Iterator[Fault]:
        """Faults at operations that no buffer holds, which the rank may have come to, or not.

        None where nothing shows that there are such: then a job without them leaves these files.
        """
        if not self.shows_gloo:
            return
        for thread, steps in enumerate(self.program.ranks[rank]):
            for at, step in enumerate(steps):
                if issues_of(step) and not self.is_in_sight(step):
                    yield Fault("skip", rank, thread, at)
                    yield from (Fault("host_stop", rank, thread, at + after) for after in (0, 1))

    def _is_open_elsewhere(self, played: Played) -> bool:
        """A rank ended its part of a collective which another one is in: it may lack that part."""
        mine = issues_of(played.step)[0]
        return mine.peer is None and any(
            other.done == inf
            and other.group == played.group
            and issues_of(other.step)[0].peer is None
            and self.issued(other.rank, other.group, other)
            == self.issued(played.rank, played.group, played)
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
