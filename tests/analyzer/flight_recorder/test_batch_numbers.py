"""Batches of messages are read as those of later releases, with ends that are marked as messages.

No release of torch marks them, and up to 2.5 such batches count as collectives.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from dump_builders import dump, entry, torch_pickle

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.flight_recorder.loading import load_bytes
from hanglab.analyzer.verdict import Cause

#: Minutes behind all that the ranks have done.
LATER_S = 1_700_000_700
#: Operations whose entries keep their first state, as their batch ends for them.
OF_BATCHES = ("send", "recv")
#: What a rank issues, in turn: a collective, peers of one batch, a message alone to a peer, or a
#: batch of so many collectives.
Issued = str | tuple[int, ...] | int | float


def entries_of(
    issued: list[Issued], *, legacy: bool, marked: bool = True, rank: int = 0
) -> list[dict[str, Any]]:
    """Entries as torch numbers them; ``marked`` ends of batches say that they are of messages."""
    made: list[dict[str, Any]] = []
    seq = p2p = 0

    def add(name: str, *, is_p2p: bool) -> None:
        made.append(
            entry(
                len(made), profiling_name=f"nccl:{name}", is_p2p=is_p2p, collective_seq_id=seq,
                p2p_seq_id=p2p, time_created_ns=1_700_000_000_000_000_000 + len(made),
            )
        )  # fmt: skip

    for one in issued:
        if isinstance(one, str):
            seq += 1
            add(one, is_p2p=False)
        elif isinstance(one, int):
            p2p += 1
            add(f"send {rank}->{one}", is_p2p=True)
        elif isinstance(one, float):
            seq += 1
            for _ in range(int(one)):
                add("all_reduce", is_p2p=False)
            add("coalesced", is_p2p=False)
        else:
            seq, p2p = (seq + 1, p2p) if legacy else (seq, p2p + 1)
            for peer in one:
                add(f"send {rank}->{peer}", is_p2p=True)
                add(f"recv {rank}<-{peer}", is_p2p=True)
            add("coalesced", is_p2p=marked)
    return made


def read(entries: list[dict[str, Any]]) -> list[tuple[int, int, bool]]:
    """Number of the last collective, that of the message, and whether it is one."""
    data = torch_pickle(dump(entries, version="2.4"))
    found = load_bytes(data, rank=0, source="rank_0").entries
    assert found is not None
    rows = zip(found.seq.tolist(), found.p2p_seq.tolist(), found.is_p2p.tolist(), strict=True)
    return [(seq, p2p if message else 0, message) for seq, p2p, message in rows]


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize(
    "issued",
    [
        ["all_reduce", (1,), (1, 2), "all_reduce"],
        [(1, 2), (2, 1), (1,)],
        [1, (1, 2), 2, 2, (3,), "all_reduce", 1, (1,), "barrier"],
        ["all_reduce", 2.0, (1,), 3.0, 1, (2,), 2.0],
    ],
)
def test_numbers_are_those_of_later_releases(issued: list[Issued], marked: bool) -> None:
    later = read(entries_of(issued, legacy=False, marked=marked))
    assert read(entries_of(issued, legacy=True, marked=marked)) == later
    assert later == [
        (one["collective_seq_id"], one["p2p_seq_id"] * one["is_p2p"], one["is_p2p"])
        for one in entries_of(issued, legacy=False)
    ]


@pytest.mark.parametrize(
    ("issued", "lost", "marked"),
    [
        # The end alone of a batch of messages, as the later ones of its group are.
        (["all_reduce", (1,), (2,), "all_reduce"], 3, True),
        # Batches of collectives end in its group as well, or no message is left of it.
        (["all_reduce", (1,), (2,), 2.0], 3, False),
        (["all_reduce", (1,), "all_reduce"], 3, False),
    ],
)
def test_an_end_whose_messages_the_ring_has_dropped(
    issued: list[Issued], lost: int, marked: bool
) -> None:
    entries = entries_of(issued, legacy=False, marked=False)[lost:]
    assert entries[0]["profiling_name"] == "nccl:coalesced"
    assert read(entries)[0][2] is marked


def test_a_ring_that_lost_its_first_entries_keeps_the_numbers_of_its_collectives() -> None:
    issued: list[Issued] = [(1,), "all_reduce", (2,), (1, 2), "all_reduce"]
    left = entries_of(issued, legacy=True)[1:]
    found = read(left)
    assert [seq for seq, _, message in found if not message] == [2, 5]
    messages = [p2p for _, p2p, message in found if message]
    assert messages == sorted(messages) and len(set(messages)) == 3


@pytest.mark.parametrize("legacy", [True, False])
def test_who_exchanges_with_more_peers_is_at_the_same_collective(
    tmp_path: Path, legacy: bool
) -> None:
    """The inner rank of three makes two batches a step, the outer ones one; rank 2 stops."""
    peers: dict[int, list[Issued]] = {0: [(1,)], 1: [(0,), (2,)], 2: [(1,)]}
    for rank, batches in peers.items():
        step: list[Issued] = [*batches, "all_reduce"]
        issued = step * 5 + ([] if rank == 2 else ["all_reduce"])
        rows = entries_of(issued, legacy=legacy, rank=rank)
        for row in rows:
            row["state"] = "scheduled" if row["profiling_name"][5:9] in OF_BATCHES else "completed"
        if rank != 2:
            rows[-1] |= {"state": "scheduled", "retired": False}
            rows[-1]["time_discovered_completed_ns"] = None
        config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
        made = dump(rows, version="2.4", pg_config=config, pg_status={})
        path = tmp_path / f"rank_{rank}"
        path.write_bytes(torch_pickle(made))
        os.utime(path, (LATER_S, LATER_S))
    found = analyze(tmp_path)
    assert (found.cause, found.culprits) == (Cause.MISSING_RANK, [2])
    assert found.collective is not None and found.collective.seq == 6
