"""Dumps of one entry: what torch's watchdog of NCCL wrote of the operation that ran out of time.

It tells the operation with its number and size, and how many were enqueued and have completed,
as a Flight Recorder of which no more is left.  Of subgroups nothing tells the members, so only
the group of all ranks is read.
"""

from __future__ import annotations

import json
import re

from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.flight_recorder.formats import read_dump
from hanglab.analyzer.logs.stamps import stamp_ns

_CAUGHT = re.compile(
    r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(?P<seq>\d{1,18}), "
    r"OpType=(?P<op>\w+), NumelIn=(?P<taken>\d{1,18}), NumelOut=(?P<given>\d{1,18}), "
    r"Timeout\(ms\)=(?P<limit>\d{1,18})\) ran for (?P<ran>\d{1,18}) milliseconds"
)
_STATUS = re.compile(
    r"[Ll]ast enqueued (?:NCCL )?work: (?P<enqueued>\d{1,18}), last completed (?:NCCL )?work: "
    r"(?P<completed>\d{1,18})"
)
_GROUP = re.compile(r"\[PG (?:ID )?(?P<number>\d{1,18})\b")
#: Lines behind the one on the operation in which the group is named.
_NEXT = 3
#: Flight Recorder's names of operations by those of the watchdog, where they are not the same.
_OPERATIONS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "_allgather_base": "_all_gather_base",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
}
_POINT_TO_POINT = frozenset({"send", "recv", "coalesced"})


def dump_of_watchdog(rank: int, text: str, size: int | None, year: int) -> RankDump | None:
    """The dump that the lines of a rank are worth; None if its watchdog wrote nothing.

    ``size`` is how many ranks there are, None where that is not known.
    """
    lines = text.splitlines()
    status, entry, written_ns = None, None, None
    for place, line in enumerate(lines):
        if (match := _STATUS.search(line)) is not None and _is_of_all(lines, place):
            status = {name: int(match[name]) for name in ("enqueued", "completed")}
            written_ns = stamp_ns(line, year) or written_ns
        if (
            entry is None
            and (match := _CAUGHT.search(line)) is not None
            and _is_of_all(lines, place)
        ):
            written_ns = stamp_ns(line, year) or written_ns
            entry = _entry(match, written_ns or 0)
    if status is None and entry is None:
        return None
    config = {"name": "0", "desc": "default_pg"}
    if size is not None:
        config["ranks"] = str(list(range(size)))
    told = status or {}
    document = {
        "version": "2.4",
        "pg_config": {"0": config},
        "pg_status": {
            "0": {
                "last_enqueued_collective": told.get("enqueued", -1),
                "last_started_collective": -1,
                "last_completed_collective": told.get("completed", -1),
            }
        },
        "entries": [entry] if entry is not None else [],
    }
    data = json.dumps(document).encode()
    dump = read_dump(data, rank=rank, source=f"log of rank {rank}", contained=False)
    if written_ns is not None:
        dump.written_ns = written_ns
    return dump


def _is_of_all(lines: list[str], place: int) -> bool:
    """True if a line is of the default group, by its own words or by those that follow."""
    for line in lines[place : place + _NEXT]:
        match = _GROUP.search(line)
        if match is not None:
            return int(match["number"]) == 0
    return True


def _entry(match: re.Match[str], written_ns: int) -> dict[str, object] | None:
    op = match["op"].lower()
    if op in _POINT_TO_POINT:
        return None
    seq, created_ns = int(match["seq"]), written_ns - int(match["ran"]) * 1_000_000
    return {
        "frames": [],
        "record_id": seq,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "profiling_name": f"nccl:{_OPERATIONS.get(op, op)}",
        "time_created_ns": max(created_ns, 1),
        "input_sizes": [[int(match["taken"])]],
        "input_dtypes": [],
        "output_sizes": [[int(match["given"])]],
        "output_dtypes": [],
        "state": "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": False,
        "timeout_ms": int(match["limit"]),
        "is_p2p": False,
    }
