"""What each version, backend and tool writes differently comes out alike."""

from __future__ import annotations

import json
import math
import pickle
from typing import Any

import pytest
from dump_builders import dump, entry, frames, json_form, same, torch_pickle, without

from hanglab.analyzer.flight_recorder import DumpError, load_bytes
from hanglab.analyzer.flight_recorder.columns import (
    ABSENT,
    Arguments,
    Entries,
    Frame,
    GroupName,
    GroupStatus,
    Operation,
    RankDump,
    State,
)
from hanglab.analyzer.flight_recorder.formats import read_dump


def load(value: Any, *, contained: bool = True) -> RankDump:
    data = value if isinstance(value, bytes) else torch_pickle(value)
    return read_dump(data, rank=0, source="file", contained=contained)


def entries_of(value: Any) -> Entries:
    loaded = load(value)
    assert loaded.entries is not None
    return loaded.entries


def test_format_2_10() -> None:
    loaded = load(dump([entry(0), entry(1, state="scheduled", retired=False)]))
    assert loaded.version == "2.10"
    assert loaded.library_version == "2.27.3"
    assert loaded.members == {"0": (0, 1)}
    assert loaded.descriptions == {"0": "default_pg"}
    assert loaded.status == {0: GroupStatus(enqueued=3, started=None, completed=3)}
    assert loaded.names == {0: "0"}
    assert loaded.damage == ""
    entries = loaded.entries
    assert entries is not None
    assert entries.record_id.tolist() == [0, 1]
    assert entries.seq.tolist() == [1, 2]
    assert entries.op_id.tolist() == [1, 2]
    assert entries.state.tolist() == [State.COMPLETED, State.SCHEDULED]
    assert entries.retired.tolist() == [True, False]
    assert entries.is_p2p.tolist() == [False, False]
    assert entries.created_ns.tolist() == [1_700_000_000_000_000_000, 1_700_000_000_000_000_001]
    assert entries.started_ns.tolist() == [ABSENT, ABSENT]
    assert entries.timeout_ms.tolist() == [600_000, 600_000]
    assert all(map(math.isnan, entries.duration_ms))
    assert entries.group_names == [GroupName("0", "default_pg")]
    assert entries.operations == [Operation("nccl", "all_reduce")]
    assert entries.arguments == [Arguments(((4, 2),), ((4, 2),), ("Float",), ("Float",))]
    assert entries.stacks == [
        (Frame("train", "train.py", 10), Frame("train", "train.py", 20)),
    ]
    assert entries.threads == ["python 140"]


@pytest.mark.parametrize("version", ["2.1", "2.4", "2.9", "2.10", "2.10.1", "2.11", "3.0", ""])
def test_versions_are_told_and_not_judged(version: str) -> None:
    assert load(dump(version=version)).version == version


def test_2_1_has_neither_status_nor_timeout_nor_threads() -> None:
    old = without(dump(version="2.1", nccl_version="2.20.5"), "pg_status", "comm_lib_version")
    old["entries"] = [
        without(item, "thread_name", "thread_id", "timeout_ms", "is_p2p", "p2p_seq_id")
        for item in (entry(0), entry(1, profiling_name="nccl:send 0->1"))
    ]
    loaded = load(old)
    assert loaded.library_version == "2.20.5"
    assert loaded.status == {}
    entries = loaded.entries
    assert entries is not None
    assert entries.timeout_ms.tolist() == [ABSENT, ABSENT]
    assert entries.p2p_seq.tolist() == [ABSENT, ABSENT]
    assert entries.is_p2p.tolist() == [False, True]
    assert entries.threads == [""]


def test_one_number_for_both_kinds_of_operation() -> None:
    row = without(entry(0, seq_id=7), "collective_seq_id", "p2p_seq_id")
    assert entries_of(dump([row])).seq.tolist() == [7]


def test_json_form_means_the_same() -> None:
    whole = dump([entry(0, frames=None), entry(1, frames=None, duration_ms=1.5)])
    from_json = load(json.dumps(json_form(whole)).encode())
    assert same(from_json, load(whole))
    assert from_json.status[0] == GroupStatus(enqueued=3, started=None, completed=3)
    assert load(b"\xef\xbb\xbf " + json.dumps(json_form(whole)).encode()).version == "2.10"


def test_json_without_entries() -> None:
    loaded = load(json.dumps(json_form(dump([]))).encode())
    assert loaded.entries is None
    assert loaded.partial
    assert loaded.damage == ""


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_dumps_that_another_tool_wrote_again(protocol: int) -> None:
    whole = dump([entry(0), entry(1, frames=frames(7)), entry(2, duration_ms=0.5)])
    data = pickle.dumps(whole, protocol)
    assert same(load(data), load(whole))
    assert same(load(data, contained=False), load(whole))


def test_both_decoders_agree_on_a_large_dump() -> None:
    whole = dump([entry(n, frames=frames(n % 7, n % 3, 5)) for n in range(3000)])
    assert same(load(whole), load(whole, contained=False))


def test_entries_without_frames_and_without_sizes() -> None:
    plain = [without(entry(n), "frames") for n in range(2)]
    bare = [
        without(item, "input_sizes", "output_sizes", "input_dtypes", "output_dtypes")
        for item in plain
    ]
    entries = entries_of(dump(bare))
    assert entries.stack.tolist() == [ABSENT, ABSENT]
    assert entries.stacks == []
    assert entries.arguments == [Arguments()]
    mixed = entries_of(dump([entry(0), plain[1], entry(2, frames=[])]))
    assert mixed.stack.tolist() == [0, ABSENT, ABSENT]
    assert len(mixed.stacks) == 1


@pytest.mark.parametrize("key", [*entry()])
def test_any_key_may_be_missing_in_some_entries(key: str) -> None:
    entries = entries_of(dump([entry(0), without(entry(1), key), entry(2)]))
    assert len(entries) == 3
    assert entries.state[0] == State.COMPLETED


@pytest.mark.parametrize("key", [*entry()])
@pytest.mark.parametrize("value", [None, "x", 5, -3.5, [], {}, [None], ((),), 1 << 70, b"x", True])
def test_any_value_may_be_of_any_type(key: str, value: Any) -> None:
    rows = [entry(0), entry(1, **{key: value}), entry(2)]
    entries = entries_of(pickle.dumps(dump(rows), 4))
    assert len(entries) == 3
    assert entries.operations[entries.operation[0]] == Operation("nccl", "all_reduce")


def test_any_top_value_may_be_of_any_type() -> None:
    for key in dump():
        for value in (None, "x", 5, [], {}, [1], {"0": 1}, {1: {"ranks": {}}}, {None: None}):
            assert load(pickle.dumps(dump(**{key: value}), 2)).rank == 0


def test_numbers_in_text() -> None:
    rows = [
        entry(n, collective_seq_id=str(n + 1), p2p_seq_id="0", op_id=str(n), record_id=str(n))
        for n in range(3)
    ]
    entries = entries_of(dump(rows))
    assert entries.seq.tolist() == [1, 2, 3]
    assert entries.record_id.tolist() == [0, 1, 2]


@pytest.mark.parametrize("ranks", ["[0, 4]", "[0,4]", "0, 4", [0, 4], (0, 4), ["0", "4"]])
def test_members_in_text_or_as_a_list(ranks: Any) -> None:
    config = {"7": {"name": "7", "desc": "tp", "ranks": ranks}, "8": {"desc": "?", "ranks": "[]"}}
    loaded = load(pickle.dumps(dump(pg_config=config), 2))
    assert loaded.members == {"7": (0, 4)}
    assert loaded.descriptions == {"7": "tp", "8": "?"}


def test_groups_as_pair_list_or_text() -> None:
    rows = [
        entry(0, process_group=("0", "described elsewhere")),
        entry(1, process_group=["0", "default_pg"]),
        entry(2, process_group="0"),
        without(entry(3), "process_group"),
    ]
    entries = entries_of(pickle.dumps(dump(rows), 2))
    names = [entries.group_names[index] for index in entries.group]
    assert names[0] == GroupName("0", "described elsewhere")
    assert names[1] == names[2] == GroupName("0", "default_pg")
    without_any = entries_of(dump([without(entry(0, pg_id=3), "process_group")]))
    assert without_any.group_names == [GroupName("3", "")]


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("nccl:all_reduce", Operation("nccl", "all_reduce")),
        ("nccl:send 0->1", Operation("nccl", "send", 0, 1)),
        ("nccl:recv 0<-12", Operation("nccl", "recv", 12, 0)),
        ("nccl:recv 0<--1", Operation("nccl", "recv", ABSENT, 0)),
        ("xccl:coalesced", Operation("xccl", "coalesced")),
        ("nccl2:_all_gather_base", Operation("nccl2", "_all_gather_base")),
        ("gloo:sparse_all_reduce", Operation("gloo", "sparse_all_reduce")),
        ("mpi:reduce", Operation("mpi", "reduce")),
        ("ucc:all_to_all", Operation("ucc", "all_to_all")),
        ("all_reduce", Operation("", "all_reduce")),
        ("", Operation("", "")),
        ("a:b:c d->e", Operation("a", "b:c d->e")),
    ],
)
def test_operations(name: str, operation: Operation) -> None:
    assert entries_of(dump([entry(0, profiling_name=name)])).operations == [operation]


def test_several_backends_in_one_dump() -> None:
    rows = [entry(0), entry(1, pg_id=1, profiling_name="gloo:barrier", process_group=("1", "cpu"))]
    loaded = load(dump(rows))
    assert loaded.entries is not None
    assert [op.backend for op in loaded.entries.operations] == ["nccl", "gloo"]
    assert loaded.names == {0: "0", 1: "1"}


def test_order_is_that_of_record_numbers() -> None:
    entries = entries_of(dump([entry(2), entry(0), entry(1)]))
    assert entries.record_id.tolist() == [0, 1, 2]
    assert entries.seq.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("rows", "enqueued", "partial"),
    [
        ([0, 1, 2], 3, False),
        ([5, 6, 7], 8, True),  # the ring dropped what came before
        ([0, 2], 3, True),  # only active ones were dumped
        ([0, 1], 3, True),  # a later one completed and was left out
        ([], 3, True),
        ([], 0, False),
    ],
)
def test_what_is_missing_is_noticed(rows: list[int], enqueued: int, partial: bool) -> None:
    status = {"0": {"last_enqueued_collective": enqueued}}
    assert load(dump([entry(n) for n in rows], pg_status=status)).partial is partial


def test_unknown_keys_are_kept_as_they_came() -> None:
    assert load(dump(nccl_comm_state={"0": {"x": "1"}})).extra == {
        "nccl_comm_state": {"0": {"x": "1"}}
    }
    assert load(dump(blob="x" * 1_000_000)).extra == {}


def test_bytes_of_a_case() -> None:
    loaded = load_bytes(torch_pickle(dump()), rank=3, source="flight_recorder.pickle")
    assert loaded.rank == 3
    assert loaded.source == "flight_recorder.pickle"
    assert loaded.entries is not None and len(loaded.entries) == 3
    assert load_bytes(torch_pickle(dump()), rank=None, source="x").rank == -1
    with pytest.raises(DumpError, match="empty"):
        load_bytes(b"", rank=0, source="x")
