"""Jobs on NCCL and their dumps, modelled from the format alone.

Nothing of ``analyzer/program`` is used, so that an error there cannot hide one of
matching.  Hosts run ahead of devices; each group has a stream of its own; an
operation begins when it is at the head of its stream and what its rank waited
for is through, and a collective ends when all members have begun it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

Sizes = tuple[tuple[int, ...], ...]
START_NS = 1_763_000_000_000_000_000
TICK_NS = 100_000


@dataclass(frozen=True)
class Group:
    name: str
    description: str
    members: tuple[int, ...]


@dataclass(frozen=True)
class Op:
    """One call; ``batch`` holds the members of coalesced ones, which ``op`` ends."""

    group: Group
    op: str
    line: int
    inputs: Sizes = ((4,),)
    outputs: Sizes | None = None
    #: Global rank of the other side of a send or receive.
    peer: int | None = None
    batch: tuple[Op, ...] = ()
    #: Later operations of the rank wait for it.
    waits: bool = True

    @property
    def parts(self) -> tuple[Op, ...]:
        return self.batch or (self,)

    @property
    def p2p(self) -> bool:
        return self.parts[0].op in ("send", "recv")


#: In a program: the host waits for all that it has called.
SYNC = None
Program = list[Op | None]


@dataclass(eq=False)
class Issued:
    op: Op
    rank: int
    seq: int
    p2p_seq: int
    op_ids: tuple[int, ...]
    called: int
    before: Issued | None
    begun: bool = False
    done: bool = False
    ended: int = 0


@dataclass
class Job:
    programs: Mapping[int, Program]
    random: Random
    now: int = 0
    issued: dict[int, list[Issued]] = field(default_factory=dict)
    _at: dict[int, int] = field(default_factory=dict)
    _counts: dict[tuple[int, Group], list[int]] = field(default_factory=dict)
    _streams: dict[tuple[int, str], list[Issued]] = field(default_factory=dict)
    _meetings: dict[tuple[Group, int], dict[int, Issued]] = field(default_factory=dict)
    _channels: dict[tuple[Group, int, int, str], list[Issued]] = field(default_factory=dict)
    _awaited: dict[int, Issued] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.issued = {rank: [] for rank in self.programs}
        self._at = dict.fromkeys(self.programs, 0)

    def run(self, steps: int = 1 << 30) -> bool:
        """So many steps of a host or a device, by chance; False if nothing can move."""
        for _ in range(steps):
            moves: list[int | Issued] = [r for r in self.programs if self._may_call(r)]
            moves += [one for one in self._heads() if self._may_end(one)]
            if not moves:
                return False
            self.now += self.random.randrange(1, 50)
            move = self.random.choice(moves)
            if isinstance(move, Issued):
                move.done, move.ended = True, self.now
            else:
                self._call(move)
        return True

    @property
    def through(self) -> bool:
        return all(self._at[rank] == len(rows) for rank, rows in self.programs.items())

    def _may_call(self, rank: int) -> bool:
        program, at = self.programs[rank], self._at[rank]
        if at == len(program):
            return False
        return program[at] is not SYNC or all(one.done for one in self.issued[rank])

    def _call(self, rank: int) -> None:
        op = self.programs[rank][self._at[rank]]
        self._at[rank] += 1
        if op is SYNC:
            return
        counts = self._counts.setdefault((rank, op.group), [0, 0, 0])
        counts[1 if op.p2p else 0] += 1
        op_ids = tuple(range(counts[2] + 1, counts[2] + 1 + len(op.parts)))
        counts[2] += len(op.parts)
        one = Issued(op, rank, counts[0], counts[1], op_ids, self.now, self._awaited.get(rank))
        self.issued[rank].append(one)
        stream = op.group.name + (f" {op.peer}" if op.p2p and not op.batch else "")
        self._streams.setdefault((rank, stream), []).append(one)
        if op.p2p:
            for part in op.parts:
                self._channel(one, part).append(one)
        else:
            self._meetings.setdefault((op.group, one.seq), {})[rank] = one
        if op.waits:
            self._awaited[rank] = one

    def _channel(self, one: Issued, part: Op, *, other: bool = False) -> list[Issued]:
        assert part.peer is not None
        ends = (one.rank, part.peer) if part.op == "send" else (part.peer, one.rank)
        opposite = {"send": "recv", "recv": "send"}
        half = opposite[part.op] if other else part.op
        return self._channels.setdefault((part.group, *ends, half), [])

    def _heads(self) -> Iterator[Issued]:
        for stream in self._streams.values():
            head = next((one for one in stream if not one.done), None)
            if head is not None and (head.before is None or head.before.done):
                head.begun = True
                yield head

    def _may_end(self, one: Issued) -> bool:
        if one.op.p2p:
            for part in one.op.parts:
                place = self._channel(one, part).index(one)
                others = self._channel(one, part, other=True)
                if place >= len(others) or not others[place].begun:
                    return False
            return True
        met = self._meetings[one.op.group, one.seq]
        return all(
            rank in met and met[rank].begun and met[rank].op.op == one.op.op
            for rank in one.op.group.members
        )


def dump(job: Job, rank: int, *, ring: int | None = None, clock_ns: int = 0) -> dict[str, Any]:
    """The dump that torch 2.13 would have written of ``rank`` now."""
    groups = list(dict.fromkeys(one.op.group for one in job.issued[rank]))
    status: dict[str, dict[str, int]] = {}
    rows: list[dict[str, Any]] = []
    for one in job.issued[rank]:
        number = groups.index(one.op.group)
        parts = [*one.op.batch, one.op] if one.op.batch else [one.op]
        for part, op_id in zip(parts, (*one.op_ids, one.op_ids[-1]), strict=False):
            rows.append(_row(one, part, op_id, number, len(rows), clock_ns))
        mine = status.setdefault(str(number), dict.fromkeys(_STATUS, -1))
        last = one.p2p_seq if one.op.p2p else one.seq
        mine["last_enqueued_collective"] = last
        if one.done:
            mine["last_completed_collective"] = last
    return {
        "version": "2.10",
        "comm_lib_version": "2.27.5",
        "pg_config": {
            group.name: {
                "name": group.name,
                "desc": group.description,
                "ranks": str(list(group.members)),
            }
            for group in groups
        },
        "pg_status": status,
        "entries": rows[-ring:] if ring else rows,
    }


_STATUS = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")


def _row(
    one: Issued, part: Op, op_id: int, number: int, record: int, clock_ns: int
) -> dict[str, Any]:
    # The members of a batch stay scheduled for ever.
    done = one.done and part is one.op
    name = part.op
    if part.peer is not None:
        me, peer = part.group.members.index(one.rank), part.group.members.index(part.peer)
        name = f"send {me}->{peer}" if part.op == "send" else f"recv {me}<-{peer}"
    sizes = () if one.op.batch and part is one.op else part.inputs
    outputs = sizes if part.outputs is None else part.outputs
    return {
        "frames": [{"name": "step", "filename": "/home/u/lib.py", "line": part.line}],
        "record_id": record,
        "pg_id": number,
        "process_group": (part.group.name, part.group.description),
        "thread_name": "python",
        "thread_id": "1",
        "collective_seq_id": one.seq,
        "p2p_seq_id": one.p2p_seq,
        "op_id": op_id,
        "profiling_name": f"nccl:{name}",
        "time_created_ns": START_NS + one.called * TICK_NS + clock_ns,
        "input_sizes": [list(size) for size in sizes],
        "input_dtypes": ["Float"] * len(sizes),
        "output_sizes": [list(size) for size in outputs],
        "output_dtypes": ["Float"] * len(outputs),
        "state": "completed" if done else "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": START_NS + one.ended * TICK_NS + clock_ns if done else None,
        "retired": done,
        "timeout_ms": 600_000,
        "is_p2p": one.op.p2p,
    }
