"""Dumps of a whole job with one fault, written rank after rank in little memory.

All but the last steps went well on every rank, so only those are simulated; ranks that did the
same share one rendering, and differ in the names and members of their groups and in their clock.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from hanglab.analyzer.errors import InputError
from hanglab.analyzer.program.faults import FAULTS, ProgramFault, make_fault
from hanglab.analyzer.program.layouts import make_layout
from hanglab.analyzer.program.program import Action, Program
from hanglab.analyzer.program.rendering import START_NS, STEP_NS, Style, render, to_pickle
from hanglab.analyzer.program.simulation import Issued, RankRun, Run, simulate

#: No fault: the job ran to its end.
NO_FAULT = "none"
#: In an NCCL dump, nothing tells which root an operation had: no layout has one.
KINDS = (NO_FAULT, *(kind for kind in FAULTS if kind != "root"))
#: Steps at the end of the job that are simulated; the fault is in the first of them.
_LAST_STEPS = 2
#: Ranks that are tried as the culprit before a layout has no place for a fault.
_ATTEMPTS = 24
#: Faults after which the call in question is not in the culprit's program any more.
_LEFT_OUT = frozenset({"skip", "unmatched"})
_STYLE = Style(depth=6)
#: Nanoseconds between the beginnings of jobs of neighbouring seeds, which so run side by side.
_BETWEEN_BEGINNINGS_NS = 137_000_000
#: Seeds with a beginning of their own: the last of them begins 23 minutes after the first.
_DISTINCT_BEGINNINGS = 10_000
#: The watchdogs' dumps follow their timeout.
_AFTER_TIMEOUT_NS = _STYLE.timeout_ms * 1_000_000 + 10_000_000_000


class NoPlace(InputError):
    """A fault that the layout has no place for."""

    exit_code = 64


@dataclass(frozen=True)
class JobOptions:
    ranks: int
    layout: str
    fault: str
    #: Operations that each rank makes at least before the last steps end.
    operations: int = 2000
    seed: int = 0
    #: Ranks that leave no dump, none of them to blame.
    missing: int = 0
    #: Entries that each ring still has; None for all.
    ring: int | None = None
    #: Clocks are off by up to so much, either way.
    clock_offset_ms: float = 0.0


class JobTruth(msgspec.Struct, frozen=True):
    """Ground truth of a simulated job, which lies outside of its dumps."""

    ranks: int
    layout: str
    fault: str
    culprits: list[int]
    #: The operation at which the culprit goes wrong, its line, and its group; None without fault.
    operation: str | None
    line: int | None
    group: str | None
    seed: int
    operations: int
    missing: list[int]
    ring: int | None
    clock_offset_ms: float


class SimulatedJob:
    """A job that hangs by one fault.  Raises LayoutError and NoPlace."""

    def __init__(self, options: JobOptions) -> None:
        self._options = options
        self._random = Random(options.seed)
        self._layout = make_layout(options.layout, options.ranks)
        # All ranks make as many steps as the one with the shortest needs.
        shortest = min(map(len, self._layout.steps))
        self._history = max(0, -(-options.operations // shortest) - _LAST_STEPS)
        self._fault, self._at = self._make_fault()
        self._run = self._last_steps()
        culprits = self._fault.culprits if self._fault else frozenset()
        innocent = [rank for rank in range(options.ranks) if rank not in culprits]
        if options.missing >= len(innocent):
            raise NoPlace(
                f"{options.missing} dumps cannot be missing of {options.ranks} ranks.",
                "The culprit's dump and one more are always written: ask for fewer.",
            )
        self.missing = frozenset(self._random.sample(innocent, options.missing))
        span = int(options.clock_offset_ms * 1_000_000)
        #: How long after START_NS it begins: two jobs do not do so within the same nanosecond, by
        #: which dumps of one process are known.
        self.begun_ns = options.seed % _DISTINCT_BEGINNINGS * _BETWEEN_BEGINNINGS_NS
        #: By how much each clock is ahead, by rank.
        self.clocks_ns = [
            self._random.randint(-span, span) if span else 0 for _ in range(options.ranks)
        ]
        self._templates: dict[object, _Template] = {}
        self._long_texts: dict[int, str] = {}

    @property
    def truth(self) -> JobTruth:
        options, fault, action = self._options, self._fault, self._at
        return JobTruth(
            ranks=options.ranks,
            layout=options.layout,
            fault=options.fault,
            culprits=sorted(fault.culprits) if fault else [],
            operation=action.op if action else None,
            line=action.site if action else None,
            group=self._layout.groups[action.group].description if action else None,
            seed=options.seed,
            operations=options.operations,
            missing=sorted(self.missing),
            ring=options.ring,
            clock_offset_ms=options.clock_offset_ms,
        )

    def dumps(self, ranks: Iterable[int] | None = None) -> Iterator[tuple[int, bytes]]:
        """Each rank (of ``ranks``) that left a dump, and its bytes as torch would write them."""
        for rank in range(self._options.ranks) if ranks is None else ranks:
            if rank not in self.missing:
                yield rank, self._dump(rank)

    def written_ns(self, rank: int) -> int:
        """Time by the rank's own clock at which its watchdog wrote its dump."""
        rows = (self._history + _LAST_STEPS) * len(self._layout.steps[rank])
        ended = START_NS + self.begun_ns + rows * STEP_NS
        return ended + _AFTER_TIMEOUT_NS + self.clocks_ns[rank]

    def _make_fault(self) -> tuple[ProgramFault | None, Action | None]:
        """The fault, and the call that the culprit makes wrongly or leaves out."""
        options = self._options
        if options.fault == NO_FAULT:
            return None, None
        last = Program(self._layout.groups, self._layout.steps)
        for _ in range(_ATTEMPTS):
            rank = self._random.randrange(options.ranks)
            fault = make_fault(last, options.fault, rank, self._random)
            if fault is None:
                continue
            program = replace(
                fault.program,
                actions=tuple(
                    mine + step
                    for mine, step in zip(fault.program.actions, self._layout.steps, strict=True)
                ),
            )
            fault = replace(fault, program=program)
            if _simulate(fault).stuck:
                known = last if options.fault in _LEFT_OUT else program
                return fault, known.actions[rank][fault.at]
        raise NoPlace(
            f"The layout {options.layout} of {options.ranks} ranks has no place at which the "
            f"fault {options.fault} would hang it.",
            "Sends and receives are in the layout 3d, several groups in hsdp, 3d and moe.",
        )

    def _last_steps(self) -> Run:
        if self._fault is not None:
            return _simulate(self._fault)
        twice = tuple(step * _LAST_STEPS for step in self._layout.steps)
        return simulate(Program(self._layout.groups, twice), "nccl")

    def _dump(self, rank: int) -> bytes:
        key = self._key(rank)
        if key not in self._templates:
            self._templates[key] = _Template(self._render(rank), self._texts(rank))
        return self._templates[key].fill(self._texts(rank), self.begun_ns + self.clocks_ns[rank])

    def _texts(self, rank: int) -> list[str]:
        """Texts of a dump that name the rank's own groups."""
        mine = self._layout.memberships[rank]
        groups = [self._layout.groups[index] for index in mine]
        own = [group.name for group in groups if not _meets_a_number(group.name, len(mine))]
        return own + [self._members(index) for index in mine]

    def _members(self, index: int) -> str:
        """The members as a dump lists them; those of a large group make a long text."""
        if index not in self._long_texts:
            group = self._layout.groups[index]
            text = str(list(group.members))
            if len(group.members) < self._options.ranks:
                return text
            self._long_texts[index] = text
        return self._long_texts[index]

    def _key(self, rank: int) -> object:
        """Equal for ranks whose dumps differ in names, members and clocks alone."""
        layout = self._layout
        slots = {index: slot for slot, index in enumerate(layout.memberships[rank])}
        groups = [layout.groups[index] for index in slots]
        issued = self._run.ranks[rank].issued
        told = {one.action.group for one in issued if _tells_place(one.action)}
        told |= {action.group for action in layout.steps[rank] if _tells_place(action)}
        return (
            tuple(
                (
                    group.name if _meets_a_number(group.name, len(groups)) else None,
                    group.description,
                    len(group.members),
                    group.members.index(rank) if index in told else None,
                )
                for index, group in zip(slots, groups, strict=True)
            ),
            tuple(_by_slot(action, slots) for action in layout.steps[rank]),
            tuple(
                (
                    *_by_slot(one.action, slots),
                    one.seq,
                    one.p2p_seq,
                    one.op_id,
                    one.done,
                    one.running,
                )
                for one in issued
            ),
        )

    def _render(self, rank: int) -> dict[str, Any]:
        """The whole dump of one rank, at a clock that is right."""
        mine = self._layout.memberships[rank]
        slots = {index: slot for slot, index in enumerate(mine)}
        step = [replace(action, group=slots[action.group]) for action in self._layout.steps[rank]]
        issued: list[Issued] = []
        counts: dict[int, list[int]] = {slot: [0, 0, 0] for slot in slots.values()}
        for action in step * self._history:
            count = counts[action.group]
            count[1 if action.p2p else 0] += 1
            count[2] += 1
            seq, p2p_seq, op_id = count
            issued.append(Issued(action, seq, p2p_seq, op_id, done=True, running=True))
        for one in self._run.ranks[rank].issued:
            slot = slots[one.action.group]
            seq, p2p_seq, op_id = counts[slot]
            issued.append(
                replace(
                    one,
                    action=replace(one.action, group=slot),
                    seq=one.seq + seq,
                    p2p_seq=one.p2p_seq + p2p_seq,
                    op_id=one.op_id + op_id,
                )
            )
        groups = tuple(self._layout.groups[index] for index in mine)
        # Of all ranks only this one did anything: the rest of the job is not looked at.
        run = Run(Program(groups), "nccl", _Only(rank, RankRun(issued)))
        return render(run, rank, replace(_STYLE, ring=self._options.ring))


class _Only(list[RankRun]):
    """The runs of a job's ranks, of which one alone is known."""

    def __init__(self, rank: int, run: RankRun) -> None:
        super().__init__([run])
        self._rank = rank

    def __getitem__(self, rank: Any) -> Any:
        assert rank == self._rank
        return super().__getitem__(0)


def _simulate(fault: ProgramFault) -> Run:
    return simulate(fault.program, "nccl", stops=fault.stops, device_stops=fault.device_stops)


def _by_slot(action: Action, slots: dict[int, int]) -> tuple[object, ...]:
    return (
        action.op,
        slots[action.group],
        action.site,
        action.numel,
        action.dtype,
        action.root,
        action.peer,
    )


def _tells_place(action: Action) -> bool:
    """True if its entry depends on the rank's place in the group."""
    return action.p2p or action.op in ("gather", "scatter")


def _meets_a_number(name: str, groups: int) -> bool:
    """True if the name is also a text that the dump has anyway: the pickler shares them."""
    return name.isdigit() and int(name) < groups


class _Template:
    """The bytes of a dump, cut where ranks of one kind differ."""

    def __init__(self, dump: dict[str, Any], texts: list[str]) -> None:
        data = to_pickle(dump)
        # Each text is written once, however often it occurs.
        cuts = sorted((data.index(_written(text)), number) for number, text in enumerate(texts))
        self._pieces: list[tuple[bytes, NDArray[np.int64], int | None]] = []
        begin = 0
        for place, number in cuts:
            self._add(data[begin:place], number)
            begin = place + len(_written(texts[number]))
        self._add(data[begin:], None)

    def _add(self, piece: bytes, number: int | None) -> None:
        seen = np.frombuffer(piece, dtype=np.uint8)
        high = struct.pack("<q", START_NS)[6:]
        # No other number is so long, and the two highest bytes of a time stay the same for days.
        times = (seen[:-9] == 0x8A) & (seen[1:-8] == 8)
        times &= (seen[8:-1] == high[0]) & (seen[9:] == high[1])
        self._pieces.append((piece, np.flatnonzero(times)[:, None] + np.arange(2, 10), number))

    def fill(self, texts: list[str], clock_ns: int) -> bytes:
        filled: list[bytes] = []
        for piece, places, number in self._pieces:
            if clock_ns and len(places):
                changed = np.frombuffer(piece, dtype=np.uint8).copy()
                times = changed[places].view("<i8") + clock_ns
                changed[places] = times.view(np.uint8)
                piece = changed.tobytes()
            filled.append(piece)
            if number is not None:
                filled.append(_written(texts[number]))
        return b"".join(filled)


def _written(text: str) -> bytes:
    data = text.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def write_dump(folder: Path, rank: int, data: bytes, written_ns: int) -> None:
    """The rank's file, as old as its watchdog would have left it; whole or not at all."""
    file = folder / f"nccl_trace_rank_{rank}"
    try:
        file.write_bytes(data)
        os.utime(file, ns=(written_ns, written_ns))
    except BaseException:
        file.unlink(missing_ok=True)
        raise
