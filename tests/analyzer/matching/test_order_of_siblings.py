"""Orders in which ranks come to a group and to one of its parts, told by those of other parts."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from graph_rows import Row, dump_object

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.program.torch_pickle import torch_pickle

MEMBERS = {"0": range(6), "1": [0, 1], "2": [2, 3], "3": [4, 5]}
LATER_NS = 600 * 1_000_000_000


def named(folder: Path, odd: int, *, more: int = 0) -> list[int]:
    """Who is named of six ranks of which one comes to the call of all before its part's.

    ``more``: calls that the other parts made before.
    """
    for rank in range(6):
        part = "123"[rank // 2]
        first = more if rank > 1 else 0
        rows = [Row("all_reduce", number, part, line=20) for number in range(1, first + 1)]
        for number in range(1, 6):
            calls = [
                Row("all_reduce", first + number, part, number < 3 + (rank > 1), line=20),
                Row("all_reduce", number, done=number < 3, line=30),
            ]
            if (rank, number) == (odd, 3):  # From a line of its own: it is in no round of these.
                calls = [replace(calls[1], line=31), calls[0]]
            rows += calls
        members = {name: MEMBERS[name] for name in ("0", part)}
        made = dump_object(rows, members=members, descriptions={part: "tensor"})
        path = folder / f"rank_{rank}"
        path.write_bytes(torch_pickle(made))
        os.utime(path, ns=(1_000_000_000 + LATER_NS, 1_000_000_000 + LATER_NS))
    return analyze(folder).culprits


@pytest.mark.parametrize("odd", [0, 1])
def test_who_keeps_another_order_than_all_siblings_left_it(tmp_path: Path, odd: int) -> None:
    assert named(tmp_path, odd) == [odd]


@pytest.mark.parametrize("odd", [0, 1])
def test_parts_that_have_made_more_calls_tell_nothing(tmp_path: Path, odd: int) -> None:
    assert named(tmp_path, odd, more=1) == [0, 1]
