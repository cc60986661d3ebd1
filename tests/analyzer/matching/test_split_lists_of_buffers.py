"""Buffers of format 2.11 have the split lists of all_to_all, and tell who does not agree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.verdict import Cause, Status
from hanglab.recorder.case.operations import SPLIT_KEYS
from tests.analyzer.flight_recorder.dump_builders import dump, entry, json_form, torch_pickle

Lists = tuple[list[int], list[int]]
EVEN: Lists = ([4, 4, 4], [4, 4, 4])


def write(folder: Path, last: dict[int, Lists], *, open_: bool, as_json: bool = False) -> Path:
    """Dumps of three ranks: forty exchanges of one size, and one with the lists of ``last``."""
    for rank in range(3):
        rows = []
        for number in range(41):
            final = number == 40
            lists = last.get(rank, EVEN) if final else EVEN
            held = final and open_
            rows.append(
                entry(
                    number,
                    profiling_name="nccl:all_to_all",
                    input_sizes=[[sum(lists[0])]],
                    output_sizes=[[sum(lists[1])]],
                    state="started" if held else "completed",
                    retired=not held,
                    time_discovered_completed_ns=None if held else 1_700_000_000_100_000_000,
                    **dict(zip(SPLIT_KEYS, lists, strict=True)),
                )
            )
        whole = dump(
            rows,
            version="2.11",
            pg_config={"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}},
            pg_status={
                "0": {
                    "last_enqueued_collective": 41,
                    "last_started_collective": 41,
                    "last_completed_collective": 41 - open_,
                }
            },
        )
        if as_json:
            (folder / f"trace_{rank}.json").write_text(json.dumps(json_form(whole)))
        else:
            (folder / f"trace_{rank}").write_bytes(torch_pickle(whole))
    return folder


@pytest.mark.parametrize("as_json", [False, True])
def test_the_rank_whose_list_disagrees_with_all_others_is_named(
    tmp_path: Path, as_json: bool
) -> None:
    verdict = analyze(write(tmp_path, {1: ([8, 4, 8], EVEN[1])}, open_=True, as_json=as_json))
    assert (verdict.status, verdict.cause) == (Status.HUNG, Cause.SPLIT_MISMATCH)
    assert verdict.culprits == [1]
    assert "splits in:[8, 4, 8]" in verdict.evidence[0].detail


def test_of_one_pair_that_disagrees_nothing_tells_who_is_wrong(tmp_path: Path) -> None:
    verdict = analyze(write(tmp_path, {1: ([4, 4, 8], EVEN[1])}, open_=True))
    assert (verdict.cause, verdict.culprits) == (Cause.SPLIT_MISMATCH, [1, 2])
    assert "nothing tells which of them is wrong" in verdict.summary


def test_uneven_lists_that_agree_are_no_mismatch(tmp_path: Path) -> None:
    agreed = {1: ([4, 4, 8], EVEN[1]), 2: (EVEN[0], [4, 8, 4])}
    verdict = analyze(write(tmp_path, agreed, open_=False))
    assert verdict.cause is not Cause.SPLIT_MISMATCH
    assert verdict.culprits == []
