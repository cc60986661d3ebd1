"""What emulated jobs leave behind, against what torch's own dumps of NCCL are known to hold."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from emulated_support import Ended, Run
from installed import needs_torch

from hanglab.analyzer.engine import EMULATED, analyze
from hanglab.analyzer.program.program import Action, Program, ProgramGroup
from hanglab.analyzer.program.rendering import render
from hanglab.analyzer.program.simulation import simulate
from hanglab.recorder.case.operations import SPLIT_KEYS

pytestmark = needs_torch


def _dump(ended: Ended) -> dict[str, Any]:
    assert ended.code == 0, ended.stderr
    found: dict[str, Any] = ended.told["dump"]
    return found


def test_states_and_numbers_of_a_ring(run_ranks: Run) -> None:
    first, _ = run_ranks("evidence.py", "states", 2, TORCH_NCCL_ENABLE_TIMING="1")
    dump = _dump(first)
    assert dump["version"] == "2.10"
    assert dump["comm_lib_version"] == "emulated by hanglab"
    assert dump["pg_config"] == {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    assert dump["pg_status"] == {
        "0": {
            "last_enqueued_collective": 3,
            "last_started_collective": 2,
            "last_completed_collective": 1,
        }
    }
    done, running, behind = dump["entries"]
    assert [e["state"] for e in dump["entries"]] == ["completed", "started", "scheduled"]
    assert [e["profiling_name"] for e in dump["entries"]] == [
        "nccl:all_reduce", "nccl:_all_gather_base", "nccl:broadcast",
    ]  # fmt: skip
    assert [e["collective_seq_id"] for e in dump["entries"]] == [1, 2, 3]
    assert [e["op_id"] for e in dump["entries"]] == [1, 2, 3]
    assert [e["retired"] for e in dump["entries"]] == [True, False, False]
    assert done["duration_ms"] > 0 and "duration_ms" not in running
    assert done["time_discovered_completed_ns"] > done["time_created_ns"]
    assert running["time_discovered_started_ns"] and not running["time_discovered_completed_ns"]
    assert (running["input_sizes"], running["output_sizes"]) == ([[2]], [[4]])
    assert behind["input_dtypes"] == ["Double"]
    # torch's own frames come first, and none of the emulation is among them.
    assert running["frames"][0]["filename"].endswith("torch/distributed/distributed_c10d.py")
    assert any(frame["name"] == "states" for frame in running["frames"])
    assert not any("nccl_emulated/" in f["filename"].split("hanglab")[-1] and "harness" in
                   f["filename"] for f in running["frames"])  # fmt: skip
    assert first.told["active"] == 2
    assert "entries" not in first.told["without"]
    assert first.told["stacks"] is False


def test_without_timing_no_operation_is_known_to_have_started(run_ranks: Run) -> None:
    first, _ = run_ranks("evidence.py", "states", 2, TORCH_NCCL_ENABLE_TIMING="0")
    assert [e["state"] for e in _dump(first)["entries"]] == ["completed", "scheduled", "scheduled"]


@pytest.mark.parametrize("version", ["2.10", "2.11"])
def test_format_2_11_has_both_split_lists_of_an_exchange(run_ranks: Run, version: str) -> None:
    """In elements (pytorch#195443), of calls without lists, too."""
    ended = run_ranks("evidence.py", "exchanges", 2, HANGLAB_EMULATED_DUMP_FORMAT=version)
    dump = _dump(ended[1])
    assert dump["version"] == version
    lists = [[entry.get(key) for key in SPLIT_KEYS] for entry in dump["entries"]]
    uneven, even = ([[3, 6], [3, 6]], [[3, 3], [3, 3]]) if version == "2.11" else ([None] * 2,) * 2
    assert lists == [uneven, even, [None] * 2]


def test_members_of_a_batch_stay_scheduled_and_its_end_completes(run_ranks: Run) -> None:
    """That is not marked as a message (``ProcessGroupNCCL::initWork`` asks the kind of it)."""
    dump = _dump(run_ranks("evidence.py", "batches", 3)[1])
    rows = [
        (e["profiling_name"], e["state"], e["is_p2p"], e["p2p_seq_id"], e["collective_seq_id"])
        for e in dump["entries"]
    ]
    assert rows == [
        ("nccl:send 1->2", "scheduled", True, 1, 0),
        ("nccl:recv 1<-0", "scheduled", True, 1, 0),
        ("nccl:coalesced", "completed", False, 1, 0),
        ("nccl:all_reduce_barrier", "completed", False, 1, 1),
    ]


def test_entries_have_the_keys_of_nccls_dumps_in_their_order(run_ranks: Run) -> None:
    """Against what the analyzer's own tests render after real dumps of NCCL, byte for byte."""
    first, _ = run_ranks("evidence.py", "states", 2, TORCH_NCCL_ENABLE_TIMING="1")
    mine = _dump(first)
    group = ProgramGroup("0", members=(0, 1), description="default_pg")
    program = Program((group,), ((Action("all_reduce", 0, numel=3),),) * 2)
    theirs = render(simulate(program, "nccl"), 0)
    assert list(mine) == list(theirs)
    for entry in mine["entries"]:
        known = [key for key in entry if key != "duration_ms"]
        assert known == list(theirs["entries"][0])
        assert {type(entry[key]) for key in ("pg_id", "op_id", "time_created_ns")} == {int}


def test_a_time_limit_ends_the_process_after_every_rank_has_dumped(
    run_ranks: Run, tmp_path: Path
) -> None:
    ended = run_ranks(
        "evidence.py", "time_limit", 2, TORCH_FR_DUMP_TEMP_FILE=str(tmp_path / "dump_")
    )
    assert ended[0].code == -signal.SIGABRT
    assert ended[0].told == {"host": "went on"}
    assert ended[1].told == {"files": [True, True]}
    said = ended[0].stderr
    assert "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, " \
        "NumelIn=7, NumelOut=7, Timeout(ms)=1000) ran for " in said  # fmt: skip
    assert "last enqueued work: 2, last completed work: 1" in said
    assert "terminate called after throwing an instance of 'c10::DistBackendError'" in said
    assert EMULATED in [one.detail for one in analyze(tmp_path).evidence]


def test_nccl2_tells_of_completions_alone_and_by_numbers_of_operations(run_ranks: Run) -> None:
    first, _ = run_ranks(
        "evidence.py", "states", 2, TORCH_NCCL_ENABLE_TIMING="0", HANGLAB_EMULATED_NCCL2="1"
    )
    dump = _dump(first)
    rows = [(e["profiling_name"], e["state"], e["retired"]) for e in dump["entries"]]
    assert rows == [
        ("nccl2:all_reduce", "completed", True),
        ("nccl2:_all_gather_base", "scheduled", False),
        ("nccl2:broadcast", "scheduled", False),
    ]
    done = dump["entries"][0]
    assert done["time_discovered_started_ns"] == done["time_discovered_completed_ns"] > 0
    assert dump["pg_status"]["0"] == {
        "last_enqueued_collective": 3, "last_started_collective": -1,
        "last_completed_collective": 1,
    }  # fmt: skip


def test_nccl2_has_no_entry_for_the_end_of_a_batch(run_ranks: Run) -> None:
    dump = _dump(run_ranks("evidence.py", "batches", 3, HANGLAB_EMULATED_NCCL2="1")[1])
    assert [e["profiling_name"] for e in dump["entries"]] == [
        "nccl2:send 1->2", "nccl2:recv 1<-0", "nccl2:barrier",
    ]  # fmt: skip
    assert dump["pg_status"]["0"]["last_completed_collective"] == dump["entries"][-1]["op_id"]


@pytest.mark.slow
def test_nccl2_dumps_on_the_rank_alone_that_sees_the_failure(
    run_ranks: Run, tmp_path: Path
) -> None:
    ended = run_ranks(
        "evidence.py", "time_limit", 2,
        TORCH_FR_DUMP_TEMP_FILE=str(tmp_path / "dump_"), HANGLAB_EMULATED_NCCL2="1",
    )  # fmt: skip
    assert ended[0].code == -signal.SIGABRT
    assert ended[1].told == {"files": [True, False]}


def test_torchs_pipe_is_answered(run_ranks: Run, tmp_path: Path) -> None:
    ended = run_ranks(
        "evidence.py", "pipe", 2,
        TORCH_FR_DUMP_TEMP_FILE=str(tmp_path / "dump_"),
        TORCH_NCCL_DEBUG_INFO_PIPE_FILE=str(tmp_path / "pipe_"),
    )  # fmt: skip
    assert [one.told["names"] for one in ended] == [["nccl:all_reduce"]] * 2


def test_one_dump_has_the_groups_of_gloo_as_well(run_ranks: Run) -> None:
    dump = _dump(run_ranks("evidence.py", "beside_gloo", 2)[0])
    names = {(e["pg_id"], e["profiling_name"]) for e in dump["entries"]}
    assert (0, "nccl:all_reduce") in names
    assert any(number > 0 and name == "gloo:all_reduce" for number, name in names)
