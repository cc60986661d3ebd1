"""Inputs on which torchfrtrace fails, each from files to verdict.

It prints nothing, accuses the wrong ranks, gives up or ends in a traceback on
all of them.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from graph_rows import Row, dump_object, world

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.program.torch_pickle import torch_pickle
from hanglab.analyzer.verdict import Cause, Status, Verdict

DONE = [Row("all_reduce", seq, line=10 + seq % 4) for seq in range(1, 41)]
WAITS = [*DONE, Row("all_reduce", 41, done=False, line=11)]
GLOO = Path(__file__).parents[2] / "data" / "dumps" / "gloo"


def write(folder: Path, dumps: Mapping[str, bytes | dict[str, Any]]) -> Path:
    for name, dump in dumps.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(dump if isinstance(dump, bytes) else torch_pickle(dump))
    return folder


def job(laggard: int | None, size: int = 4, **details: Any) -> dict[str, bytes | dict[str, Any]]:
    """``size`` ranks that wait for ``laggard`` in number 41; None for a healthy job."""
    rows = DONE if laggard is None else WAITS
    return {
        f"rank_{rank}": dump_object(
            DONE if rank == laggard else rows, **{"members": world(size), **details}
        )
        for rank in range(size)
    }


def healthy(folder: Path) -> None:
    verdict = analyze(folder)
    assert (verdict.status, verdict.culprits) == (Status.HEALTHY, [])


def names(folder: Path, rank: int) -> Verdict:
    verdict = analyze(folder)
    assert (verdict.status, verdict.culprits) == (Status.HUNG, [rank])
    assert verdict.collective is not None
    assert (verdict.collective.op, verdict.collective.seq) == ("all_reduce", 41)
    return verdict


def test_all_ranks_stuck_in_the_same_operation(tmp_path: Path) -> None:
    rows = {f"rank_{rank}": dump_object(WAITS, members=world(4)) for rank in range(4)}
    verdict = analyze(write(tmp_path, rows))
    assert verdict.status is Status.INCONCLUSIVE
    assert verdict.culprits == []
    assert "socket states of both ends" in verdict.inputs.would_decide


@pytest.mark.parametrize("laggard", range(4))
def test_the_culprits_file_may_come_first(tmp_path: Path, laggard: int) -> None:
    names(write(tmp_path, job(laggard)), laggard)


def test_a_skipped_collective(tmp_path: Path) -> None:
    """Rank 2 leaves number 21 out: its later ones come one number early."""
    steps = [("all_reduce", 10), ("broadcast", 11), ("all_gather", 12)] * 8
    peers = [Row(op, n, line=line) for n, (op, line) in enumerate(steps, 1)]
    mine = [Row(op, n, line=line) for n, (op, line) in enumerate(steps[:20] + steps[21:], 1)]
    peers = [*peers[:20], Row("all_gather", 21, line=12, done=False)]
    mine = [*mine[:20], Row("all_reduce", 21, line=10, done=False)]
    dumps = {
        f"rank_{rank}": dump_object(mine if rank == 2 else peers, members=world(4))
        for rank in range(4)
    }
    verdict = analyze(write(tmp_path, dumps))
    assert (verdict.cause, verdict.culprits) == (Cause.SKIPPED_COLLECTIVE, [2])
    assert verdict.collective is not None
    assert verdict.collective.seq == 21
    assert verdict.location is not None
    assert verdict.location.line == 10


def test_ranks_caught_in_different_states(tmp_path: Path) -> None:
    states = ["scheduled", "started", "started", "scheduled"]
    dumps = {
        f"rank_{rank}": dump_object(
            [*DONE, Row("all_reduce", 41, done=False, state=states[rank], line=11)],
            members=world(4),
        )
        for rank in range(4)
    }
    assert analyze(write(tmp_path, dumps)).culprits == []


def test_record_numbers_that_are_offset(tmp_path: Path) -> None:
    dumps = {
        f"rank_{rank}": dump_object(DONE, members=world(4), first_record=1000 * rank)
        for rank in range(4)
    }
    healthy(write(tmp_path, dumps))


def test_rings_that_are_skewed_by_rank(tmp_path: Path) -> None:
    skewed = {
        f"rank_{rank}": dump_object(DONE[5 * rank :], members=world(4), first_record=5 * rank)
        for rank in range(4)
    }
    healthy(write(tmp_path / "healthy", skewed))
    hung = {
        f"rank_{rank}": dump_object(
            (DONE if rank == 1 else WAITS)[5 * rank :], members=world(4), first_record=5 * rank
        )
        for rank in range(4)
    }
    names(write(tmp_path / "hung", hung), 1)


def test_one_dump_is_missing(tmp_path: Path) -> None:
    dumps = job(2)
    del dumps["rank_0"]
    verdict = names(write(tmp_path, dumps), 2)
    assert verdict.inputs.missing_ranks == [0]


def test_the_dump_that_is_awaited_is_missing(tmp_path: Path) -> None:
    dumps = job(2)
    del dumps["rank_2"]
    verdict = analyze(write(tmp_path, dumps))
    assert verdict.culprits in ([], [2])
    assert verdict.inputs.missing_ranks == [2]


def test_a_rank_without_entries(tmp_path: Path) -> None:
    first = [Row("all_reduce", 1, done=False)]
    dumps = {
        f"rank_{rank}": dump_object([] if rank == 3 else first, members=world(4), status={})
        for rank in range(4)
    }
    verdict = analyze(write(tmp_path, dumps))
    assert (verdict.status, verdict.culprits) == (Status.HUNG, [3])


VERSIONS = ("2.1", "2.4", "2.9", "2.10", "2.10.1", "3.0")


@pytest.mark.parametrize("laggard", [None, *range(len(VERSIONS))])
def test_mixed_versions(tmp_path: Path, laggard: int | None) -> None:
    size = len(VERSIONS)
    dumps = job(laggard, size)
    for (name, dump), version in zip(dumps.items(), VERSIONS, strict=True):
        assert isinstance(dump, dict)
        dump["version"] = version
        if version == "2.1":
            dump["nccl_version"] = dump.pop("comm_lib_version")
            for entry in dump["entries"]:
                del entry["timeout_ms"]
        dumps[name] = dump
    folder = write(tmp_path, dumps)
    healthy(folder) if laggard is None else names(folder, laggard)


def test_truncated_empty_and_stray_files_cost_only_themselves(tmp_path: Path) -> None:
    dumps = job(1, 6)
    whole = torch_pickle(dumps["rank_5"])  # type: ignore[arg-type]
    dumps["rank_5"] = whole[: len(whole) * 2 // 3]
    dumps["rank_4"] = b""
    folder = write(tmp_path, {**dumps, "notes.txt": b"call me", "core.1": b"\x7fELF"})
    os.mkfifo(folder / "rank_0.pipe")
    verdict = names(folder, 1)
    assert {item.file for item in verdict.inputs.unusable} == {
        "rank_4",
        "rank_5",
        "notes.txt",
        "core.1",
    }
    (truncated,) = [item for item in verdict.inputs.unusable if item.file == "rank_5"]
    assert "entries were used" in truncated.reason


def test_json_other_suffixes_and_folders_of_hosts(tmp_path: Path) -> None:
    dumps = job(3)
    json_dump = json.dumps(dumps.pop("rank_0")).encode()
    named = {f"host{n % 2}/{name}.pkl": dump for n, (name, dump) in enumerate(dumps.items())}
    names(write(tmp_path, {**named, "host0/rank_0.json": json_dump}), 3)


def test_no_entries_key_and_no_sizes(tmp_path: Path) -> None:
    dumps = job(2)
    for dump in dumps.values():
        assert isinstance(dump, dict)
        for entry in dump["entries"]:
            for key in ("input_sizes", "output_sizes", "input_dtypes", "output_dtypes"):
                del entry[key]
    names(write(tmp_path / "no sizes", dumps), 2)
    empty = {f"rank_{rank}": dump_object([], members=world(2)) for rank in range(2)}
    assert "entries" not in empty["rank_0"]
    assert analyze(write(tmp_path / "no entries", empty)).culprits == []


def test_duplicate_names_in_sub_folders(tmp_path: Path) -> None:
    dumps = job(1)
    older = dump_object(DONE[:5], members=world(4))
    verdict = names(write(tmp_path, {**dumps, "earlier/rank_0": older}), 1)
    (left_out,) = verdict.inputs.unusable
    assert left_out.file == "earlier/rank_0"


@pytest.mark.parametrize("form", ["plain", "stacks", "json"])
def test_dumps_of_gloo(form: str) -> None:
    """Dumps that torch itself wrote, of a job that went well."""
    healthy(GLOO / form)


def test_a_description_that_differs_between_ranks(tmp_path: Path) -> None:
    dumps: dict[str, bytes | dict[str, Any]] = {
        f"rank_{rank}": dump_object(
            DONE if rank == 0 else WAITS,
            members=world(3),
            descriptions={"0": "default_pg" if rank else "undefined"},
        )
        for rank in range(3)
    }
    names(write(tmp_path, dumps), 0)


@pytest.mark.parametrize("backend", ["xccl", "nccl2", "ncclx", "mpi", "ucc", "gloo", "homemade"])
@pytest.mark.parametrize("laggard", [None, 1])
def test_other_backends(tmp_path: Path, backend: str, laggard: int | None) -> None:
    folder = write(tmp_path, job(laggard, backend=backend))
    healthy(folder) if laggard is None else names(folder, laggard)


@pytest.mark.parametrize("op", ["sparse_all_reduce", "an operation of tomorrow"])
def test_unknown_operations(tmp_path: Path, op: str) -> None:
    done = [Row(op, seq) for seq in range(1, 5)]
    waits = [*done, Row(op, 5, done=False)]
    dumps = {
        f"rank_{rank}": dump_object(done if rank == 2 else waits, members=world(4))
        for rank in range(4)
    }
    assert analyze(write(tmp_path, dumps)).culprits == [2]


def test_names_without_a_backend(tmp_path: Path) -> None:
    dumps = job(2)
    for dump in dumps.values():
        assert isinstance(dump, dict)
        for entry in dump["entries"]:
            entry["profiling_name"] = entry["profiling_name"].partition(":")[2]
    names(write(tmp_path, dumps), 2)


def test_a_send_then_a_collective_with_an_equal_number(tmp_path: Path) -> None:
    collective = [Row("all_reduce", 1)]
    dumps = {
        "rank_0": [Row("send 0->1", 0, p2p_seq=1), *collective],
        "rank_1": [Row("recv 1<-0", 0, p2p_seq=1), *collective],
        "rank_2": collective,
        "rank_3": collective,
    }
    made = {name: dump_object(rows, members=world(4)) for name, rows in dumps.items()}
    healthy(write(tmp_path, made))


def test_healthy_point_to_point_in_a_group_of_four(tmp_path: Path) -> None:
    def rows(rank: int) -> list[Row]:
        found = []
        for n in range(1, 6):
            if rank:
                found.append(Row(f"recv {rank}<-{rank - 1}", 0, p2p_seq=2 * n))
            if rank < 3:
                found.append(Row(f"send {rank}->{rank + 1}", 0, p2p_seq=2 * n + 1))
        return found

    made = {f"rank_{rank}": dump_object(rows(rank), members=world(4)) for rank in range(4)}
    healthy(write(tmp_path, made))


def test_an_uneven_all_to_all(tmp_path: Path) -> None:
    def rows(rank: int) -> list[Row]:
        return [Row("all_to_all", n, inputs=((rank + 1,),), outputs=((4 - rank,),)) for n in (1, 2)]

    made = {f"rank_{rank}": dump_object(rows(rank), members=world(4)) for rank in range(4)}
    healthy(write(tmp_path, made))


class Trace:
    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (self.path,))


def test_a_pickle_with_code_in_it(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    folder = write(tmp_path / "dumps", {**job(1), "rank_9": pickle.dumps(Trace(trace))})
    verdict = names(folder, 1)
    assert not trace.exists()
    (refused,) = verdict.inputs.unusable
    assert refused.file == "rank_9"
    assert "mkdir" in refused.reason


def on_thread(row: Row, thread: str, group: str) -> Row:
    return Row(
        row.op,
        row.seq,
        group=group,
        done=row.done,
        line=row.line,
        extra={"thread_name": thread, "thread_id": thread[-1]},
    )


@pytest.mark.parametrize("laggard", [None, 0, 2])
def test_several_threads_on_several_groups(tmp_path: Path, laggard: int | None) -> None:
    """The autograd thread's operations fall between those of the main one by chance."""
    members = {"0": range(4), "5": range(4)}
    dumps: dict[str, bytes | dict[str, Any]] = {}
    for rank in range(4):
        main = [on_thread(row, "main_0", "5") for row in DONE]
        hooks = [on_thread(row, "autograd_1", "0") for row in WAITS]
        if laggard in (None, rank):
            hooks = hooks[:-1]
        # Each rank interleaves them in its own way.
        rows, pace = [], rank + 1
        while main or hooks:
            rows += hooks[:pace] + main[: 5 - pace]
            del hooks[:pace], main[: 5 - pace]
        dumps[f"rank_{rank}"] = dump_object(rows, members=members)
    folder = write(tmp_path, dumps)
    healthy(folder) if laggard is None else names(folder, laggard)


@pytest.mark.parametrize("laggard", [None, 1])
def test_several_threads_on_one_group(tmp_path: Path, laggard: int | None) -> None:
    """Two threads take turns, the same on all ranks, as a lock in the job sees to it."""
    dumps: dict[str, bytes | dict[str, Any]] = {}
    for rank in range(4):
        rows = DONE if laggard in (None, rank) else WAITS
        mine = [on_thread(row, f"thread_{row.seq % 2}", "0") for row in rows]
        dumps[f"rank_{rank}"] = dump_object(mine, members=world(4))
    folder = write(tmp_path, dumps)
    healthy(folder) if laggard is None else names(folder, laggard)


@pytest.mark.parametrize("laggard", range(6))
def test_replica_groups_whose_ranks_begin_at_zero(tmp_path: Path, laggard: int) -> None:
    """torchft: three replicas of two; files have global ranks, groups know only 0 and 1."""
    dumps: dict[str, bytes | dict[str, Any]] = {
        f"rank_{rank}": dump_object(
            WAITS if rank != laggard and rank // 2 == laggard // 2 else DONE, members=world(2)
        )
        for rank in range(6)
    }
    verdict = names(write(tmp_path, dumps), laggard)
    assert verdict.victims == [laggard ^ 1]


@pytest.mark.parametrize("laggard", [None, 2])
def test_several_backends_in_one_job(tmp_path: Path, laggard: int | None) -> None:
    """A gloo group beside those of NCCL, in one buffer; its entries never change their state."""
    dumps: dict[str, bytes | dict[str, Any]] = {}
    for rank in range(4):
        rows = DONE if laggard in (None, rank) else WAITS
        dump = dump_object(rows, members={"0": range(4), "1": range(4)})
        beside = dump_object([Row("barrier", n, group="1") for n in (1, 2)], backend="gloo")
        dump["entries"][10:10] = beside["entries"]
        for number, entry in enumerate(dump["entries"]):
            entry["record_id"] = number
        dumps[f"rank_{rank}"] = dump
    folder = write(tmp_path, dumps)
    healthy(folder) if laggard is None else names(folder, laggard)
