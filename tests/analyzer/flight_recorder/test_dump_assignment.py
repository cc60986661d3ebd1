"""Whose dump a file is where its name and its content disagree."""

from __future__ import annotations

from pathlib import Path

from dump_builders import dump, torch_pickle

from hanglab.analyzer.flight_recorder import load_folder, map_folder


def grid(rank: int) -> bytes:
    """A dump of a job of 2 x 2 ranks: its groups have only this rank in common."""
    row, column = divmod(rank, 2)
    return torch_pickle(
        dump(
            pg_config={
                "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
                "1": {"name": "1", "desc": "tp", "ranks": str([2 * row, 2 * row + 1])},
                "2": {"name": "2", "desc": "dp", "ranks": str([column, column + 2])},
            },
            op=rank,
        )
    )


def test_contents_win_where_names_were_shuffled(tmp_path: Path) -> None:
    for named, rank in enumerate((2, 3, 1, 0)):
        (tmp_path / f"dump_{named}").write_bytes(grid(rank))
    loaded = load_folder(tmp_path)
    assert [item.rank for item in loaded.dumps] == [0, 1, 2, 3]
    assert [item.extra["op"] for item in loaded.dumps] == [0, 1, 2, 3]
    mapped = map_folder(tmp_path, lambda item: (item.rank, item.extra["op"]))
    assert mapped.results == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_a_second_look_at_shuffled_names_finds_the_same_ranks(tmp_path: Path) -> None:
    for named, rank in enumerate((2, 3, 1, 0)):
        (tmp_path / f"dump_{named}").write_bytes(grid(rank))
    for ranks in ({0}, {1, 2}, {3}, {9}):
        loaded = load_folder(tmp_path, ranks=ranks)
        assert [item.rank for item in loaded.dumps] == sorted(ranks - {9})
        assert [item.extra["op"] for item in loaded.dumps] == sorted(ranks - {9})


def test_a_second_look_reads_only_the_files_it_needs(tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"dump_{rank}").write_bytes(grid(rank))
    (tmp_path / "dump_4").write_bytes(b"no dump")
    loaded = load_folder(tmp_path, ranks={1, 3})
    assert [item.rank for item in loaded.dumps] == [1, 3]
    assert loaded.unusable == []


def test_contents_tell_where_names_have_no_number(tmp_path: Path) -> None:
    for rank, name in enumerate(("a", "b", "c", "d")):
        (tmp_path / f"{name}.pickle").write_bytes(grid(rank))
    assert [item.extra["op"] for item in load_folder(tmp_path).dumps] == [0, 1, 2, 3]


def test_the_last_rank_without_a_name_is_the_one_that_is_left(tmp_path: Path) -> None:
    plain = torch_pickle(dump())
    (tmp_path / "dump_0").write_bytes(plain)
    (tmp_path / "other").write_bytes(plain)
    assert [item.rank for item in load_folder(tmp_path).dumps] == [0, 1]


def test_a_rank_in_the_content_tells_where_the_name_does_not(tmp_path: Path) -> None:
    (tmp_path / "x.pickle").write_bytes(torch_pickle(dump(rank=5)))
    assert [item.rank for item in load_folder(tmp_path).dumps] == [5]


def test_without_any_sign_a_file_is_named_and_not_guessed(tmp_path: Path) -> None:
    plain = torch_pickle(dump())
    (tmp_path / "one").write_bytes(plain)
    (tmp_path / "two").write_bytes(plain)
    loaded = load_folder(tmp_path)
    assert loaded.dumps == []
    assert {item.reason for item in loaded.unusable} == {
        "neither its name nor its content tells the rank"
    }


def test_replicas_that_number_their_ranks_alike_keep_their_names(tmp_path: Path) -> None:
    for rank in range(8):
        (tmp_path / f"dump_{rank}").write_bytes(grid(rank % 4))
    loaded = load_folder(tmp_path)
    assert [item.rank for item in loaded.dumps] == list(range(8))
    assert [item.extra["op"] for item in loaded.dumps] == [0, 1, 2, 3] * 2
