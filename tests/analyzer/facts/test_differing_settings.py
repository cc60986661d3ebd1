"""Settings that differ between ranks."""

from __future__ import annotations

from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.facts.differing_settings import differences
from hanglab.recorder.case.records import Clock, Python, RankProcess


def view(rank: int, torch: str, **environment: str) -> RankView:
    python = Python(version="3.11.7", torch_version=torch)
    process = RankProcess(rank, rank, 3, Clock(0, 0), python)
    process.environment = {"RANK": str(rank), **environment}
    return RankView(rank, process=process)


def test_versions_and_settings_that_differ_are_told_with_their_ranks() -> None:
    views = {
        0: view(0, "2.13.0", NCCL_ALGO="Ring", GLOO_SOCKET_IFNAME="eth0"),
        1: view(1, "2.13.0", NCCL_ALGO="Ring", GLOO_SOCKET_IFNAME="eth0"),
        2: view(2, "2.12.1", GLOO_SOCKET_IFNAME="eth0"),
        3: RankView(3),
    }
    assert [row.detail for row in differences(views)] == [
        "NCCL_ALGO differs: Ring on ranks 0, 1; unset on ranks 2",
        "torch differs: 2.13.0 on ranks 0, 1; 2.12.1 on ranks 2",
    ]


def test_what_each_rank_has_of_its_own_is_no_difference() -> None:
    assert differences({r: view(r, "2.13.0", CUDA_VISIBLE_DEVICES=str(r)) for r in range(3)}) == []
