"""The history of a watch: several that write at once, hosts that were culprits, storms."""

from __future__ import annotations

import sqlite3
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from hanglab.harness.cli import main
from hanglab.harness.watching.events import WatchEvent
from hanglab.harness.watching.history import HistoryError, WatchHistory
from hanglab.harness.watching.telling import Teller

FAILED = WatchEvent(
    "failed", "train", "train: rank 3 code 1", host="node-a", status="failed",
    signature="rank 3 code 1", same_job="train",
)  # fmt: skip
STOPPED = WatchEvent(
    "stopped", "train", "Rank 3 is stopped.", host="node-a", status="hung", cause="process_frozen",
    culprits=[3], culprits_here=[3], signature="process_frozen of rank 3", same_job="train",
)  # fmt: skip


def _write(path: Path, host: str) -> None:
    history = WatchHistory(path)
    for number in range(20):
        history.add(replace(STOPPED, host=host, job=f"job {number}", same_job=f"job {number}"))


def test_several_watches_write_into_one_history(tmp_path: Path) -> None:
    path = tmp_path / "watch.sqlite"
    with ProcessPoolExecutor(3) as pool:
        list(pool.map(_write, [path] * 3, ["node-a", "node-b", "node-c"]))
    found = WatchHistory(path).culprit_hosts(30)
    assert sorted((one.host, one.times, one.jobs) for one in found) == [
        ("node-a", 20, 20), ("node-b", 20, 20), ("node-c", 20, 20)
    ]  # fmt: skip
    assert path.stat().st_mode & 0o077 == 0


def test_hosts_that_were_culprits_lately_the_worst_first(tmp_path, capsys) -> None:
    history = WatchHistory(tmp_path / "watch.sqlite")
    now = time.time()
    history.add(replace(STOPPED, at=now - 40 * 86400))
    history.add(replace(STOPPED, host="node-b", at=now - 5 * 86400, cause="process_frozen"))
    history.add(replace(STOPPED, host="node-b", at=now))
    history.add(replace(STOPPED, host="node-c", at=now, culprits_here=[]))  # it only waited there
    assert [(one.host, one.times) for one in history.culprit_hosts(30)] == [("node-b", 2)]
    assert [(one.host, one.times) for one in history.culprit_hosts(60)] == [
        ("node-b", 2), ("node-a", 1)
    ]  # fmt: skip
    assert main(["watch", "--state", str(tmp_path), "--history", "30"]) == 0
    printed = capsys.readouterr().out
    assert "node-b" in printed and "process_frozen" in printed and "node-a" not in printed


def test_a_history_that_cannot_be_used_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "watch.sqlite"
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(HistoryError, match="not a database"):
        WatchHistory(path)
    newer = tmp_path / "newer.sqlite"
    with sqlite3.connect(newer) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(HistoryError, match="newer hanglab"):
        WatchHistory(newer)


def test_a_restart_storm_is_told_once_and_again_when_it_doubles(tmp_path: Path) -> None:
    said: list[str] = []
    teller = Teller(said.append, WatchHistory(tmp_path / "watch.sqlite"))
    for attempt in range(7):
        # Another failure in between is not of the storm.
        teller.tell(replace(FAILED, attempt=attempt, signature="rank 0 signal 9"))
        teller.tell(replace(FAILED, attempt=attempt, job=f"process {attempt}"))
    storms = [text for text in said if "times in a day" in text and "rank 3 code 1" in text]
    assert ["3 times" in storms[0], "6 times" in storms[1], len(storms)] == [True, True, 2]


def test_neither_a_storm_nor_who_failed_first_makes_a_culprit(tmp_path: Path) -> None:
    history = WatchHistory(tmp_path / "watch.sqlite")
    said: list[str] = []
    teller = Teller(said.append, history)
    now = time.time()
    for attempt in range(3):
        teller.tell(replace(FAILED, host="node-b", attempt=attempt, at=now))
        teller.tell(replace(STOPPED, attempt=attempt, at=now))
    assert sum("times in a day" in text for text in said) == 2
    assert [(one.host, one.times) for one in history.culprit_hosts(30)] == [("node-a", 3)]


def test_who_cannot_keep_a_history_is_told_all_the_same(tmp_path: Path) -> None:
    history = WatchHistory(tmp_path / "watch.sqlite")
    (tmp_path / "watch.sqlite").write_bytes(b"overwritten by somebody" * 300)
    said: list[str] = []
    Teller(said.append, history).tell(FAILED)
    assert said[0].startswith("train: rank 3 code 1")
    assert "cannot be used" in said[1]
