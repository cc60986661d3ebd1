"""Dumps of the emulated device against real ones of NCCL, field by field.

The real ones are of two hangs of a Megatron job on 16 ranks (NCCL 2.27.3, format 2.9, open
operations alone, no stacks); the emulated job is the same situation on four.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from emulated_support import Run
from installed import needs_torch

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "megatron-nccl"
_CULPRIT = 3
_FIELDS = {
    "record_id": "int", "pg_id": "int", "process_group": "tuple", "thread_name": "str",
    "thread_id": "str", "collective_seq_id": "int", "p2p_seq_id": "int", "op_id": "int",
    "profiling_name": "str", "time_created_ns": "int", "input_sizes": "list",
    "input_dtypes": "list", "output_sizes": "list", "output_dtypes": "list", "state": "str",
    "time_discovered_started_ns": "NoneType", "time_discovered_completed_ns": "NoneType",
    "retired": "bool", "timeout_ms": "int", "is_p2p": "bool",
}  # fmt: skip
#: What holds of such dumps, whichever device they are of: name of the rule -> what is found.
RULES: dict[str, Any] = {
    "top": ["version", "pg_config", "nccl_version", "pg_status", "entries"],
    "version": {"2.9"},
    "fields": {tuple(_FIELDS.items())},
    "states": {("scheduled", False)},
    "operations": {
        "nccl:_all_gather_base", "nccl:_reduce_scatter_base", "nccl:all_reduce",
        "nccl:all_to_all", "nccl:broadcast", "nccl:recv", "nccl:send",
    },
    "started without timing": {-1},
    "counters of open operations": True,
    "operation numbers": True,
    "records ascend": True,
    "groups sorted as text": True,
    "groups that wait are in the configuration": True,
    "own groups alone": True,
    "threads are handles": True,
    "messages by ranks of their group": True,
    "sent is received": True,
}  # fmt: skip


def found(dumps: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """What the rules find in the dumps of a job, by rank."""
    entries = [(rank, entry) for rank, dump in dumps.items() for entry in dump["entries"]]
    tops = {tuple(dump) for dump in dumps.values()}
    assert len(tops) == 1
    return {
        "top": list(tops.pop()),
        "version": {dump["version"] for dump in dumps.values()},
        "fields": {
            tuple((key, type(value).__name__) for key, value in e.items()) for _, e in entries
        },
        "states": {(e["state"], e["retired"]) for _, e in entries},
        "operations": {e["profiling_name"].split()[0] for _, e in entries},
        "started without timing": {
            status["last_started_collective"]
            for dump in dumps.values()
            for status in dump["pg_status"].values()
        },
        "counters of open operations": all(_between(dumps[rank], e) for rank, e in entries),
        "operation numbers": all(
            e["op_id"] == e["collective_seq_id"] + e["p2p_seq_id"] for _, e in entries
        ),
        "records ascend": all(
            numbers == sorted(set(numbers))
            for numbers in ([e["record_id"] for e in d["entries"]] for d in dumps.values())
        ),
        "groups sorted as text": all(
            list(dump["pg_config"]) == sorted(dump["pg_config"]) for dump in dumps.values()
        ),
        "groups that wait are in the configuration": all(
            dumps[rank]["pg_config"][e["process_group"][0]]["desc"] == e["process_group"][1]
            for rank, e in entries
        ),
        "own groups alone": all(
            rank in json.loads(group["ranks"])
            for rank, dump in dumps.items()
            for group in dump["pg_config"].values()
        ),
        # Addresses of the thread's memory, far above any number of a process.
        "threads are handles": all(int(e["thread_id"]) > 1 << 32 for _, e in entries),
        "messages by ranks of their group": all(
            _is_own_place(rank, dumps[rank], e) for rank, e in entries if e["is_p2p"]
        ),
        "sent is received": all(
            e["input_sizes"] == e["output_sizes"] for _, e in entries if e["is_p2p"]
        ),
    }


def _between(dump: dict[str, Any], entry: dict[str, Any]) -> bool:
    """True if an open operation is one after the last that completed, up to the last launched."""
    status = dump["pg_status"][str(entry["pg_id"])]
    number = entry["p2p_seq_id"] if entry["is_p2p"] else entry["collective_seq_id"]
    return bool(status["last_completed_collective"] < number <= status["last_enqueued_collective"])


def _is_own_place(rank: int, dump: dict[str, Any], entry: dict[str, Any]) -> bool:
    members = json.loads(dump["pg_config"][entry["process_group"][0]]["ranks"])
    own = int(entry["profiling_name"].split()[1].replace("<", "-").partition("-")[0])
    return bool(members[own] == rank)


def standing_still(dumps: dict[int, dict[str, Any]]) -> list[int]:
    """Ranks that have nothing open, and have launched less than their peers in their groups."""
    return [
        rank
        for rank, dump in dumps.items()
        if not dump["entries"]
        and all(
            status["last_enqueued_collective"] == status["last_completed_collective"]
            for status in dump["pg_status"].values()
        )
    ]


@pytest.fixture(scope="module")
def emulated(run_ranks: Run) -> dict[int, dict[str, Any]]:
    ended = run_ranks("pipeline_hang.py", "hangs", 4, HANGLAB_EMULATED_DUMP_FORMAT="2.9")
    for one in ended:
        assert one.code == 0, one.stderr
    dumps = {rank: one.told["dump"] for rank, one in enumerate(ended)}
    for dump in dumps.values():  # JSON has no tuples
        for entry in dump["entries"]:
            entry["process_group"] = tuple(entry["process_group"])
    return dumps


def real(hang: str) -> dict[int, dict[str, Any]]:
    if not DATA.is_dir():
        pytest.skip(f"the dumps of the Megatron hangs are not there: {DATA}")
    return {rank: pickle.loads((DATA / hang / f"_dump_{rank}").read_bytes()) for rank in range(16)}


@needs_torch
@pytest.mark.parametrize("rule", RULES)
def test_the_emulated_job_keeps_each_rule(emulated: dict[int, dict[str, Any]], rule: str) -> None:
    assert found(emulated)[rule] == RULES[rule]


@needs_torch
def test_the_rank_that_stands_still_has_launched_less(
    emulated: dict[int, dict[str, Any]],
) -> None:
    assert standing_still(emulated) == [_CULPRIT]
    launched = {
        rank: max(s["last_enqueued_collective"] for s in dump["pg_status"].values())
        for rank, dump in emulated.items()
    }
    assert launched[_CULPRIT] < min(launched[rank] for rank in (0, 1, 2))


@pytest.mark.parametrize("hang", ["lock_gil_2nd", "gpu_error_2nd"])
@pytest.mark.parametrize("rule", RULES)
def test_real_dumps_keep_each_rule(hang: str, rule: str) -> None:
    assert found(real(hang))[rule] == RULES[rule]


def test_real_ranks_that_stood_still_have_the_same_shape() -> None:
    truth = json.loads((DATA / "truth.json").read_text()) if DATA.is_dir() else {}
    assert standing_still(real("lock_gil_2nd")) == truth["lock_gil_2nd"]["culprits"]
