"""Entries that repeat are read out of the bytes: the dump is the same as by the long way."""

from __future__ import annotations

import json
import pickle
import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest
from dump_builders import dump, entry, frames, same, torch_pickle, without
from random_programs import random_program

from hanglab.analyzer.flight_recorder.columns import ABSENT
from hanglab.analyzer.flight_recorder.formats import read_dump
from hanglab.analyzer.flight_recorder.repeated_entries import thin
from hanglab.analyzer.program.rendering import Style, render, to_pickle
from hanglab.analyzer.program.simulation import simulate

GLOO = Path(__file__).parents[2] / "data" / "dumps" / "gloo"
STACKS = [frames(n, 20, 30, name=f"f{n}") for n in range(5)]


def rows(count: int, **changes: Any) -> list[dict[str, Any]]:
    """Entries that repeat with a period of five; ``changes`` may be functions of the number."""
    made = []
    for n in range(count):
        given = {key: value(n) if callable(value) else value for key, value in changes.items()}
        sizes = [[n % 5, 1000]]
        made.append(
            entry(
                n, **{"frames": STACKS[n % 5], "input_sizes": sizes, "output_sizes": sizes, **given}
            )
        )
    return made


def agree(data: bytes) -> None:
    """Our own decoder, which knows nothing of repetition, yields the same."""
    one, other = (read_dump(data, rank=0, source="x", contained=c) for c in (True, False))
    assert same(one, other)


@pytest.mark.parametrize(
    "path", sorted(GLOO.glob("[!j]*/*")), ids=lambda p: f"{p.parent.name}/{p.name}"
)
def test_what_torch_wrote_is_written_again_byte_for_byte(path: Path) -> None:
    data = path.read_bytes()
    assert torch_pickle(pickle.loads(data)) == data


NOW = 1_700_000_000_000_000_000
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "wide numbers": {"record_id": lambda n: n + 65_400, "op_id": lambda n: n + (1 << 31) - 50},
    "narrow and negative numbers": {"p2p_seq_id": lambda n: n - 100, "op_id": lambda n: n % 7},
    "times": {
        "time_discovered_started_ns": lambda n: None if n % 3 else NOW + n,
        "time_discovered_completed_ns": lambda n: None if n > 180 else NOW - n,
    },
    "states": {
        "state": lambda n: "completed" if n < 190 else "scheduled",
        "retired": lambda n: n < 190,
    },
    "groups": {"process_group": lambda n: (str(n % 3), f"group {n % 3}"), "pg_id": lambda n: n % 3},
    "a text that comes late": {"profiling_name": lambda n: f"nccl:send 0->{n // 40}"},
    "numbers that look like keys": {
        "time_created_ns": lambda n: 0x4268426842684268 + n * 0x0101_0101
    },
}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_short_way_is_taken_and_says_the_same(name: str) -> None:
    data = torch_pickle(dump(rows(200, **VARIANTS[name])))
    thinned = thin(data)
    assert thinned is not None
    assert len(thinned.like) == 200
    assert len(thinned.kept) <= 50
    agree(data)


def test_numbers_of_every_entry_are_its_own() -> None:
    made = rows(300, duration_ms=lambda n: n / 7)
    for number, row in enumerate(made):
        if number % 4 == 0:
            del row["duration_ms"]
    data = torch_pickle(dump([timed(row) for row in made]))
    assert thin(data) is not None
    entries = read_dump(data, rank=0, source="x", contained=True).entries
    assert entries is not None
    assert entries.record_id.tolist() == list(range(300))
    assert entries.seq.tolist() == list(range(1, 301))
    assert entries.created_ns.tolist() == [row["time_created_ns"] for row in made]
    assert set(entries.started_ns.tolist()) == {ABSENT}
    timings = [None if t != t else t for t in entries.duration_ms.tolist()]
    assert timings == [row.get("duration_ms") for row in made]
    agree(data)


def timed(row: dict[str, Any]) -> dict[str, Any]:
    """As torch orders it: the duration behind the time of creation."""
    duration = row.get("duration_ms")
    made: dict[str, Any] = {}
    for key, value in without(row, "duration_ms").items():
        made[key] = value
        if key == "time_created_ns" and duration is not None:
            made["duration_ms"] = duration
    return made


def test_without_frames_and_in_older_formats() -> None:
    agree(torch_pickle(dump([without(row, "frames") for row in rows(200)])))
    old = [without(row, "thread_name", "thread_id", "timeout_ms") for row in rows(200)]
    agree(torch_pickle(dump(old, version="2.1")))
    oldest = [without(row, "collective_seq_id", "p2p_seq_id") for row in rows(200)]
    agree(torch_pickle(dump(oldest)))


def test_entries_that_do_not_repeat_take_the_long_way() -> None:
    data = torch_pickle(dump(rows(200, input_sizes=lambda n: [[n, n * n]])))
    assert thin(data) is None
    agree(data)
    assert thin(torch_pickle(dump(rows(20)))) is None


def written_by_python(made: list[dict[str, Any]], protocol: int, *, shared: bool) -> bytes:
    """As a tool writes it that keeps entries itself (shared), or that has read them from JSON."""
    whole = dump(made)
    return pickle.dumps(whole if shared else json.loads(json.dumps(whole)), protocol)


def apart(made: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Entries that share no list of sizes within themselves."""
    return [{**row, "output_sizes": [list(row["output_sizes"][0])]} for row in made]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "unshared"])
@pytest.mark.parametrize("name", VARIANTS)
def test_any_pickler_may_have_written_it(name: str, shared: bool, protocol: int) -> None:
    data = written_by_python(apart(rows(200, **VARIANTS[name])), protocol, shared=shared)
    thinned = thin(data)
    assert thinned is not None
    assert len(thinned.kept) <= 60
    agree(data)


@pytest.mark.parametrize("protocol", [2, 4])
def test_entries_beyond_one_batch_and_one_frame(protocol: int) -> None:
    """Python writes lists in batches of 1,000, and frames of 64 KiB."""
    data = written_by_python(apart(rows(2500)), protocol, shared=False)
    thinned = thin(data)
    assert thinned is not None
    assert len(thinned.like) == 2500
    assert len(thinned.data) < len(data) / 10
    agree(data)


def test_a_get_of_what_was_left_out_takes_the_long_way() -> None:
    """A text that comes first in an entry that is like an earlier one, but for its number."""
    made = apart(rows(200))
    late = "".join(("late", " text"))
    made[150]["profiling_name"] = made[151]["profiling_name"] = late
    data = pickle.dumps(dump(made), 4)
    assert thin(data) is not None
    agree(data)
    # Where the text stands, something is got instead that only another entry has put there.
    put = data.index(b"\x8c\x09late text\x94")
    bulk = pickle.dumps(dump(made[:150]), 4)
    assert thin(bulk) is not None
    changed = data[:put] + b"j" + (500).to_bytes(4, "little") + data[put + 12 :]
    assert thin(changed) is None
    agree_or_damaged(changed)


def agree_or_damaged(data: bytes) -> None:
    one, other = (read_dump(data, rank=0, source="x", contained=c) for c in (True, False))
    assert one.damage == other.damage
    assert same(one, other)


def test_damaged_bytes_of_other_picklers_never_say_something_else() -> None:
    random = Random(2)
    taken = 0
    for protocol, shared in ((2, True), (2, False), (4, True), (4, False)):
        good = written_by_python(apart(rows(100)), protocol, shared=shared)
        for _ in range(100):
            data = bytearray(good)
            at = random.randrange(len(data))
            if random.random() < 0.5:
                data[at] = random.randrange(256)
            else:
                data[at : at + 8] = struct.pack("<Q", random.getrandbits(64))
            if thin(bytes(data)) is not None:
                taken += 1
                agree(bytes(data))
    assert taken > 20


def test_entries_out_of_order_take_the_long_way() -> None:
    agree(torch_pickle(dump(list(reversed(rows(200))))))


def test_a_place_of_the_memo_that_is_filled_twice_takes_the_long_way() -> None:
    """Equal bytes would mean different things before and after."""
    data = torch_pickle(dump(rows(200, profiling_name=lambda n: "nccl:a" if n < 100 else "nccl:b")))
    assert thin(data) is not None
    first = data.index(b"X\x06\0\0\0nccl:aq") + 12
    second = data.index(b"X\x06\0\0\0nccl:bq") + 12
    changed = bytearray(data)
    changed[second] = data[first]
    changed = changed.replace(
        b"h" + data[second : second + 1] + b"h", b"h" + data[first : first + 1] + b"h"
    )
    assert thin(bytes(changed)) is None
    agree(bytes(changed))


def test_an_entry_that_is_no_entry_takes_the_long_way() -> None:
    made: list[Any] = rows(200)
    made[100] = 7
    data = torch_pickle(dump(made))
    one, other = (read_dump(data, rank=0, source="x", contained=c) for c in (True, False))
    assert same(one, other)
    assert "1 entries are no entries" in one.damage


def test_a_file_cut_anywhere_takes_the_long_way() -> None:
    data = torch_pickle(dump(rows(100)))
    for end in range(200, len(data), 371):
        assert thin(data[:end]) is None


def test_operations_that_are_no_data_take_the_long_way() -> None:
    data = torch_pickle(dump(rows(100)))
    middle = data.index(b"u}(", len(data) // 2) + 1
    for code in (b"cos\nsystem\n", b"R", b"\x93", b"P1\n", b"2", b"0"):
        assert thin(data[:middle] + code + data[middle:]) is None


def test_random_programs() -> None:
    taken = 0
    for number in range(40):
        random = Random(number)
        program = random_program(random, world=random.choice((2, 4, 8)), repeats=60)
        run = simulate(program, random.choice(("gloo", "nccl")))
        style = Style(
            version=random.choice(("2.1", "2.4", "2.9", "2.10")),
            frames=random.random() < 0.7,
            timing=random.random() < 0.5,
            record_offset=random.choice((0, 200, 70_000)),
        )
        data = to_pickle(render(run, 0, style))
        taken += thin(data) is not None
        agree(data)
    assert taken > 20


def test_damaged_bytes_never_say_something_else() -> None:
    """Where the short way is taken in spite of a changed byte, it reads what is there."""
    good = torch_pickle(dump(rows(100)))
    random = Random(1)
    for _ in range(400):
        data = bytearray(good)
        at = random.randrange(len(data))
        if random.random() < 0.5:
            data[at] = random.randrange(256)
        else:
            data[at : at + 8] = struct.pack("<Q", random.getrandbits(64))
        if thin(bytes(data)) is not None:
            agree(bytes(data))


@pytest.mark.parametrize("protocol", [None, 2, 3, 4, 5])
def test_a_group_that_is_called_entries_is_not_taken_for_them(protocol: int | None) -> None:
    made = dump(rows(200)) | {"pg_config": {"0": {"name": "0", "desc": "entries", "ranks": "[0]"}}}
    made = {"pg_config": made.pop("pg_config"), **made}
    data = torch_pickle(made) if protocol is None else pickle.dumps(made, protocol)
    for _ in range(3):  # what was learned of one serves the next
        agree(data)
    assert len(read_dump(data, rank=0, source="x", contained=True).entries or ()) == 200
