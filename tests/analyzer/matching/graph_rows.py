"""Columns of a dump from a few words per entry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.flight_recorder.content import read_content
from hanglab.analyzer.flight_recorder.decoding import Decoded

Sizes = Sequence[Sequence[int]]
#: Group, operation, line, and the other end of a message or the size of a collective's tensor.
Called = tuple[str, str, int, int]
SEND, RECV = "send", "recv"


@dataclass(frozen=True)
class Row:
    """An entry.  ``op`` as torch writes it, without its backend; ``seq`` of its kind."""

    op: str
    seq: int
    group: str = "0"
    done: bool = True
    inputs: Sizes = ((4,),)
    outputs: Sizes | None = None
    dtype: str = "Float"
    line: int = 0
    p2p_seq: int = 0
    state: str | None = None
    retired: bool | None = None
    extra: Mapping[str, Any] | None = None


def line_frames(line: int) -> list[dict[str, Any]]:
    return [
        {
            "name": "all_reduce",
            "filename": "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py",
            "line": 3000,
        },
        {"name": "step", "filename": "/srv/train.py", "line": line},
        {"name": "<module>", "filename": "/srv/train.py", "line": 99},
    ]


def dump_object(
    rows: Iterable[Row],
    *,
    backend: str = "nccl",
    members: Mapping[str, Sequence[int]] | None = None,
    descriptions: Mapping[str, str] | None = None,
    status: Mapping[int, tuple[int, int]] | None = None,
    pg_ids: Mapping[str, int] | None = None,
    first_record: int = 0,
    version: str = "2.10",
) -> dict[str, Any]:
    """The object of a dump; group names are numbers unless ``pg_ids`` says otherwise."""
    descriptions = {"0": "default_pg", **(descriptions or {})}
    gloo = backend == "gloo"
    entries = []
    for index, row in enumerate(rows):
        p2p = row.op.startswith(("send", "recv", "coalesced"))
        state = row.state or ("completed" if row.done and not gloo else "scheduled")
        entry: dict[str, Any] = {
            "record_id": first_record + index,
            "pg_id": (pg_ids or {}).get(row.group, int(row.group)),
            "process_group": (row.group, descriptions.get(row.group, "")),
            "collective_seq_id": row.seq,
            "p2p_seq_id": row.p2p_seq,
            "op_id": row.seq + row.p2p_seq,
            "profiling_name": f"{backend}:{row.op}",
            "time_created_ns": 1_000_000_000 + index * 1_000_000,
            "input_sizes": [list(size) for size in row.inputs],
            "input_dtypes": [row.dtype] * len(row.inputs),
            "output_sizes": [list(s) for s in (row.inputs if row.outputs is None else row.outputs)],
            "output_dtypes": [row.dtype] * len(row.inputs if row.outputs is None else row.outputs),
            "state": state,
            "time_discovered_started_ns": None,
            "time_discovered_completed_ns": None,
            "retired": row.done if row.retired is None else row.retired,
            "timeout_ms": 600_000,
            "is_p2p": p2p,
        }
        if row.line:
            entry["frames"] = line_frames(row.line)
        entries.append(entry | dict(row.extra or {}))
    top: dict[str, Any] = {"version": version, "comm_lib_version": "2.27.3", "pg_config": {}}
    if gloo and members is None:
        top["pg_config"] = {"": {"name": "", "desc": "", "ranks": "[]"}}
    for name, ranks in (members or {}).items():
        top["pg_config"][name] = {
            "name": name,
            "desc": descriptions.get(name, ""),
            "ranks": str(list(ranks)),
        }
    if status is not None:
        top["pg_status"] = {
            str(pg_id): {
                "last_enqueued_collective": enqueued,
                "last_started_collective": -1,
                "last_completed_collective": completed,
            }
            for pg_id, (enqueued, completed) in status.items()
        }
    if entries:
        top["entries"] = entries
    return top


def columns(rank: int, rows: Iterable[Row], **details: Any) -> RankDump:
    """The columns that loading the dump of ``rank`` gives."""
    content = Decoded(dump_object(rows, **details))
    return read_content(content, rank=rank, source=f"rank {rank}", from_json=False, contained=True)


def world(size: int) -> dict[str, Sequence[int]]:
    return {"0": range(size)}


def dump_of(
    rank: int, calls: Sequence[Called], unfinished: int, members: Mapping[str, Sequence[int]]
) -> RankDump:
    """The buffer of a rank whose last calls have not ended.

    A receive behind a send of its line is of one batch with it.
    """
    numbers: Counter[tuple[str, bool]] = Counter()
    rows = []
    for place, (group, op, line, other) in enumerate(calls):
        message = op in (SEND, RECV)
        of_batch = op == RECV and place > 0 and calls[place - 1][:3] == (group, SEND, line)
        numbers[group, message] += not of_batch
        ends = (rank, other) if op == SEND else (other, rank)
        name = f"{op} {ends[0]}->{ends[1]}" if op == SEND else f"{op} {ends[1]}<-{ends[0]}"
        rows.append(
            Row(
                name if message else op,
                0 if message else numbers[group, False],
                group=group,
                done=place < len(calls) - unfinished,
                inputs=((4,),) if message else ((other,),),
                line=line,
                p2p_seq=numbers[group, True] if message else 0,
                extra={"thread_id": "7", "thread_name": "python"},
            )
        )
    mine = {group: ranks for group, ranks in members.items() if rank in ranks}
    return columns(rank, rows, members=mine)
