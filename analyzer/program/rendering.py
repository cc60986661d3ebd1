"""A run of a Program as Flight Recorder would have dumped it: objects, pickles, JSON.

Every number, name and lie of the real thing is kept: gloo records no sends and
receives but counts them, never changes a state and lists no members; NCCL
counts point-to-point apart and leaves the members of a batch scheduled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hanglab.analyzer.flight_recorder.columns import ABSENT, RankDump
from hanglab.analyzer.flight_recorder.content import read_content
from hanglab.analyzer.flight_recorder.decoding import Decoded
from hanglab.analyzer.program.program import Action, Program, ProgramGroup
from hanglab.analyzer.program.simulation import Issued, Run
from hanglab.analyzer.program.torch_pickle import torch_pickle
from hanglab.recorder.case.progress_records import SplitLists

#: Number of the thread that makes most of a rank's calls.
_THREAD = 139872
#: How the backends write what Programs call it.
_NAMES = {
    "gloo": {"reduce_scatter": "all_reduce"},
    "nccl": {
        "all_gather": "_all_gather_base",
        "reduce_scatter": "_reduce_scatter_base",
        "barrier": "all_reduce_barrier",
    },
}
START_NS = 1_700_000_000_000_000_000
STEP_NS = 1_000_000
_FILE = "/srv/train/train.py"


@dataclass(frozen=True)
class Style:
    """Looks of a dump, apart from what happened."""

    version: str = "2.10"
    #: Entries that the ring holds; None for all.
    ring: int | None = None
    active_only: bool = False
    frames: bool = True
    #: Frames of torch and of the launcher around the program's own line.
    depth: int = 2
    #: Each line is in a function of its own, and one line calls all of them.
    functions: bool = False
    record_offset: int = 0
    #: Rank -> by how much its clock is ahead, nanoseconds.
    clock_ns: Mapping[int, int] = field(default_factory=dict)
    timeout_ms: int = 600_000
    #: Show states ``started`` and durations, as TORCH_NCCL_ENABLE_TIMING does.
    timing: bool = False
    #: Add what the recorder's Python boundary knows: gloo's point-to-point, roots, members.
    boundary: bool = False


def group_ids(program: Program, rank: int) -> dict[int, int]:
    """The numbers that a rank's process gives its groups, in order of their creation."""
    mine = [i for i, group in enumerate(program.groups) if rank in group.members]
    return {index: number for number, index in enumerate(mine)}


def _sizes(action: Action, group: ProgramGroup, rank: int, backend: str) -> tuple[Any, Any]:
    """Input and output sizes of one call."""
    count, own = len(group.members), [action.numel]
    root = action.root is not None and group.members[action.root] == rank
    if action.op == "barrier":
        return ([], []) if backend == "gloo" else ([[1]], [[1]])
    if action.op == "all_gather":
        whole = [count, action.numel] if backend == "gloo" else [count * action.numel]
        return [own], [whole]
    if action.op == "reduce_scatter":
        whole = [count * action.numel]
        return ([whole], [whole]) if backend == "gloo" else ([whole], [own])
    if action.op == "gather":
        return [own], [[count, action.numel]] if root else []
    if action.op == "scatter":
        return ([[count, action.numel]] if root else []), [own]
    if action.op == "all_to_all":
        return [[count * action.numel]], [[count * action.numel]]
    return [own], [own]


class _Frames:
    """Shared frame objects, so that a pickle memoises them as torch's does."""

    def __init__(self, depth: int, functions: bool) -> None:
        self._depth = depth
        self._functions = functions
        self._known: dict[tuple[str, str, int], dict[str, Any]] = {}

    def of(self, action: Action) -> list[dict[str, Any]]:
        inner = [
            (
                action.op,
                "/opt/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py",
                2000 + len(action.op),
            ),
            ("wrapper", "/opt/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", 83),
        ]
        outer = [(f"layer_{n}", "/srv/train/model.py", 100 + n) for n in range(self._depth)]
        name = f"call_{action.site}" if self._functions else "step"
        rows = [*inner, (name, _FILE, action.site), *outer, ("<module>", _FILE, 5)]
        return [self._frame(*row) for row in rows]

    def _frame(self, name: str, filename: str, line: int) -> dict[str, Any]:
        key = (name, filename, line)
        if key not in self._known:
            self._known[key] = {"name": name, "filename": filename, "line": line}
        return self._known[key]


def render(run: Run, rank: int, style: Style | None = None) -> dict[str, Any]:
    """The object that torch's dump of ``rank`` holds."""
    return _Renderer(run, rank, style or Style()).dump()


class _Renderer:
    def __init__(self, run: Run, rank: int, style: Style) -> None:
        self._run = run
        self._program = run.program
        self._rank = rank
        self._style = style
        self._gloo = run.backend == "gloo"
        self._ids = group_ids(run.program, rank)
        self._frames = _Frames(style.depth, style.functions)

    def dump(self) -> dict[str, Any]:
        entries = self._entries()
        version = tuple(int(part) for part in self._style.version.split("."))
        top: dict[str, Any] = {"version": self._style.version, "pg_config": self._config()}
        top["comm_lib_version" if version >= (2, 10) else "nccl_version"] = (
            "" if self._gloo else "2.27.3"
        )
        if version >= (2, 4):
            top["pg_status"] = self._status()
        if entries:
            top["entries"] = entries
        return top

    def _config(self) -> dict[str, Any]:
        if self._gloo and not self._style.boundary:
            return {"": {"name": "", "desc": "", "ranks": "[]"}}
        return {
            self._program.groups[index].name: {
                "name": self._program.groups[index].name,
                "desc": self._program.groups[index].description,
                "ranks": str(list(self._program.groups[index].members)),
            }
            for index in self._ids
        }

    def _status(self) -> dict[str, Any]:
        """Per group: the number of the last operation, of either kind, and of the last finished."""
        status: dict[str, Any] = {}
        for issued in self._run.ranks[self._rank].issued:
            action = issued.action
            if self._gloo and action.p2p:
                continue
            number = self._number(issued)
            key = str(self._ids[action.group])
            mine = status.setdefault(
                key,
                {
                    "last_enqueued_collective": -1,
                    "last_started_collective": -1,
                    "last_completed_collective": -1,
                },
            )
            mine["last_enqueued_collective"] = number
            if issued.done:
                mine["last_completed_collective"] = number
        return status

    def _number(self, issued: Issued) -> int:
        if self._gloo:
            return issued.op_id
        return issued.p2p_seq if issued.action.p2p else issued.seq

    def _entries(self) -> list[dict[str, Any]]:
        style = self._style
        rows = self._rows()
        if style.ring is not None:
            # Sends and receives of gloo that the boundary saw take no place in the ring.
            recorded = [row for row in rows if row["record_id"] >= 0]
            oldest = recorded[-style.ring :][:1]
            if oldest:
                rows = rows[rows.index(oldest[0]) :]
        if style.active_only:
            rows = [row for row in rows if row["state"] != "completed"]
        return rows

    def _rows(self) -> list[dict[str, Any]]:
        issued = self._run.ranks[self._rank].issued
        rows: list[dict[str, Any]] = []
        record = self._style.record_offset
        for index, one in enumerate(issued):
            if self._gloo and one.action.p2p:
                if self._style.boundary:
                    row = self._row(one, index, ABSENT)
                    rows.append(row | {"collective_seq_id": ABSENT, "p2p_seq_id": ABSENT})
                continue
            rows.append(self._row(one, index, record))
            record += 1
            if not self._gloo and self._ends_batch(issued, index):
                members = [i for i in issued if i.action.batch == one.action.batch]
                rows.append(self._end_row(one, index, record, all(m.done for m in members)))
                record += 1
        return rows

    @staticmethod
    def _ends_batch(issued: list[Issued], index: int) -> bool:
        batch = issued[index].action.batch
        return bool(batch) and (index + 1 == len(issued) or issued[index + 1].action.batch != batch)

    def _row(self, issued: Issued, index: int, record: int) -> dict[str, Any]:
        action = issued.action
        group = self._program.groups[action.group]
        inputs, outputs = _sizes(action, group, self._rank, self._run.backend)
        done = issued.done
        shown = done and not self._gloo and not action.batch
        state = "completed" if shown else "scheduled"
        if self._style.timing and issued.running and not shown and not self._gloo:
            state = "started"
        created = START_NS + index * STEP_NS + self._style.clock_ns.get(self._rank, 0)
        row: dict[str, Any] = {}
        if self._style.frames:
            row["frames"] = self._frames.of(action)
        version = tuple(int(part) for part in self._style.version.split("."))
        row |= {
            "record_id": record,
            "pg_id": self._ids[action.group],
            "process_group": (group.name, group.description),
        }
        if version >= (2, 9):
            row |= {"thread_name": "python", "thread_id": str(_THREAD + action.thread)}
        row |= {
            "collective_seq_id": issued.seq,
            "p2p_seq_id": 0 if self._gloo else issued.p2p_seq,
            "op_id": issued.op_id,
            "profiling_name": f"{self._run.backend}:{self._name(action, group)}",
            "time_created_ns": created,
            "input_sizes": inputs,
            "input_dtypes": [action.dtype] * len(inputs),
            "output_sizes": outputs,
            "output_dtypes": [action.dtype] * len(outputs),
            "state": state,
            "time_discovered_started_ns": created + 1000 if state != "scheduled" else None,
            "time_discovered_completed_ns": created + 200_000 if shown else None,
            "retired": done and (self._gloo or not action.batch),
        }
        if version >= (2, 4):
            row["timeout_ms"] = self._style.timeout_ms
        row["is_p2p"] = action.p2p
        return row

    def _end_row(self, last: Issued, index: int, record: int, done: bool) -> dict[str, Any]:
        row = self._row(last, index, record)
        state = "completed" if done else "scheduled"
        row |= {
            "profiling_name": "nccl:coalesced",
            "input_sizes": [],
            "input_dtypes": [],
            "output_sizes": [],
            "output_dtypes": [],
            "state": state,
            "time_discovered_completed_ns": row["time_created_ns"] + 200_000 if done else None,
            "retired": done,
        }
        return row

    def _name(self, action: Action, group: ProgramGroup) -> str:
        if not action.p2p:
            return _NAMES[self._run.backend].get(action.op, action.op)
        me = group.members.index(self._rank)
        peer = -1 if action.peer is None else action.peer
        return f"send {me}->{peer}" if action.op == "send" else f"recv {me}<-{peer}"


def to_rank_dump(run: Run, rank: int, style: Style | None = None) -> RankDump:
    """The columns that loading the dump of ``rank`` gives, and what the boundary adds to them."""
    style = style or Style()
    content = Decoded(render(run, rank, style))
    dump = read_content(content, rank=rank, source=f"rank {rank}", from_json=False, contained=True)
    if style.boundary:
        dump.extra["boundary"] = True
        _add_boundary_arguments(dump, run, rank)
    return dump


def _add_boundary_arguments(dump: RankDump, run: Run, rank: int) -> None:
    """Add roots, reductions and split lists, which no buffer has."""
    entries = dump.entries
    if entries is None:
        return
    ids = {number: index for index, number in group_ids(run.program, rank).items()}
    actions = {
        (issued.action.group, issued.op_id): issued.action for issued in run.ranks[rank].issued
    }
    known: dict[tuple[object, ...], int] = {}
    for row in range(len(entries)):
        action = actions.get((ids[int(entries.pg_id[row])], int(entries.op_id[row])))
        if action is None:
            continue
        splits = SplitLists(*action.splits) if action.splits else None
        if action.root is None and not action.reduction and splits is None:
            continue
        given = int(entries.argument[row])
        told = given, action.root, action.reduction, splits
        if told not in known:
            known[told] = len(entries.arguments)
            changed = replace(
                entries.arguments[given],
                root=action.root,
                reduce_op=action.reduction,
                splits=splits,
            )
            entries.arguments.append(changed)
        entries.argument[row] = known[told]


def to_pickle(dump: Mapping[str, Any]) -> bytes:
    """The bytes of a dump as torch's pickler writes them."""
    return torch_pickle(dump)


def to_json(dump: Mapping[str, Any]) -> bytes:
    """The JSON form: no frames, 0 for an unknown time, statuses as text, no empty entries."""
    top = dict(dump)
    top["pg_status"] = {
        key: {name: str(number) for name, number in status.items()}
        for key, status in dump.get("pg_status", {}).items()
    }
    if dump.get("entries"):
        top["entries"] = [_json_entry(entry) for entry in dump["entries"]]
    else:
        top.pop("entries", None)
    return json.dumps(top).encode()


def _json_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    row = {key: value for key, value in entry.items() if key != "frames"}
    for key in ("time_discovered_started_ns", "time_discovered_completed_ns"):
        row[key] = row[key] or 0
    row["process_group"] = list(row["process_group"])
    return row
