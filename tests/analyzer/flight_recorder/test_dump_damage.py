"""Of a damaged file, the entries before the damage are used and the damage is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dump_builders import dump, entry, frames, json_form, torch_pickle

from hanglab.analyzer.flight_recorder import DumpError, load_folder
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.flight_recorder.formats import read_dump

WHOLE = dump([entry(n, frames=frames(n, 5, 9)) for n in range(6)])


def load(data: bytes) -> RankDump:
    return read_dump(data, rank=0, source="file", contained=True)


def check(data: bytes) -> int:
    """Number of entries of a cut file; each must be one of the whole file's, in order."""
    try:
        loaded = load(data)
    except DumpError:
        return -1
    assert loaded.damage
    if loaded.entries is None:
        return 0
    entries = loaded.entries
    count = len(entries)
    assert entries.record_id.tolist() == list(range(count))
    assert entries.seq.tolist() == list(range(1, count + 1))
    assert [entries.stacks[index][0].line for index in entries.stack] == list(range(count))
    assert entries.timeout_ms.tolist() == [600_000] * count
    return count


def test_a_pickle_cut_at_any_byte() -> None:
    data = torch_pickle(WHOLE)
    counts = [check(data[:size]) for size in range(len(data))]
    assert counts == sorted(counts)
    assert set(counts) == {-1, 0, 1, 2, 3, 4, 5, 6}


def test_a_json_dump_cut_at_any_byte() -> None:
    form = json_form(WHOLE)
    data = json.dumps({"version": "2.10", **form}).encode()
    best = -1
    for size in range(len(data)):
        try:
            loaded = load(data[:size])
        except DumpError:
            assert best < 0
            continue
        count = 0 if loaded.entries is None else len(loaded.entries)
        assert loaded.damage
        assert count >= best
        best = count
    assert best == 6


def test_what_only_a_lenient_reader_takes_is_no_damage() -> None:
    text = json.dumps({**json_form(WHOLE), "comm_lib_version": "\ud800", "spent_s": float("nan")})
    assert "NaN" in text
    loaded = load(text.encode() + b" \n")
    assert loaded.entries is not None and len(loaded.entries) == 6
    assert not loaded.damage


def test_what_follows_a_json_dump_is_damage() -> None:
    text = json.dumps(json_form(WHOLE))
    loaded = load(f"{text}}}".encode())
    assert loaded.entries is not None and len(loaded.entries) == 6
    assert f"at character {len(text)} of {len(text) + 1}" in loaded.damage


def test_sorted_keys_put_entries_before_what_explains_them() -> None:
    data = json.dumps(json_form(WHOLE), sort_keys=True).encode()
    loaded = load(data[: data.index(b'"pg_config"')])
    assert loaded.entries is not None
    assert len(loaded.entries) == 6
    assert loaded.entries.group_names[0].description == "default_pg"


def test_overwritten_bytes_end_the_useful_part() -> None:
    data = torch_pickle(WHOLE)
    middle = data.index(b"scheduled") if b"scheduled" in data else len(data) // 2
    for position in range(middle, len(data) - 60, 7):
        broken = data[:position] + b"\xff" * 40 + data[position + 40 :]
        try:
            loaded = load(broken)
        except DumpError:
            continue
        count = 0 if loaded.entries is None else len(loaded.entries)
        assert count <= 6


def test_a_damaged_file_is_used_and_named(tmp_path: Path) -> None:
    data = torch_pickle(WHOLE)
    (tmp_path / "dump_0").write_bytes(data)
    (tmp_path / "dump_1").write_bytes(data[:-30])
    (tmp_path / "dump_2").write_bytes(data[:20])
    loaded = load_folder(tmp_path)
    assert [item.rank for item in loaded.dumps] == [0, 1]
    assert loaded.dumps[1].entries is not None
    assert len(loaded.dumps[1].entries) == 5
    reasons = {item.file: item.reason for item in loaded.unusable}
    assert set(reasons) == {"dump_1", "dump_2"}
    assert reasons["dump_1"].startswith("damaged: ends")
    assert reasons["dump_1"].endswith("5 entries were used")
    assert loaded.dumps[1].damage in reasons["dump_1"]


@pytest.mark.parametrize("rows", [[1, 2], "text", {"a": 1}, [[], None]])
def test_entries_that_are_none(rows: object) -> None:
    loaded = load(torch_pickle(dump(entries=rows)))  # type: ignore[arg-type]
    assert loaded.entries is None
    assert loaded.damage


def test_what_follows_the_end_does_not_matter() -> None:
    assert load(torch_pickle(WHOLE) + b"\0" * 100).damage == ""
