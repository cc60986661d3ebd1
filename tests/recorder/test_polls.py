"""Questions that are asked again and again, as the watch on real files and stores sees them."""

from __future__ import annotations

import builtins
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from installed import needs_torch

from hanglab.recorder.rank import polls
from hanglab.recorder.rank.polls import PollWatch


class Rank:
    """A rank that has done ``moves`` things, and the watch on it."""

    def __init__(self) -> None:
        self.moves = 0
        self.watch = PollWatch(
            lambda: (self.moves,), lambda file: file == __file__, lambda _: "pre/"
        )

    def rest(self) -> None:
        self.watch.look()
        self.watch.look()

    def asked(self) -> list[tuple[str, str, bool, int]]:
        return [(r["call"], r["what"], r["found"], r["count"]) for r in self.watch.rows()]


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rank]:
    monkeypatch.setattr(polls, "REST_S", 0.0)
    before = {name: vars(os)[name] for name in polls.ASKING} | {"builtin": builtins.open}
    resting = Rank()
    yield resting
    resting.watch.uninstall()
    after = {name: vars(os)[name] for name in polls.ASKING} | {"builtin": builtins.open}
    assert all(after[name] is before[name] for name in before)


def test_a_file_that_is_asked_for_in_vain_is_told_with_the_line(rank: Rank, tmp_path: Path) -> None:
    rank.rest()
    for _ in range(4):
        assert not os.path.exists(tmp_path / "ready")
    (row,) = rank.watch.rows()
    assert (row["kind"], row["what"], row["found"]) == ("file", str(tmp_path / "ready"), False)
    assert (row["count"], row["file"], row["function"]) == (
        4, __file__, "test_a_file_that_is_asked_for_in_vain_is_told_with_the_line")  # fmt: skip


def test_a_file_that_stays_and_one_that_cannot_be_made_are_there(
    rank: Rank, tmp_path: Path
) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    rank.rest()
    for _ in range(2):
        assert lock.is_file()
    for _ in range(3):
        with pytest.raises(FileExistsError):
            os.open(lock, os.O_CREAT | os.O_EXCL)
    # Answers are counted by question, whatever call asked.
    assert rank.asked() == [("is_file, open", str(lock), True, 5)]
    (row,) = rank.watch.rows()
    # Where tests run no server keeps the folder for temporary files.
    assert (row["changed_ns"], row["by_host"]) == (lock.stat().st_mtime_ns, True)


def test_a_file_is_dated_by_the_file_system_that_a_link_leads_to(
    rank: Rank, tmp_path: Path
) -> None:
    (tmp_path / "shared").symlink_to("/proc/self")  # As one to a server's folder.
    rank.rest()
    for _ in range(3):
        assert (tmp_path / "shared" / "status").exists()
    (row,) = rank.watch.rows()
    assert not row["by_host"]


@pytest.mark.parametrize(
    ("name", "ask"),
    [
        ("exists", os.path.exists),
        ("getmtime", os.path.getmtime),
        ("stat", lambda path: os.stat(path)),
        ("exists", Path.exists),
        ("stat", Path.stat),
    ],
)
def test_who_asks_for_a_time_is_told_from_who_asks_whether_it_is_there(
    rank: Rank, tmp_path: Path, name: str, ask: Callable[[Path], object]
) -> None:
    rank.rest()
    for _ in range(2):
        ask(tmp_path)
    assert rank.asked() == [(name, str(tmp_path), True, 2)]


def test_another_answer_begins_another_count(rank: Rank, tmp_path: Path) -> None:
    rank.rest()
    for _ in range(3):
        assert not os.path.exists(tmp_path / "late")
    (tmp_path / "late").mkdir()
    for _ in range(2):
        assert os.path.exists(tmp_path / "late")
    assert rank.asked() == [("exists", str(tmp_path / "late"), True, 2)]


def test_nothing_is_watched_while_the_rank_moves_and_a_move_ends_the_watch(
    rank: Rank, tmp_path: Path
) -> None:
    stat = os.stat
    rank.moves += 1
    rank.watch.look()
    assert os.stat is stat
    rank.watch.look()
    assert os.stat is not stat
    for _ in range(3):
        os.path.exists(tmp_path / "gone")
    rank.moves += 1
    assert rank.asked() == []  # of before the move, even if nobody has looked since
    rank.watch.look()
    assert os.stat is stat


def test_other_threads_and_paths_without_a_name_are_left_alone(rank: Rank, tmp_path: Path) -> None:
    rank.rest()
    other = threading.Thread(target=lambda: [os.path.exists(tmp_path) for _ in range(9)])
    other.start()
    other.join()
    with open(tmp_path / "a", "w") as file:
        for _ in range(3):
            os.stat(file.fileno())
            os.stat(os.fsencode(tmp_path))
    assert rank.asked() == []


def test_answers_errors_and_abilities_are_those_of_the_system(rank: Rank, tmp_path: Path) -> None:
    rank.rest()
    with pytest.raises(FileNotFoundError) as raised:
        os.stat(tmp_path / "none")
    assert (
        raised.value.filename == str(tmp_path / "none")
        or raised.value.filename == tmp_path / "none"
    )
    with pytest.raises(TypeError):
        os.stat()  # type: ignore[call-arg]
    # copystat of a link looks `os.stat` up among those that need not follow links.
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "link2").symlink_to("nowhere")
    shutil.copystat(tmp_path / "link", tmp_path / "link2", follow_symlinks=False)
    with os.scandir(tmp_path) as entries:
        assert sorted(entry.name for entry in entries) == ["link", "link2"]


def test_a_file_that_is_written_again_and_again_is_no_question(rank: Rank, tmp_path: Path) -> None:
    rank.rest()
    for _ in range(3):
        with open(tmp_path / "heartbeat", "w") as file:
            file.write("alive")
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            open(tmp_path / "answer")
    assert rank.asked() == [("open", str(tmp_path / "answer"), False, 3)]


def test_questions_are_bounded(rank: Rank, tmp_path: Path) -> None:
    rank.rest()
    for number in range(300):
        os.path.exists(tmp_path / str(number))
        os.path.exists(tmp_path / str(number))
    assert len(rank.watch.rows()) == 64
    for _ in range(3):
        os.path.exists(tmp_path / "ready")
    # What is asked now is why it waits, and not what an import asked for before.
    assert rank.asked()[0][1:] == (str(tmp_path / "ready"), False, 3)


@needs_torch
def test_keys_and_counters_of_a_store_are_questions_too(rank: Rank) -> None:
    from torch._C._distributed_c10d import Store
    from torch.distributed import HashStore

    store: Any = HashStore()
    originals = Store.__dict__["check"], Store.__dict__["add"]
    rank.watch.watch_stores(Store)
    rank.rest()
    store.add("arrived", 3)
    for _ in range(3):
        assert not store.check(["version/4"])
        assert store.add("arrived", 0) == 3
    rows = {
        (r["kind"], r["prefix"], r["what"], r["found"], r["value"], r["count"])
        for r in rank.watch.rows()
    }
    assert rows == {
        ("key", "pre/", "version/4", False, None, 3),
        ("key", "pre/", "arrived", True, 3, 3),
    }
    rank.watch.uninstall()
    assert (Store.__dict__["check"], Store.__dict__["add"]) == originals


def test_the_time_since_which_a_question_goes_on_is_told_until_it_is_answered(
    rank: Rank, tmp_path: Path
) -> None:
    rank.rest()
    assert rank.watch.polling_since_ns() == 0
    began = time.monotonic_ns()
    for _ in range(polls.FEWEST_TIMES):
        os.path.exists(tmp_path / "ready")
    since = rank.watch.polling_since_ns()
    assert began <= since <= time.monotonic_ns()
    (tmp_path / "ready").touch()
    os.path.exists(tmp_path / "ready")
    assert rank.watch.polling_since_ns() == 0  # another answer, once
    for _ in range(polls.FEWEST_TIMES):
        os.path.exists(tmp_path / "next")
    rank.moves += 1
    assert rank.watch.polling_since_ns() == 0


def test_a_question_of_long_ago_is_asked_no_longer(
    rank: Rank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank.rest()
    for _ in range(polls.FEWEST_TIMES):
        os.path.exists(tmp_path / "ready")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + polls.LATE_S + 60)
    assert rank.watch.polling_since_ns() == 0
