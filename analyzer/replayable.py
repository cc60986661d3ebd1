"""A job's Program as it can be run: what each rank called, waited for, and where it stopped.

What was finished by all and is no longer in every ring is left out, group by group: that takes
nothing from the hang, since whatever is left out met its like on every rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from hanglab.analyzer.assumed_calls import RecordedCall, assume_calls, peer_of
from hanglab.analyzer.calibration import calibrate
from hanglab.analyzer.engine import conclude, gravest
from hanglab.analyzer.errors import InputError
from hanglab.analyzer.facts.assembly import gather_worlds
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.flight_recorder.columns import Bool, Entries, RankDump
from hanglab.analyzer.matching.completion import completed
from hanglab.analyzer.matching.entry_queries import thread_of
from hanglab.analyzer.matching.signatures import CODE
from hanglab.analyzer.program.program import Action, Program, ProgramGroup
from hanglab.analyzer.program.reading import action_of
from hanglab.analyzer.recorded_endings import (
    WITHIN_CALLS,
    EndingKind,
    RecordedEnding,
    recorded_before_stop,
    recorded_endings,
    words_of,
)
from hanglab.analyzer.replay_limits import reason_in_graphs, reason_outside
from hanglab.analyzer.source_positions import SourcePosition, differ, source_positions
from hanglab.analyzer.verdict import Status, Verdict
from hanglab.analyzer.wording import name_ranks
from hanglab.recorder.case.backends import backend_of
from hanglab.recorder.case.operations import OPERATIONS, op_of

#: torch's names of the dtypes that Flight Recorder names otherwise.
DTYPES: Mapping[str, str] = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Byte": "uint8",
    "Char": "int8",
    "Bool": "bool",
}


class NotReplayable(InputError):
    """Evidence from which no Program follows that could be run."""

    advice = "Look at `hanglab analyze` and `hanglab entries`: they show what the dumps do tell."
    exit_code = 2


@dataclass
class ReplayableJob:
    """``calls[r]`` is what rank r did; after them an idle rank stands still and others wait."""

    verdict: Verdict
    backend: str
    groups: tuple[ProgramGroup, ...]
    calls: list[list[RecordedCall]]
    #: Ranks that ended by themselves; in a hang, others that wait for nothing stand still.
    ended: frozenset[int]
    #: Ends that are no call, by rank.
    endings: Mapping[int, RecordedEnding]
    #: What ranks did that is no call before the call in which they stopped, by rank.
    before_stop: Mapping[int, Sequence[RecordedEnding]] = field(default_factory=dict)
    #: Places in the source at which ranks wait, by rank, where they are not the same for all.
    positions: Mapping[int, SourcePosition] = field(default_factory=dict)
    #: What was taken for granted where the evidence does not tell, one sentence each.
    assumptions: list[str] = field(default_factory=list)
    #: Of a job on an enqueuing backend: each call is waited for by what its device runs next.
    device_waits: bool = False


def read_replayable(path: Path) -> ReplayableJob:
    """The job whose verdict ``hanglab analyze`` gives.  Raises InputError and NotReplayable."""
    worlds = gather_worlds(path)
    verdicts = [conclude(facts) for facts in worlds]
    verdict = gravest(worlds, verdicts)
    facts = worlds[verdicts.index(verdict)]
    verdict = calibrate(verdict)
    if verdict.status not in (Status.HUNG, Status.FAILED, Status.CORRUPT):
        raise NotReplayable(
            f"The verdict on {path} is {verdict.status.value}: there is no hang to replay.",
            verdict.advice or None,
        )
    return _JobReader(facts, verdict).read()


def open_operations(path: Path, ranks: Collection[int]) -> set[tuple[str, tuple[int, ...]]]:
    """Operations, by name and members, that are open on peers of ``ranks`` in groups of theirs."""
    found: set[tuple[str, tuple[int, ...]]] = set()
    for facts in gather_worlds(path):
        groups = {
            (rank, group.name): tuple(group.members)
            for group in facts.graph.groups
            if not set(ranks).isdisjoint(group.members)
            for rank in group.members
        }
        for rank, dump in _dumps_of(facts).items():
            if dump.entries is None or rank in ranks:
                continue
            for row in np.flatnonzero(~completed(dump)).tolist():
                name = dump.entries.group_at(row)
                if (rank, name) in groups:
                    operation = dump.entries.operation_at(row)
                    found.add((operation.spec.program_name, groups[rank, name]))
    return found


def _dumps_of(facts: CaseFacts) -> dict[int, RankDump]:
    if facts.dumps or facts.graph.lookup is None:
        return dict(facts.dumps)
    ranks = facts.graph.ranks
    facts.graph.lookup.prefetch(ranks)
    found = {rank: facts.graph.lookup.dump(rank) for rank in ranks}
    return {rank: dump for rank, dump in found.items() if dump is not None}


class _JobReader:
    def __init__(self, facts: CaseFacts, verdict: Verdict) -> None:
        self._facts = facts
        self._verdict = verdict
        self._dumps = _dumps_of(facts)
        self._sites: dict[object, int] = {}
        self._assumptions: list[str] = []
        graph = facts.graph
        self._groups = tuple(
            ProgramGroup(group.name, tuple(group.members), group.description)
            for group in graph.groups
        )
        self._named = {
            (rank, group.name): number
            for number, group in enumerate(self._groups)
            for rank in group.members
        }
        self._tell_groups_of_one_name_apart()
        self._refuse_contradictions()
        known = [rank for group in self._groups for rank in group.members]
        self._size = max([*graph.expected, *graph.ranks, *known], default=-1) + 1

    def _tell_groups_of_one_name_apart(self) -> None:
        """Have a rank be in the group that it made itself, where others made another of that name.

        Groups are numbered as they are made, so ranks that make them in other orders differ.
        """
        places = {(one.name, one.members): number for number, one in enumerate(self._groups)}
        makers: dict[int, list[int]] = {}
        for rank, view in self._facts.ranks.items():
            for made in view.groups:
                number = places.get((made.id, tuple(made.ranks)))
                if number is not None:
                    self._named[rank, made.id] = number
                    makers.setdefault(number, []).append(rank)
        names = Counter(one.name for one in self._groups)
        self._groups = tuple(
            replace(one, makers=tuple(sorted(makers.get(number, ()))))
            if names[one.name] > 1
            else one
            for number, one in enumerate(self._groups)
        )

    def _refuse_contradictions(self) -> None:
        """Raises NotReplayable where dumps give groups of one name and rank other members."""
        for number, group in enumerate(self._groups):
            for rank in group.members:
                other = self._groups[self._named[rank, group.name]]
                if other is not self._groups[number] and not (group.makers and other.makers):
                    raise NotReplayable(
                        f"The dumps contradict each other: rank {rank} is in two groups called "
                        f"{group.name!r}, of {name_ranks(group.members)} and of "
                        f"{name_ranks(other.members)}, and no Program has both."
                    )

    def read(self) -> ReplayableJob:
        backends = Counter(
            operation.backend
            for dump in self._dumps.values()
            if dump.entries is not None
            for operation in dump.entries.operations
        )
        if not backends:
            raise NotReplayable("No dump has an entry, so nothing tells what the ranks called.")
        backend = backends.most_common(1)[0][0]
        if len(backends) > 1:
            self._assume(f"all groups are taken for {backend}'s, the most frequent backend here")
        calls = [self._calls(rank) for rank in range(self._size)]
        self._stop_devices(calls)
        for rank, waits in assume_calls(calls, self._groups, self._verdict.culprits):
            end = "and waits in what they wait in" if waits else "and then stood still"
            self._assume(
                f"rank {rank}, which left no entries, made the calls that its peers show, {end}"
            )
        self._begin_together(calls)
        endings = {
            rank: ending
            for rank, ending in recorded_endings(self._facts).items()
            if rank < len(calls)
            and (ending.kind in WITHIN_CALLS or all(call.finished for call in calls[rank]))
        }
        for rank, ending in sorted(endings.items()):
            self._assume(f"rank {rank} ends as its evidence says: {ending.words}")
        before_stop = {
            rank: done
            for rank, done in recorded_before_stop(self._facts).items()
            if rank < len(calls)
        }
        for rank, done in sorted(before_stop.items()):
            self._assume(f"rank {rank} does before it stops as its evidence says: {words_of(done)}")
        positions = {
            rank: position
            for rank, position in source_positions(self._facts).items()
            if rank < len(calls) and calls[rank] and not calls[rank][-1].finished
        }
        by_loops = any(one.kind is EndingKind.LEFT_LOOP for one in endings.values())
        positions = {} if by_loops or not differ(positions) else positions
        self._tell_positions(positions)
        ended = frozenset(
            rank
            for rank, view in self._facts.ranks.items()
            if view.exit is not None and not view.exit.by_recorder
        )
        reason = reason_outside(self._verdict, endings, before_stop, case=self._facts.case)
        reason = reason or reason_in_graphs(self._facts, self._verdict)
        if reason is not None:
            raise NotReplayable(reason, self._verdict.advice or None)
        return ReplayableJob(
            self._verdict,
            backend,
            self._groups,
            calls,
            ended,
            endings,
            before_stop,
            positions,
            self._assumptions,
        )

    def _tell_positions(self, positions: Mapping[int, SourcePosition]) -> None:
        places: dict[str, list[int]] = {}
        for rank, position in sorted(positions.items()):
            if position.words:
                places.setdefault(position.words, []).append(rank)
        for words, ranks in places.items():
            self._assume(f"{name_ranks(ranks)}: the last call is made {words}, as stacks tell")

    def _assume(self, sentence: str) -> None:
        self._assumptions.append(sentence)

    def _calls(self, rank: int) -> list[RecordedCall]:
        dump = self._dumps.get(rank)
        if dump is None or dump.entries is None:
            return []
        if dump.damage:
            self._assume(f"rank {rank}'s dump is damaged, and taken for one without entries")
            return []
        entries, done = dump.entries, completed(dump)
        done[list(self._facts.graph.exchanged.get(rank, ()))] = True
        found: list[RecordedCall] = []
        rows: list[int] = []
        last: dict[int, int] = {}
        #: Most calls are made again and again, from one line and with the same arguments.
        known: dict[tuple[int, ...], Action] = {}
        names = [group.name for group in entries.group_names]
        kinds = zip(
            entries.operation.tolist(),
            entries.argument.tolist(),
            entries.stack.tolist(),
            entries.group.tolist(),
            strict=True,
        )
        times, numbers = entries.created_ns.tolist(), entries.seq.tolist()
        for row, kind in enumerate(kinds):
            name = entries.operations[kind[0]].op
            spec = op_of(name)
            number = self._named.get((rank, names[kind[3]]))
            if spec.batch_end or number is None:
                continue
            if name not in OPERATIONS:
                raise NotReplayable(f"Rank {rank} called {name}, which is no known operation.")
            seq: int | None = None if spec.p2p else numbers[row]
            if seq is not None and last.get(number) == seq:
                continue  # coalesced operations share their number
            if seq is not None:
                last[number] = seq
            posted = row in dump.posted or _went_on(entries, row, done)
            if kind not in known:
                known[kind] = self._action(entries, row, number)
            found.append(RecordedCall(known[kind], bool(done[row]), posted, seq, times[row]))
            rows.append(row)
        return self._in_threads(rank, found, [thread_of(entries, row) for row in rows])

    def _in_threads(
        self, rank: int, calls: list[RecordedCall], threads: list[str]
    ) -> list[RecordedCall]:
        """The calls with the thread of each that is open, where those of several are."""
        waiting = [
            name for name, call in zip(threads, calls, strict=True) if name and not call.finished
        ]
        if len(set(waiting)) < 2:
            return calls
        main = Counter(threads).most_common(1)[0][0]
        numbers = {name: number for number, name in enumerate(dict.fromkeys([main, *waiting]))}
        self._assume(f"rank {rank} makes its last calls from {len(numbers)} threads in their order")
        return [
            call
            if call.finished or not numbers.get(name)
            else replace(call, action=replace(call.action, thread=numbers[name]))
            for name, call in zip(threads, calls, strict=True)
        ]

    def _action(self, entries: Entries, row: int, group: int) -> Action:
        frame = CODE.innermost_user(entries.stack_at(row))
        place = (frame.file, frame.line) if frame is not None else None
        site = self._sites.setdefault(place, len(self._sites))
        return action_of(entries, row, self._groups, group, site)

    def _stop_devices(self, calls: list[list[RecordedCall]]) -> None:
        """Has a rank stand still that did not finish what all its peers did: its device stopped.

        Dumps of open calls alone leave out what had finished: all before the first open one.
        """
        reached: dict[int, dict[int, int]] = {}
        for rank, mine in enumerate(calls):
            for call in mine:
                if call.seq is not None:
                    of_group = reached.setdefault(call.action.group, {})
                    if call.finished:
                        of_group[rank] = call.seq + 1
                    else:
                        of_group.setdefault(rank, call.seq)
        for rank, mine in enumerate(calls):
            did = [call for call in mine if call.finished or self._passed(rank, call, reached)]
            if any(not call.finished for call in did):
                # Its host ran ahead of its device: what else is open never began.
                calls[rank] = [_finished(call) for call in did]
                self._assume(
                    f"rank {rank}, whose device stopped in what its peers finished, "
                    "stands still after it instead"
                )

    def _passed(
        self, rank: int, call: RecordedCall, reached: Mapping[int, Mapping[int, int]]
    ) -> bool:
        if call.seq is None or op_of(call.action.op).rooted:
            return False
        group = call.action.group
        peers = [seq for peer, seq in reached[group].items() if peer != rank]
        return bool(peers) and min(peers) > call.seq

    def _begin_together(self, calls: list[list[RecordedCall]]) -> None:
        """Leave out what not every ring has any more; all of it had finished."""
        first: dict[int, int] = {}
        counts: dict[tuple[str, int, int, int], int] = Counter()
        #: Ranks, and groups of theirs, that take messages from whoever sends one.
        any_source: set[tuple[int, int]] = set()
        for rank, mine in enumerate(calls):
            begins: dict[int, int] = {}
            for call in mine:
                if call.seq is not None:
                    begins.setdefault(call.action.group, call.seq)
                elif call.action.peer is None:
                    any_source.add((rank, call.action.group))
                elif call.finished:
                    counts[self._channel(rank, call)] += 1
            for group, seq in begins.items():
                first[group] = max(first.get(group, 0), seq)
        left_out = 0
        for rank, mine in enumerate(calls):
            kept: list[RecordedCall] = []
            surplus = {
                channel: count - counts[_opposite(channel)]
                for channel, count in counts.items()
                if channel[1 if channel[0] == "send" else 2] == rank
            }
            for call in mine:
                if call.seq is not None:
                    early = call.finished and call.seq < first[call.action.group]
                elif call.finished and call.action.peer is not None:
                    channel = self._channel(rank, call)
                    early = surplus[channel] > 0 and channel[2:] not in any_source
                    surplus[channel] -= 1
                else:
                    early = False
                if early:
                    left_out += 1
                else:
                    kept.append(call)
            calls[rank] = kept
        if left_out:
            self._assume(
                f"{left_out} finished calls that not every ring still has are left out: "
                "they met their like"
            )

    def _channel(self, rank: int, call: RecordedCall) -> tuple[str, int, int, int]:
        peer = peer_of(call, self._groups)
        assert peer is not None
        ends = (rank, peer) if call.action.op == "send" else (peer, rank)
        return call.action.op, *ends, call.action.group


def program_of(job: ReplayableJob, *, in_order: bool = False) -> Program:
    """The job's calls as a Program, as a replay on gloo makes them.

    ``in_order``: hosts wait in what has not finished, as their devices did.  Lines have numbers of
    their own, one for each operation that was called from them.
    """
    sites: dict[tuple[int, str], int] = {}
    known: dict[tuple[int, bool], Action] = {}

    def action_of(call: RecordedCall) -> Action:
        # Equal calls of a rank are one object, which is quicker to find than by what it is.
        key = id(call.action), goes_on(job, call) and (call.finished or not in_order)
        if key not in known:
            line = call.action.site, call.action.op
            known[key] = replace(
                call.action,
                site=sites.setdefault(line, len(sites) + 1),
                numel=max(call.action.numel, 0),
                overlap=key[1],
            )
        return known[key]

    return Program(job.groups, tuple(tuple(map(action_of, mine)) for mine in job.calls))


def goes_on(job: ReplayableJob, call: RecordedCall) -> bool:
    """True if the rank is to go on before the call has finished.

    Of messages that finished no gloo job tells whether their ranks waited for them.
    """
    if call.action.thread:
        return True
    if job.device_waits:
        return False
    if call.finished and not backend_of(job.backend).blocking:
        return True
    return call.posted or (call.finished and call.action.p2p)


def _opposite(channel: tuple[str, int, int, int]) -> tuple[str, int, int, int]:
    op, sender, receiver, group = channel
    return "recv" if op == "send" else "send", sender, receiver, group


def _finished(call: RecordedCall) -> RecordedCall:
    return replace(call, finished=True)


def _went_on(entries: Entries, row: int, done: Bool) -> bool:
    """True if the rank issued more while this was open, but for members of the same batch."""
    if bool(done[row]):
        return False
    later = slice(row + 1, None)
    batch = (entries.p2p_seq[later] == entries.p2p_seq[row]) & (entries.p2p_seq[row] > 0)
    return bool(np.any(~batch))


def small_sizes(calls: list[list[RecordedCall]]) -> Mapping[int, int]:
    """A small number of elements for each that occurs, so that equal ones stay equal."""
    known = sorted({call.action.numel for mine in calls for call in mine} - {0, 1})
    return {0: 0, 1: 1, **{numel: place for place, numel in enumerate(known, start=2)}}
