"""A dump read by what another one taught: it says the same as read alone, whatever the other is."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from dump_builders import dump, entry, frames, same, torch_pickle, without
from random_programs import random_program

from hanglab.analyzer.flight_recorder import formats
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.flight_recorder.formats import read_dump
from hanglab.analyzer.flight_recorder.pattern_reader import Likenesses
from hanglab.analyzer.program.rendering import Style, render, to_pickle
from hanglab.analyzer.program.simulation import simulate

STACKS = [frames(n, 20, 30, name=f"f{n}") for n in range(5)]
NOW = 1_700_000_000_000_000_000


class Reader:
    """Reads as a new worker does, and counts what it read by likeness."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen = Likenesses()
        monkeypatch.setattr(formats, "_LIKENESSES", self.seen)
        self.recalled = 0

    def read(self, data: bytes) -> RankDump:
        learnt = self.seen._idle
        read = read_dump(data, rank=0, source="x", contained=True)
        alone = read_dump(data, rank=0, source="x", contained=False)
        assert same(read, alone)
        self.recalled += bool(self.seen._known) and self.seen._idle <= learnt
        return read


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Reader:
    return Reader(monkeypatch)


def ring(
    count: int = 200, *, name: str = "7", offset: int = 0, last: int = 3, **changes: Any
) -> dict[str, Any]:
    """A rank's dump: two groups, one of which has a ``name`` of its own; ``last`` unfinished."""
    rows = []
    for n in range(count):
        sizes = [[n % 5, 1000]]
        done = n < count - last
        row = entry(
            n,
            frames=STACKS[n % 5],
            input_sizes=sizes,
            output_sizes=sizes,
            process_group=("0", "default_pg") if n % 3 else (name, "tensor"),
            pg_id=0 if n % 3 else 1,
            time_created_ns=NOW + n * 1000 + offset,
            time_discovered_completed_ns=NOW + n * 1000 + offset + 7 if done else None,
            state="completed" if done else "scheduled",
            retired=done,
        )
        rows.append({**row, **{k: v(n) if callable(v) else v for k, v in changes.items()}})
    config = {
        "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
        name: {"name": name, "desc": "tensor", "ranks": f"[{offset % 4}]"},
    }
    return dump(rows, pg_config=config)


def test_ranks_of_one_program(reader: Reader) -> None:
    for rank in range(8):
        name = str(10 ** (rank % 3) + rank)
        read = reader.read(torch_pickle(ring(name=name, offset=rank * 31, last=1 + rank % 4)))
        assert read.entries is not None
        assert {group.name for group in read.entries.group_names} == {"0", name}
        assert read.entries.created_ns.tolist()[5] == NOW + 5000 + rank * 31
    assert reader.recalled == 7


def test_rings_of_different_lengths(reader: Reader) -> None:
    for count in (300, 280, 299, 260, 310, 300):
        reader.read(torch_pickle(ring(count)))
    assert reader.recalled >= 4


def test_durations_and_narrow_numbers(reader: Reader) -> None:
    def made(shift: float) -> bytes:
        top = ring(seq_of=1, op_id=lambda n: n - 100)
        rows = []
        for n, row in enumerate(top["entries"]):
            timed: dict[str, Any] = {}
            for key, value in without(row, "seq_of").items():
                timed[key] = value
                if key == "time_created_ns" and n % 2 == 0:
                    timed["duration_ms"] = n / 7 + shift
            rows.append(timed)
        return torch_pickle({**top, "entries": rows})

    for shift in (0.0, 1.5, 2.5):
        reader.read(made(shift))
    assert reader.recalled == 2


@pytest.mark.parametrize("at", [0, 1, 70, 150, 180, 199])
def test_one_entry_of_another_kind(reader: Reader, at: int) -> None:
    reader.read(torch_pickle(ring()))
    changed = ring(state=lambda n: "started" if n == at else "completed")
    reader.read(torch_pickle(changed))
    reader.read(torch_pickle(ring(profiling_name=lambda n: "nccl:x" if n == at else "nccl:y")))


def test_groups_that_become_one_take_the_long_way(reader: Reader) -> None:
    reader.read(torch_pickle(ring(name="7")))
    reader.read(torch_pickle(ring(name="0")))
    top = ring(name="8")
    top["pg_config"]["8"]["desc"] = ""
    reader.read(torch_pickle(top))
    top = ring(name="9")
    top["pg_config"] = {"9": top["pg_config"]["9"], "0": top["pg_config"]["0"]}
    reader.read(torch_pickle(top))


def test_records_out_of_order(reader: Reader) -> None:
    reader.read(torch_pickle(ring()))
    reader.read(torch_pickle(ring(record_id=lambda n: 199 - n)))
    reader.read(torch_pickle(ring(record_id=lambda n: n if n < 199 else 3)))


def test_a_file_that_shows_other_entries_than_it_seems_to_teaches_nothing(reader: Reader) -> None:
    """The entries that a loader sees are behind those that look like the other ranks' own."""
    good = torch_pickle(ring())
    other = torch_pickle({"entries": ring(profiling_name="nccl:broadcast")["entries"]})
    begin = other.index(b"](")
    tail = bytearray(other[begin:-2])
    # The keys of a second list, written out anew, and beyond all places that are taken.
    crafted = good[:-2] + b"X\x07\0\0\0entries" + bytes(tail) + b"u."
    read_dump(crafted, rank=0, source="x", contained=True)
    reader.read(good)
    again = reader.read(torch_pickle(ring(offset=5)))
    assert again.entries is not None
    assert {operation.op for operation in again.entries.operations} == {"all_reduce"}


def test_what_is_filled_later_takes_the_long_way(reader: Reader) -> None:
    """A frame got from the memo and filled once more would change what came before."""
    data = torch_pickle(ring())
    reader.read(data)
    for code in (b"h\x05(K\x01K\x02u0", b"h\x05q\xff(e", b"(K\x01K\x02u", b"2", b"a"):
        changed = data[:-2] + code + data[-2:]
        reader.read(changed) if b"0" not in code else read_dump(
            changed, rank=0, source="x", contained=True
        )


@pytest.mark.slow
def test_damaged_bytes_never_say_something_else(reader: Reader) -> None:
    good = torch_pickle(ring(100))
    random = Random(2)
    for _ in range(300):
        data = bytearray(good)
        at = random.randrange(len(data))
        data[at] = random.randrange(256)
        try:
            alone = read_dump(bytes(data), rank=0, source="x", contained=False)
        except Exception:
            continue
        read = read_dump(bytes(data), rank=0, source="x", contained=True)
        assert same(read, alone)
        assert same(
            read_dump(good, rank=0, source="x", contained=True),
            read_dump(good, rank=0, source="x", contained=False),
        )


@pytest.mark.slow
def test_ranks_of_random_programs(reader: Reader) -> None:
    for number in range(25):
        random = Random(number)
        world = random.choice((4, 8))
        program = random_program(random, world=world, repeats=60)
        run = simulate(program, "nccl")
        style = Style(
            version=random.choice(("2.4", "2.10")),
            frames=random.random() < 0.8,
            timing=random.random() < 0.5,
            record_offset=random.choice((0, 200, 70_000)),
        )
        for rank in range(world):
            reader.read(to_pickle(render(run, rank, style)))
    assert reader.recalled > 20
