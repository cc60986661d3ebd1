"""Names of operations in tables: as they were called, where gloo made something else of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hanglab.analyzer.facts.calls_for_tables import name_as_called
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.flight_recorder.content import read_content
from hanglab.analyzer.flight_recorder.decoding import Decoded
from hanglab.recorder.case.progress_records import OperationCall, Progress


def made(rank: int, operation: str) -> RankDump:
    """A buffer of gloo with one collective."""
    entry = {
        "record_id": 0, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": 1,
        "p2p_seq_id": 0, "op_id": 1, "profiling_name": f"gloo:{operation}", "time_created_ns": 10,
        "input_sizes": [[4]], "input_dtypes": ["Float"], "output_sizes": [[4]],
        "output_dtypes": ["Float"], "state": "scheduled", "retired": True, "is_p2p": False,
        "frames": [],
    }  # fmt: skip
    content = Decoded({"version": "2.10", "pg_config": {}, "entries": [entry]})
    return read_content(content, rank=rank, source=Path("fr.pkl").name, from_json=False,
                        contained=False)  # fmt: skip


@pytest.mark.parametrize(
    ("odd", "named"),
    [
        ("all_reduce", "reduce_scatter"),  # the same, made where the boundary sees nothing
        ("broadcast", "broadcast"),
    ],
)
def test_a_call_bears_its_peers_name_only_if_gloo_made_the_same_of_both(
    odd: str, named: str
) -> None:
    dumps = [made(0, odd), *(made(rank, "all_reduce") for rank in (1, 2))]
    seen = {}
    for rank in (1, 2):
        call = OperationCall(0, "_reduce_scatter_base", "0", 5, returned_ns=20, group_seq=0)
        seen[rank] = Progress(1, rank, 0, 0, -1, None, 1, [call])
    name_as_called(dumps, seen)
    names = [one.entries.operation_at(0).op for one in dumps if one.entries is not None]
    assert names[0] == named
    assert len({*names[1:]}) == 1
    assert names[1] not in ("all_reduce", odd)
