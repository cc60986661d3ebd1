"""Real jobs whose ranks wait for each other besides operations: on sockets, for keys and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kept_launcher import run_script

pytestmark = pytest.mark.usefixtures("kept_launcher")

PROGRAM = Path(__file__).with_name("host_waits_program.py")


def verdict_on(folder: Path, size: int, kind: str, waiter: int, peer: int, fault: str) -> Any:
    """Verdict on a job of ``size`` ranks."""
    options = ("--world-size", str(size), "--hang-after", "1.5")
    return run_script(folder, *options, str(PROGRAM), "--", kind, str(waiter), str(peer), fault)[1]


def details(verdict: Any, rank: int) -> str:
    return " ".join(one["detail"] for one in verdict["evidence"] if one["rank"] == rank)


@pytest.mark.parametrize(
    ("kind", "size", "waiter", "peer"),
    [
        ("tcp", 4, 1, 2),
        pytest.param("unix", 3, 2, 0, marks=pytest.mark.long),
        pytest.param("tcp", 3, 0, 2, marks=pytest.mark.long),
        pytest.param("connection", 5, 3, 0, marks=pytest.mark.long),
    ],
)
def test_neither_end_of_a_socket_is_accused(
    tmp_path: Path, kind: str, size: int, waiter: int, peer: int
) -> None:
    verdict = verdict_on(tmp_path, size, kind, waiter, peer, "left_out")
    assert (verdict["status"], verdict["culprits"]) == ("inconclusive", [])
    assert f"whose other end rank {peer} has" in details(verdict, waiter)
    assert f"rank {peer} waits in barrier" in verdict["summary"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "size", "waiter", "peer"),
    [
        ("connection", 3, 0, 2),
        ("store", 4, 1, 3),
        pytest.param("tcp", 5, 1, 2, marks=pytest.mark.long),
        pytest.param("unix", 3, 2, 0, marks=pytest.mark.long),
    ],
)
def test_the_peer_that_is_away_is_accused_alone(
    tmp_path: Path, kind: str, size: int, waiter: int, peer: int
) -> None:
    verdict = verdict_on(tmp_path, size, kind, waiter, peer, "away")
    assert (verdict["status"], verdict["culprits"]) == ("hung", [peer])
    assert waiter in verdict["victims"]
    assert f"rank {peer}" in details(verdict, waiter)


def test_the_end_of_a_chain_of_sockets_is_accused(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, 4, "tcp", 1, 2, "chain")
    assert (verdict["status"], verdict["culprits"]) == ("hung", [0])
    assert {1, 2} <= set(verdict["victims"])


@pytest.mark.parametrize(
    ("kind", "size", "waiter", "setter"),
    [
        ("store", 3, 1, 0),
        ("waited", 4, 2, 1),
        pytest.param("store", 5, 0, 3, marks=pytest.mark.long),
    ],
)
def test_who_set_the_keys_before_left_one_out(
    tmp_path: Path, kind: str, size: int, waiter: int, setter: int
) -> None:
    verdict = verdict_on(tmp_path, size, kind, waiter, setter, "left_out")
    assert (verdict["cause"], verdict["culprits"]) == ("python_deadlock", [setter])
    assert "'plan/5'" in verdict["summary"]


@pytest.mark.long
def test_who_set_the_keys_that_a_rank_polls_for_left_one_out(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, 4, "checked", 1, 3, "left_out")
    assert (verdict["cause"], verdict["culprits"]) == ("python_deadlock", [3])
    assert "rank 1 polls for the store's key 'plan/5'" in verdict["summary"]


@pytest.mark.parametrize("fault", ["left_out", pytest.param("locked", marks=pytest.mark.long)])
def test_who_polls_for_a_file_is_not_accused_of_what_others_have_to_do(
    tmp_path: Path, fault: str
) -> None:
    verdict = verdict_on(tmp_path, 4, "file", 2, 0, fault)
    assert (verdict["status"], verdict["culprits"]) == ("inconclusive", [])
    name, there = ("5", "not there") if fault == "left_out" else ("lock", "there")
    assert f"/{name}, which is {there}" in verdict["summary"]
    assert "asked" in details(verdict, 2)


@pytest.mark.long
def test_who_polls_for_the_end_of_a_file_older_than_the_job_is_the_root(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, 4, "file", 2, 0, "stale")
    assert (verdict["cause"], verdict["culprits"]) == ("missing_rank", [2])
    assert "/lock, which is there since before the job began" in verdict["summary"]


def test_who_polls_for_a_new_content_of_an_old_file_is_not_accused(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, 4, "file", 2, 0, "unwritten")
    assert (verdict["status"], verdict["culprits"]) == ("inconclusive", [])
    assert "rank 2 polls for the file" in verdict["summary"]
    assert "/weights, which is there" in verdict["summary"]
    assert "before the job began" not in verdict["summary"]


def test_the_same_keys_under_another_prefix_are_others(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, 3, "prefixes", 1, 2, "left_out")
    assert (verdict["cause"], verdict["culprits"]) == ("python_deadlock", [2])


@pytest.mark.parametrize(
    ("kind", "fault"),
    [("store", "unknown"), pytest.param("store", "early", marks=pytest.mark.long)],
)
def test_nobody_is_accused_of_a_key_that_nobody_was_to_set(
    tmp_path: Path, kind: str, fault: str
) -> None:
    verdict = verdict_on(tmp_path, 4, kind, 1, 2, fault)
    assert (verdict["status"], verdict["culprits"]) == ("inconclusive", [])
    assert "waits for the store's key 'plan/" in details(verdict, 1)


@pytest.mark.parametrize("kind", [pytest.param("tcp", marks=pytest.mark.long), "store"])
def test_jobs_that_go_on_are_healthy(tmp_path: Path, kind: str) -> None:
    assert verdict_on(tmp_path, 3, kind, 1, 2, "none")["status"] == "healthy"
