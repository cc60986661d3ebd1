"""Runs come out as torch would have dumped them, and load like that."""

from __future__ import annotations

import json
import pickle
import pickletools
from random import Random

import pytest
from random_runs import random_run

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.flight_recorder import load_bytes
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.program import Action, Program, ProgramGroup
from hanglab.analyzer.program.rendering import Style, render, to_json, to_pickle, to_rank_dump
from hanglab.analyzer.program.simulation import Backend, Run, simulate

GROUPS = (ProgramGroup("0", (0, 1), "default_pg"),)
ACTIONS = (
    Action("all_reduce", 0, site=10, numel=4),
    Action("send", 0, site=11, numel=4, peer=1),
    Action("barrier", 0, site=12, numel=0),
)


def run_of(backend: Backend) -> Run:
    other = (ACTIONS[0], Action("recv", 0, site=11, numel=4, peer=0), ACTIONS[2])
    return simulate(Program(GROUPS, (ACTIONS, other)), backend)


def test_gloo_hides_what_it_hides() -> None:
    dump = render(run_of("gloo"), 0)
    assert dump["pg_config"] == {"": {"name": "", "desc": "", "ranks": "[]"}}
    assert [e["profiling_name"] for e in dump["entries"]] == ["gloo:all_reduce", "gloo:barrier"]
    assert [e["op_id"] for e in dump["entries"]] == [1, 3]
    assert {(e["state"], e["retired"]) for e in dump["entries"]} == {("scheduled", True)}
    assert dump["pg_status"]["0"]["last_completed_collective"] == 3


def test_nccl_shows_point_to_point() -> None:
    sender, receiver = (render(run_of("nccl"), rank)["entries"][1] for rank in (0, 1))
    assert sender["profiling_name"] == "nccl:send 0->1"
    assert receiver["profiling_name"] == "nccl:recv 1<-0"
    assert sender["is_p2p"] and sender["p2p_seq_id"] == 1


def test_pickles_are_plain_data_with_shared_frames() -> None:
    data = to_pickle(render(run_of("nccl"), 0))
    opcodes = {opcode.name for opcode, _, _ in pickletools.genops(data)}
    assert not opcodes & {"GLOBAL", "REDUCE", "STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "BUILD"}
    loaded = pickle.loads(data)
    first, second = (entry["frames"] for entry in loaded["entries"][:2])
    assert first[-1] is second[-1]


def test_json_has_no_frames_and_zeros_for_unknown_times() -> None:
    style = Style()
    dump = json.loads(to_json(render(run_of("nccl"), 0, style)))
    assert "frames" not in dump["entries"][0]
    assert dump["entries"][0]["time_discovered_started_ns"] != 0
    assert dump["pg_status"]["0"]["last_started_collective"] == "-1"


def test_versions_differ_in_their_keys() -> None:
    old, new = (render(run_of("nccl"), 0, Style(version=v)) for v in ("2.1", "2.10"))
    assert "pg_status" not in old and "nccl_version" in old
    assert "comm_lib_version" in new
    assert "thread_name" not in old["entries"][0]


def test_rings_and_active_entries() -> None:
    stuck = simulate(run_of("nccl").program, "nccl", stops={1: 2})
    ring = render(stuck, 0, Style(ring=2, record_offset=7))
    assert [entry["record_id"] for entry in ring["entries"]] == [8, 9]
    active = render(stuck, 0, Style(active_only=True))
    assert [entry["profiling_name"] for entry in active["entries"]] == ["nccl:all_reduce_barrier"]


@pytest.mark.parametrize("seed", range(12))
def test_bytes_and_columns_lead_to_the_same_findings(seed: int) -> None:
    drawn = random_run(Random(seed), largest=4)
    if drawn is None:
        return
    style = Style(version="2.10", frames=drawn.style.frames)
    ranks = range(drawn.run.program.world_size)
    columns = [to_rank_dump(drawn.run, rank, style) for rank in ranks]
    objects = [render(drawn.run, rank, style) for rank in ranks]
    pickled = [load_bytes(to_pickle(o), rank=r, source="") for r, o in enumerate(objects)]
    written = [load_bytes(to_json(o), rank=r, source="") for r, o in enumerate(objects)]
    expected = synchronization_findings(build_wait_for_graph(columns))
    assert synchronization_findings(build_wait_for_graph(pickled)) == expected
    if not style.frames:
        assert synchronization_findings(build_wait_for_graph(written)) == expected
