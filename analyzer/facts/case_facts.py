"""Facts about each rank of a job, whatever they were read from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, reduce, wraps
from operator import or_
from typing import TypeVar, cast

from hanglab.analyzer.catalogue import Observation
from hanglab.analyzer.code_owners import CodeMap, Owner
from hanglab.analyzer.facts.host import HostView
from hanglab.analyzer.facts.stack_position import (
    StackPlace,
    StackPosition,
    calling_thread,
    main_thread,
    position_of,
)
from hanglab.analyzer.facts.thresholds import DEFAULT_HANG_S
from hanglab.analyzer.facts.wait_channels import Channel, channel_of
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.graph.wait_for_graph import Sink, WaitForGraph
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.verdict import CollectiveRef, Inputs, Location
from hanglab.recorder.case.file_kinds import EvidenceFile
from hanglab.recorder.case.folders import Problems
from hanglab.recorder.case.host_records import ConnectionSample, RankLoad
from hanglab.recorder.case.progress_records import Progress
from hanglab.recorder.case.reader import RankCase
from hanglab.recorder.case.records import (
    ChildExit,
    CodeShape,
    Exit,
    GroupRecord,
    JobRecord,
    LineCount,
    Movement,
    ProcessSample,
    ProgramEnd,
    Raised,
    RankProcess,
    SchedulerRecord,
    StackFrame,
    StackSample,
    ThreadWait,
)

Content = TypeVar("Content")
Fact = TypeVar("Fact")

#: Flight Recorder's number of the group that all ranks are in.
DEFAULT_GROUP = 0


@dataclass
class RankView:
    """One rank.  Whatever is absent is None or empty."""

    rank: int
    host: str = ""
    #: By how much its host's wall clock is ahead of the job's.  Exits and exceptions are on the
    #: job's clock already; progress, groups and samples are on the host's.
    clock_ahead_ns: int = 0
    process: RankProcess | None = None
    progress: Progress | None = None
    groups: list[GroupRecord] = field(default_factory=list)
    stacks: list[StackSample] = field(default_factory=list)
    processes: list[ProcessSample] = field(default_factory=list)
    movement: Movement | None = None
    exit: Exit | None = None
    exceptions: list[Raised] = field(default_factory=list)
    #: Those that it printed or logged and survived.
    handled: list[Raised] = field(default_factory=list)
    #: Those in whose handlers its threads were when it was captured.
    pending: list[Raised] = field(default_factory=list)
    #: What it called to end, and that it came to its end; exceptions stand above.
    program_ends: list[ProgramEnd] = field(default_factory=list)
    children: list[ChildExit] = field(default_factory=list)
    waits: list[ThreadWait] = field(default_factory=list)
    stderr: str = ""
    shapes: list[CodeShape] = field(default_factory=list)
    lines: list[LineCount] = field(default_factory=list)
    connections: list[ConnectionSample] = field(default_factory=list)
    #: True where the rank's own Flight Recorder buffer was had.
    has_dump: bool = False
    #: The rank in its Case, as it was at the capture; None for a bare folder of dumps.
    case: RankCase | None = None

    def read(self, file: EvidenceFile[Content]) -> Content:
        """A file of the rank's that nothing here stands for; empty without a Case."""
        return file.empty if self.case is None else self.case.read(file)

    @cached_property
    def code(self) -> CodeMap:
        return CodeMap(self.process.python if self.process else None)

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process else None

    @property
    def local_rank(self) -> int | None:
        return self.process.local_rank if self.process is not None else None

    @property
    def ended(self) -> Exit | None:
        """The rank's end by itself; None while it lived or where hanglab ended it."""
        return self.exit if self.exit is not None and not self.exit.by_recorder else None

    @property
    def left_by_os_exit(self) -> bool:
        """True where it called ``os._exit``, and its counters are those of that moment."""
        last = self.program_ends[-1] if self.program_ends else None
        if last is None or last.how != "os._exit" or self.progress is None:
            return False
        return (self.progress.counters_at_ns or 0) >= last.at.wall_ns + self.clock_ahead_ns

    @property
    def failed(self) -> bool:
        end = self.ended
        return end is not None and (bool(end.code) or end.signal is not None or end.vanished)

    @cached_property
    def rank_stacks(self) -> list[StackSample]:
        """Samples of the rank's own process, oldest first."""
        return [s for s in self.stacks if s.kind == "rank" and s.threads]

    @cached_property
    def captured_stack(self) -> StackSample | None:
        """The sample taken at capture, else the latest."""
        at_capture = [s for s in self.rank_stacks if s.capture]
        candidates = at_capture or self.rank_stacks
        return candidates[-1] if candidates else None

    @cached_property
    def position(self) -> StackPosition:
        sample = self.captured_stack
        return position_of(main_thread(sample) if sample else None, self.code)

    @cached_property
    def user_frames(self) -> tuple[StackFrame, ...]:
        """User code on the stack at capture; of a rank that raised, on its traceback."""
        if self.position.users or not self.exceptions:
            return self.position.users
        main = [raised for raised in self.exceptions if raised.main]
        return tuple(self.code.user_frames(main[0].frames)) if main else ()

    @cached_property
    def program_frames(self) -> tuple[StackFrame, ...]:
        """The user's and packages' frames at capture, innermost first.

        Of a rank that raised those on its traceback; of one that died without a word the
        place of its latest operation.
        """
        sample = self.captured_stack
        thread = main_thread(sample) if sample is not None and self.ended is None else None
        frames: Iterable[StackFrame] = thread.frames if thread is not None else ()
        if not frames:
            frames = next((raised.frames for raised in self.exceptions if raised.main), ())
        if not frames and self.failed and self.progress is not None and self.progress.operations:
            last = self.progress.operations[-1]
            frames = [StackFrame(last.function, last.file, last.line)] if last.file else ()
        return tuple(f for f in frames if self.code.owner(f.file) in (Owner.USER, Owner.PACKAGE))

    def positions(self) -> list[StackPosition]:
        """Positions of the main thread in each sample, oldest first."""
        return [position_of(main_thread(sample), self.code) for sample in self.rank_stacks]

    @property
    def inside_operation(self) -> bool:
        """True where the boundary saw it enter a call or a wait that has not come back.

        ``work.wait()`` is C: on the stack it is just a line of the user's.
        """
        if self.progress is None:
            return False
        return any(
            (o.returned_ns is None and o.method != "new_group")
            or (o.wait_entered_ns is not None and o.wait_returned_ns is None)
            for o in self.progress.operations
        )

    def worker_stacks(self) -> list[StackSample]:
        """The latest sample of each child process."""
        latest: dict[int, StackSample] = {}
        for sample in self.stacks:
            if sample.kind != "rank" and sample.threads:
                latest[sample.pid] = sample
        return list(latest.values())

    def at_capture(self) -> ProcessSample | None:
        """The rank's own process at capture, from outside."""
        mine = [s for s in self.processes if s.kind == "rank"]
        captured = [s for s in mine if s.capture]
        return (captured or mine)[-1] if mine else None

    @property
    def state(self) -> str:
        sample = self.at_capture()
        return sample.state if sample else ""

    def always_in_state(self, letters: str) -> bool:
        """True where every sample of its process at capture shows one of these states."""
        samples = [s for s in self.processes if s.kind == "rank" and s.capture]
        return bool(samples) and all(s.state in letters for s in samples)

    @property
    def is_stopped(self) -> bool:
        """True where every sample at capture shows it stopped, by a signal or by a freezer.

        What a freezer of version 1 holds is in state D, since Linux 6.1 in whatever call it was.
        """
        samples = [s for s in self.processes if s.kind == "rank" and s.capture]
        return bool(samples) and all(
            s.state == "T" or s.frozen or channel_of(s.wchan) is Channel.FROZEN for s in samples
        )

    @property
    def wchan(self) -> str:
        """Kernel function in which the rank's main thread sleeps."""
        sample = self.at_capture()
        return sample.wchan if sample else ""

    def location(self, frame: StackFrame | None = None) -> Location | None:
        """The rank's innermost line of user code at capture, or ``frame``."""
        if frame is None:
            frame = self.position.user
        if frame is None:
            return None
        return Location(file=frame.file, line=frame.line, function=frame.function, rank=self.rank)

    def calling_frame(self, site: Location) -> StackFrame | None:
        """The innermost line of user code of the thread that makes the call of ``site``.

        Where no thread stands at that line: of the thread that communicates, else of the main.
        """
        sample = self.captured_stack
        if sample is None:
            return None
        return position_of(calling_thread(sample, self.code, site.file, site.line), self.code).user


@dataclass(frozen=True)
class EarlierException:
    """An exception of a rank in an attempt before the one that is judged."""

    rank: int
    attempt: int
    raised: Raised


@dataclass
class CaseFacts:
    """All that heuristics see.  They are pure functions of it."""

    graph: WaitForGraph
    ranks: dict[int, RankView]
    job: JobRecord | None = None
    #: What the cluster's scheduler said of it, where it has one.
    scheduler: SchedulerRecord | None = None
    #: What was sampled of each host, by name.
    hosts: dict[str, HostView] = field(default_factory=dict)
    #: Each rank's joined sequence of operations; empty for a bare folder.
    dumps: dict[int, RankDump] = field(default_factory=dict)
    #: True if this is a Case; a bare folder of dumps has no host, stack or exit evidence.
    case: bool = False
    #: True for logs without any dump.
    logs_alone: bool = False
    #: What a launcher said, in such a log, of the success of all ranks; "" where none did.
    success: str = ""
    #: What ended earlier attempts of a job that its launcher started again, in its order.
    raised_before: list[EarlierException] = field(default_factory=list)
    #: A later attempt of the job lies beside these dumps.
    restarted: bool = False
    inputs: Inputs = field(default_factory=Inputs)
    #: What could not be used of files of the Case; it grows with each that is read.
    problems: Problems = field(default_factory=list)
    #: What :func:`once` has kept; a copy with other evidence begins without.
    worked_out: dict[object, object] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def stuck(self) -> bool:
        """True where the recorder captured because nothing moved, and it did not end well."""
        trigger = self.job.trigger if self.job else None
        return trigger is not None and trigger.kind == "no_progress" and not self.all_succeeded

    @property
    def watchdog_spoke(self) -> bool:
        """True where torch dumped by itself: an operation had failed, or had taken too long."""
        trigger = self.job.trigger if self.job else None
        return trigger is not None and trigger.kind == "timeout_dump" and not self.all_succeeded

    @property
    def observed(self) -> Observation:
        """Observations that rows of the catalogue require or forbid."""
        made = {
            Observation.STANDSTILL: self.stuck,
            Observation.FAILURE: any(view.failed for view in self.ranks.values()),
            Observation.GOOD_END: self.all_succeeded,
            Observation.DIVERGENCE: bool(self.graph.divergences),
        }
        return reduce(or_, (one for one, seen in made.items() if seen), Observation.NONE)

    @property
    def hang_after_s(self) -> float:
        """Seconds without progress after which the job is called hung."""
        return (self.job.hang_after_s if self.job else None) or DEFAULT_HANG_S

    @property
    def all_ended(self) -> bool:
        """True where every known rank came to its end by itself."""
        return bool(self.ranks) and all(v.ended is not None for v in self.ranks.values())

    @property
    def all_succeeded(self) -> bool:
        return self.all_ended and not any(v.failed for v in self.ranks.values())

    @cached_property
    def highest_entered(self) -> dict[str, dict[int, int]]:
        """Per group name: the highest sequence number that each rank entered."""
        highest_entered: dict[str, dict[int, int]] = {}
        for rank, dump in self.dumps.items():
            entries = dump.entries
            if entries is None:
                continue
            for index, group in enumerate(entries.group_names):
                mine = entries.seq[(entries.group == index) & ~entries.is_p2p]
                if len(mine):
                    per_rank = highest_entered.setdefault(group.name, {})
                    per_rank[rank] = max(per_rank.get(rank, 0), int(mine.max()))
        return highest_entered

    def host_of(self, rank: int) -> HostView:
        """The host that the rank ran on; without samples where there are none."""
        view = self.ranks.get(rank)
        return self.hosts.get(view.host if view else "", HostView())

    def load_of(self, rank: int) -> RankLoad | None:
        """The latest sample of the rank's process in its host's samples."""
        loads = self.host_of(rank).loads(rank)
        return loads[-1] if loads else None

    def operations_behind(self, rank: int) -> int:
        """Operations by which the rank stays behind the farthest peer, over its groups."""
        short = 0
        known = False
        for highest_entered in self.highest_entered.values():
            if len(highest_entered) > 1 and rank in highest_entered:
                known = True
                short = max(short, max(highest_entered.values()) - highest_entered[rank])
        return short if known else self._behind_by_counters(rank)

    def _behind_by_counters(self, rank: int) -> int:
        """The shortfall of a rank that left by ``os._exit``: no dump is written then."""
        if not self.ranks[rank].left_by_os_exit:
            return 0
        counts = {
            number: counter.last_enqueued
            for number, view in self.ranks.items()
            if view.progress is not None
            for counter in view.progress.counters
            if counter.pg_id == DEFAULT_GROUP
        }
        return max(counts.values()) - counts[rank] if rank in counts else 0

    def sink(self, rank: int) -> Sink | None:
        return next((s for s in self.graph.sinks if s.rank == rank), None)

    def awaited(self, rank: int) -> Call | None:
        """The operation in which a peer waits for the rank."""
        sink = self.sink(rank)
        if sink is not None:
            return sink.awaited
        waits = [w.call for w in self.graph.waits if rank in w.on]
        # It may have entered the operation before it came to a halt.
        waits += [w.call for w in self.graph.waits if rank in w.call.group.members]
        return waits[0] if waits else None

    def others(self, *ranks: int) -> list[int]:
        return sorted(set(self.ranks) - set(ranks))

    def blocked(self, rank: int) -> Call | None:
        """The operation in which the rank waits, by its dump."""
        for wait in self.graph.waits:
            if wait.call.rank == rank:
                return wait.call
        calls = self.graph.unfinished.get(rank)
        return calls[0] if calls else None

    def in_no_operation(self, rank: int) -> bool:
        """True if neither dump nor stack puts the rank inside an operation."""
        view = self.ranks.get(rank)
        if view is None:
            return False
        if view.position.place in (StackPlace.COMMUNICATION, StackPlace.GROUP_CREATION):
            return False
        sink = self.sink(rank)
        # Another thread may be in one; a wait for a future of one is a call of the user's.
        other = sink is not None and sink.elsewhere and not view.position.innermost_is_user
        return other or not view.inside_operation


def collective_ref(call: Call) -> CollectiveRef:
    return CollectiveRef(
        group=call.group.description or call.group.name,
        group_id=call.group.name,
        ranks=list(call.group.members),
        seq=call.seq,
        op=call.op,
    )


def once(fact: Callable[[CaseFacts], Fact]) -> Callable[[CaseFacts], Fact]:
    """A fact that is worked out when it is first asked for, and kept with the evidence."""

    @wraps(fact)
    def kept(facts: CaseFacts) -> Fact:
        if fact not in facts.worked_out:
            facts.worked_out[fact] = fact(facts)
        return cast(Fact, facts.worked_out[fact])

    return kept
