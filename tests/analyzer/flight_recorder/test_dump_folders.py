"""Which files of a folder are dumps, of which rank, and what is said of the others."""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path

import pytest
from dump_builders import dump, entry, json_form, torch_pickle

from hanglab.analyzer.flight_recorder import load_folder, map_folder
from hanglab.analyzer.flight_recorder.discovery import rank_in_name

GLOO = Path(__file__).parents[2] / "data" / "dumps" / "gloo"
MEGATRON = Path(__file__).parents[4] / "shared" / "data" / "megatron-nccl"
WHOLE = torch_pickle(dump())


def write(folder: Path, **files: bytes) -> None:
    for name, data in files.items():
        (folder / name).write_bytes(data)


def reasons(unusable: list) -> dict[str, str]:
    return {item.file: item.reason for item in unusable}


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_0", 0),
        ("comm_lib_trace_rank_17", 17),
        ("_dump_10", 10),
        ("anything12.pickle", 12),
        ("rank_3.json", 3),
        ("trace_rank5_of_host12.bin", 5),
        ("host7/dump_8.pkl", 8),
        ("rank3/dump.pickle", 3),
        ("hosts/a/ranks/4.1/flight_recorder.pickle", 4),
        ("3", 3),
        ("dump.pickle", None),
        ("dump_1_of_2_parts.pickle", None),
    ],
)
def test_rank_is_read_out_of_the_name(name: str, rank: int | None) -> None:
    assert rank_in_name(name) == rank


@pytest.mark.parametrize("form", ["stacks", "plain", "json"])
def test_dumps_of_torch_itself(form: str) -> None:
    loaded = load_folder(GLOO / form)
    assert [item.rank for item in loaded.dumps] == [0, 1, 2, 3]
    assert loaded.unusable == []
    for item in loaded.dumps:
        assert item.version == "2.10"
        assert item.members == {}  # gloo writes "[]", under no name
        assert item.entries is not None
        assert len(item.entries) == 11
        assert not item.partial
        ops = [item.entries.operations[index].op for index in item.entries.operation]
        assert ops == [
            "all_reduce",
            "broadcast",
            "all_reduce",
            "all_gather",
            "all_reduce",
            "broadcast",
            "all_reduce",
            "all_gather",
            "all_to_all",
            "all_reduce",
            "barrier",
        ]
        assert item.names == {0: "0", 1: "1" if item.rank < 2 else "2"}
        assert item.status[0].started is None
        assert bool(item.entries.stacks) == (form == "stacks")


def test_dumps_of_torch_without_entries() -> None:
    loaded = load_folder(GLOO / "empty")
    assert [item.rank for item in loaded.dumps] == [0, 1, 2, 3]
    assert all(item.entries is None and item.partial for item in loaded.dumps)
    assert loaded.dumps[0].status[0].enqueued == 10
    assert loaded.dumps[2].status[0].enqueued == 9


@pytest.mark.parametrize("hang", ["lock_gil_2nd", "gpu_error_2nd"])
def test_real_dumps_of_nccl(hang: str) -> None:
    if not MEGATRON.is_dir():
        pytest.skip(f"{MEGATRON} is not on this machine")
    loaded = load_folder(MEGATRON / hang)
    assert [item.rank for item in loaded.dumps] == list(range(16))
    assert loaded.unusable == []
    first = loaded.dumps[0]
    assert first.version == "2.9"
    assert first.library_version == "2.27.3"
    assert first.members["0"] == tuple(range(16))
    assert first.partial
    assert all(item.rank in members for item in loaded.dumps for members in item.members.values())


def test_real_dumps_under_other_names(tmp_path: Path) -> None:
    if not MEGATRON.is_dir():
        pytest.skip(f"{MEGATRON} is not on this machine")
    source = MEGATRON / "gpu_error_2nd"
    for rank in range(16):
        folder = tmp_path / f"host{rank % 4}"
        folder.mkdir(exist_ok=True)
        shutil.copyfile(source / f"_dump_{rank}", folder / f"x.rank{rank}.flight.pkl")
    renamed = load_folder(tmp_path)
    plain = load_folder(source)
    assert [item.rank for item in renamed.dumps] == list(range(16))
    assert [item.status for item in renamed.dumps] == [item.status for item in plain.dumps]


def test_every_suffix_and_mixed_versions(tmp_path: Path) -> None:
    write(tmp_path, **{"a_0.pickle": WHOLE, "a_1.pkl": torch_pickle(dump(version="2.10.1"))})
    write(tmp_path, **{"a_2.bin": torch_pickle(dump(version="2.4")), "a_3": WHOLE})
    write(tmp_path, **{"a_4.json": json.dumps(json_form(dump(version="3.0"))).encode()})
    loaded = load_folder(tmp_path)
    assert loaded.unusable == []
    assert [item.version for item in loaded.dumps] == ["2.10", "2.10.1", "2.4", "2.10", "3.0"]
    assert [len(item.entries or ()) for item in loaded.dumps] == [3] * 5


def test_sub_folders_of_hosts_and_links_that_loop(tmp_path: Path) -> None:
    for rank in range(4):
        folder = tmp_path / f"host{rank // 2}" / "dumps"
        folder.mkdir(parents=True, exist_ok=True)
        write(folder, **{f"nccl_trace_rank_{rank}": WHOLE})
    (tmp_path / "host0" / "loop").symlink_to(tmp_path)
    (tmp_path / "host0" / "self").symlink_to("self")
    (tmp_path / "host0" / "nowhere").symlink_to("gone")
    loaded = load_folder(tmp_path)
    assert [item.rank for item in loaded.dumps] == [0, 1, 2, 3]
    assert loaded.unusable == []
    assert loaded.dumps[3].source == "host1/dumps/nccl_trace_rank_3"


def test_things_that_would_block_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path, trace_0=WHOLE, trace_1=WHOLE)
    os.mkfifo(tmp_path / "trace_2.pipe")
    os.mkfifo(tmp_path / "trace_3")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(tmp_path)  # names of sockets are short
        try:
            listener.bind("trace_4")
        finally:
            os.chdir(here)
        (tmp_path / "trace_5").symlink_to("/dev/zero")
        loaded = load_folder(tmp_path)
    assert [item.rank for item in loaded.dumps] == [0, 1]
    assert loaded.unusable == []


def test_huge_files_are_named_and_not_read(tmp_path: Path) -> None:
    write(tmp_path, trace_0=WHOLE, trace_1=b"\x80\x02}(", core_2=b"\x7fELF")
    os.truncate(tmp_path / "trace_1", 1 << 40)
    os.truncate(tmp_path / "core_2", 1 << 40)
    loaded = load_folder(tmp_path)
    assert [item.rank for item in loaded.dumps] == [0]
    said = reasons(loaded.unusable)
    assert "larger than any dump" in said["trace_1"]
    assert said["core_2"] == "not a dump: a program"


def test_foreign_files_cost_only_themselves(tmp_path: Path) -> None:
    import pickle

    write(tmp_path, trace_0=WHOLE, trace_1=b"", trace_2=b"\x89PNG\r\n\x1a\n" + b"\0" * 99)
    write(tmp_path, **{"train.log": b"step 1 loss 0.3\n" * 1000, "zeros_5": b"\0" * 5000})
    write(tmp_path, trace_6=pickle.dumps([1, 2, 3]), trace_7=pickle.dumps({"loss": 0.5}, 2))
    write(tmp_path, **{"trace_8.json": b'{"loss": 0.5}', "trace_9.json": b"[1, 2"})
    write(tmp_path, trace_10=b"\x1f\x8b\x08" + b"\0" * 50, trace_11=b"\x80\x02N.")
    write(tmp_path, trace_12=b"\xff", trace_13=b"a" * 4095 + "é".encode() * 9)
    loaded = load_folder(tmp_path)
    assert [item.rank for item in loaded.dumps] == [0]
    assert reasons(loaded.unusable) == {
        "trace_1": "empty",
        "trace_2": "not a dump: a PNG picture",
        "train.log": "not a dump: text",
        "zeros_5": "not a dump: holds only zeros",
        "trace_6": "not a dump: a pickle of a list",
        "trace_7": "not a dump: a pickle without a dump's keys",
        "trace_8.json": "not a dump: JSON without a dump's keys",
        "trace_9.json": "not a dump: text",
        "trace_10": "not a dump: compressed with gzip: unpack it",
        "trace_11": "not a dump: a pickle of a NoneType",
        "trace_12": "not a dump: unknown bytes",
        "trace_13": "not a dump: text",
    }


def test_of_two_dumps_of_one_rank_the_fuller_is_kept(tmp_path: Path) -> None:
    (tmp_path / "host0").mkdir()
    (tmp_path / "host1").mkdir()
    write(tmp_path / "host0", trace_0=torch_pickle(dump([entry(0)])), trace_1=WHOLE)
    write(tmp_path / "host1", trace_0=WHOLE, trace_1=WHOLE[:-40])
    loaded = load_folder(tmp_path)
    assert [item.source for item in loaded.dumps] == ["host1/trace_0", "host0/trace_1"]
    said = reasons(loaded.unusable)
    assert said["host0/trace_0"] == "another dump of rank 0: host1/trace_0 has more of it"
    assert said["host1/trace_1"] == "another dump of rank 1: host0/trace_1 has more of it"


def test_of_two_full_rings_of_one_rank_the_later_is_kept(tmp_path: Path) -> None:
    """A job that was dumped twice, into two folders."""
    for folder, first in (("a", 0), ("b", 7)):
        (tmp_path / folder).mkdir()
        rows = [entry(number) for number in range(first, first + 5)]
        (tmp_path / folder / "rank_0").write_bytes(torch_pickle(dump(rows)))
    loaded = load_folder(tmp_path)
    (kept,) = loaded.dumps
    assert kept.source == "b/rank_0"
    (left_out,) = loaded.unusable
    assert (left_out.file, left_out.reason[-8:]) == ("a/rank_0", "is later")


def test_an_empty_folder_and_none(tmp_path: Path) -> None:
    assert load_folder(tmp_path).dumps == []
    with pytest.raises(NotADirectoryError):
        load_folder(tmp_path / "none")


def test_a_folder_that_may_not_be_read_costs_only_itself(tmp_path: Path) -> None:
    write(tmp_path, trace_0=WHOLE)
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed").chmod(0)
    try:
        assert [item.rank for item in load_folder(tmp_path).dumps] == [0]
    finally:
        (tmp_path / "closed").chmod(0o700)


def test_a_case_folder_does_not_break_it(tmp_path: Path) -> None:
    for rank in range(2):
        folder = tmp_path / "hosts" / "h" / "ranks" / f"{rank}.0"
        folder.mkdir(parents=True)
        write(folder, **{"flight_recorder.pickle": WHOLE, "process.json": b'{"pid": 1}'})
        write(folder, **{"progress.bin": b"\0" * 4096})
    (tmp_path / "manifest.json").write_text("{}")
    loaded = load_folder(tmp_path)
    assert [item.rank for item in loaded.dumps] == [0, 1]


def test_results_of_a_function_travel_instead_of_dumps(tmp_path: Path) -> None:
    write(tmp_path, **{f"trace_{rank}": WHOLE for rank in range(20)}, notes=b"hello there")
    results, unusable = map_folder(
        tmp_path, lambda item: (item.rank, len(item.entries or ())), workers=2
    )
    assert results == [(rank, 3) for rank in range(20)]
    assert [item.file for item in unusable] == ["notes"]


def test_a_function_that_fails_on_one_dump_costs_only_it(tmp_path: Path) -> None:
    write(tmp_path, trace_0=WHOLE, trace_1=WHOLE)
    mapped = map_folder(tmp_path, lambda item: 1 // item.rank)
    assert mapped.ranks == [1]
    assert mapped.results == [1]
    assert "ZeroDivisionError" in reasons(mapped.unusable)["trace_0"]


def test_results_that_cannot_travel_are_an_error(tmp_path: Path) -> None:
    write(tmp_path, trace_0=WHOLE)
    with pytest.raises(RuntimeError, match="worker failed"):
        map_folder(tmp_path, lambda item: lambda: item)
