"""Nothing in a file is executed, and no file takes more time or memory than it may."""

from __future__ import annotations

import json
import os
import pickle
import struct
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from dump_builders import dump, entry, torch_pickle

from hanglab.analyzer.flight_recorder import (
    DumpError,
    RefusedDump,
    load_bytes,
    load_folder,
    load_many,
)
from hanglab.analyzer.flight_recorder.formats import read_dump


class Touch:
    """Leaves a trace when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


class Import:
    def __reduce__(self) -> tuple[Any, ...]:
        return __import__, ("this",)


class Built:
    def __init__(self) -> None:
        self.value = 1


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("contained", [True, False])
def test_code_is_refused_and_leaves_no_trace(
    tmp_path: Path, protocol: int, contained: bool
) -> None:
    trace = tmp_path / "trace"
    for bad in (Touch(trace), Import(), Built(), os.path.join, {1, 2}, complex(1, 2)):
        if isinstance(bad, set) and protocol >= 4:
            continue  # plain data from there on, though no dump has it
        data = pickle.dumps(dump([entry(0, extra=bad)]), protocol)
        with pytest.raises(RefusedDump, match="contains code: refused"):
            read_dump(data, rank=0, source="x", contained=contained)
    assert not trace.exists()
    assert "this" not in sys.modules


def test_refused_files_are_named(tmp_path: Path) -> None:
    trace = tmp_path / "out" / "trace"
    trace.parent.mkdir()
    folder = tmp_path / "dumps"
    folder.mkdir()
    (folder / "dump_0").write_bytes(torch_pickle(dump()))
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        data = pickle.dumps(dump([entry(0, extra=Touch(trace))]), protocol)
        (folder / f"dump_{protocol + 1}").write_bytes(data)
    (folder / "dump_10").write_bytes(pickle.dumps(Touch(trace), 0))
    (folder / "dump_11").write_bytes(b"cos\nsystem\n(S'touch %s'\ntR." % str(trace).encode())
    (folder / "dump_12").write_bytes(b"(S'touch %s'\nios\nsystem\n." % str(trace).encode())
    loaded = load_folder(folder)
    assert [item.rank for item in loaded.dumps] == [0]
    assert len(loaded.unusable) == pickle.HIGHEST_PROTOCOL + 4
    assert {item.reason[:22] for item in loaded.unusable} == {"contains code: refused"}
    assert not trace.exists()


def test_a_refusal_out_of_a_worker_keeps_its_kind() -> None:
    with pytest.raises(RefusedDump, match=r"^contains code: refused \(posix.system\)$"):
        load_bytes(pickle.dumps(Touch(Path("x"))), rank=0, source="x")


def deep(opener: bytes, closer: bytes, count: int) -> bytes:
    return b"\x80\x02}X\x07\x00\x00\x00entries" + opener * count + closer * count + b"s."


def doubled(count: int) -> bytes:
    """A tuple of two tuples of two tuples: hashing or comparing it takes 2 ** count steps."""
    return b")q\0" + b"".join(b"h\0h\0\x86q\0" for _ in range(count))


KEY = b"X\x07\x00\x00\x00entries"
HOSTILE = {
    # Asks C's unpickler for a memo of 16 GiB.
    "memo": b"\x80\x02Nr\xff\xff\xff\x7f.",
    "memo with a dump": torch_pickle(dump())[:-1] + b"r\xff\xff\xff\x7f.",
    "memo in text": b"\x80\x02Np4000000000000\n.",
    "long text": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + b"x.",
    "long bytes": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"x.",
    "long bytearray": b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"x.",
    "long integer": b"\x80\x02\x8b\xff\xff\xff\x7f.",
    "frame": b"\x80\x04\x95" + struct.pack("<Q", 1 << 62) + b"N.",
    "lists": deep(b"](", b"e", 1_000_000),
    "tuples": b"\x80\x02}" + KEY + b")" + b"\x85" * 300_000 + b"s.",
    "tuple as a key": b"\x80\x02})" + b"\x85" * 300_000 + b"Ns.",
    "doubled tuple as a key": b"\x80\x02}" + doubled(60) + b"Ns.",
    "doubled tuple": b"\x80\x02}" + KEY + b"](" + doubled(60) + b"es.",
    "doubled tuple in a field": b"\x80\x02}"
    + KEY
    + b"](}(X\x0d\0\0\0process_group"
    + doubled(60)
    + b"X\x0b\0\0\0input_sizes"
    + doubled(60)
    + b"X\x06\0\0\0frames"
    + doubled(60)
    + b"X\x09\0\0\0record_id"
    + doubled(60)
    + b"ues.",
    "itself": b"\x80\x02}q\0" + KEY + b"]q\1(h\0h\1es.",
    "itself as an entry": b"\x80\x02}" + KEY + b"](}q\0(X\x06\0\0\0frames]q\1h\1ah\1ues.",
    "marks": b"\x80\x02" + b"(" * 500_000,
    "pops": b"\x80\x02" + b"0" * 100_000,
    "json lists": b'{"entries":' + b"[" * 1_000_000,
    "json objects": b'{"entries":' + b'[{"a":' * 300_000,
    "json number": b'{"entries":[{"record_id":' + b"9" * 5_000_000 + b"}]}",
    "json integer as version": b'{"entries":[],"version":' + b"9" * 1_000_000 + b"}",
    "json colons": b"{" + b":" * 1_000_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_cost_little(name: str) -> None:
    started = time.monotonic()
    try:
        load_bytes(HOSTILE[name], rank=0, source="x", deadline_s=1.0)
    except DumpError as error:
        assert error.reason
    assert time.monotonic() - started < 60


@pytest.mark.parametrize("name", sorted(set(HOSTILE) - {"doubled tuple in a field"}))
def test_hostile_bytes_without_a_worker(name: str) -> None:
    before = psutil.Process().memory_info().rss
    try:
        read_dump(HOSTILE[name], rank=0, source="x", contained=False)
    except DumpError as error:
        assert error.reason
    assert psutil.Process().memory_info().rss - before < 2 << 30


def test_shared_parts_are_not_multiplied() -> None:
    wide = [[1] * 1000] * 1000
    stack = [{"name": "f"}] * 100_000
    rows = [entry(n, input_sizes=wide, frames=stack) for n in range(500)]
    data = pickle.dumps(dump(rows), 2)
    assert len(data) < 1_000_000
    loaded = load_bytes(data, rank=0, source="x")
    assert loaded.entries is not None
    assert len(loaded.entries) == 500
    assert len(loaded.entries.stacks[0]) == 512
    assert len(loaded.entries.arguments) == 1


def test_a_hostile_file_costs_only_itself(tmp_path: Path) -> None:
    for number, data in enumerate(HOSTILE.values()):
        (tmp_path / f"bad_{1000 + number}").write_bytes(data)
    for rank in range(8):
        (tmp_path / f"good_{rank}").write_bytes(torch_pickle(dump()))
    children = {child.pid for child in psutil.Process().children()}
    loaded = load_folder(tmp_path, workers=2, deadline_s=1.0)
    assert [item.rank for item in loaded.dumps if item.rank < 1000] == list(range(8))
    assert {child.pid for child in psutil.Process().children()} == children


def test_many_results_keep_their_order() -> None:
    good, bad = torch_pickle(dump()), b"nonsense"
    items = [(good if n % 3 else bad, n, f"file {n}") for n in range(40)]
    results = load_many(items, workers=3)
    for number, result in enumerate(results):
        if number % 3:
            assert not isinstance(result, DumpError)
            assert result.rank == number
        else:
            assert isinstance(result, DumpError)
    assert load_many([]) == []


def test_json_is_no_way_around(tmp_path: Path) -> None:
    data = json.dumps({"entries": [{"py/reduce": ["os.system", "false"]}]}).encode()
    loaded = load_bytes(data, rank=0, source="x")
    assert loaded.entries is not None and len(loaded.entries) == 1
