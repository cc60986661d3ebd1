"""Trace files as Kineto of torch 2.13 writes them, whole and damaged."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hanglab.recorder.profiling.traces import Check, encode_trace, finish, read_trace

#: Nanoseconds since the epoch, as in a real file.
BASE = 1790857026000000000
FIRST_MS = BASE / 1e6 + 1000.0


def event(name: str, ts: float, dur: float, kind: str = "cpu_op") -> str:
    # Kineto escapes nothing in names.
    return (
        f'\n  {{\n    "ph": "X", "cat": "{kind}", "name": "{name}", "pid": 7, "tid": 7,\n'
        f'    "ts": {ts:.3f}, "dur": {dur:.3f},\n    "args": {{\n      "Ev Idx": 0\n    }}\n  }}'
    )


def trace(*events: str) -> bytes:
    head = '{\n  "schemaVersion": 1,\n  "deviceProperties": [\n  ],\n  "displayTimeUnit": "ms",'
    head += f'\n  "baseTimeNanoseconds": {BASE},\n  "traceEvents": ['
    return (head + ",".join(events) + '\n  ],\n  "traceName": "x"\n}').encode()


GOOD = trace(event("aten::add", 1_000_000, 5), event("aten::mul", 1_400_000, 5))
#: A stack that was taken while a module was imported: its name has quotes.
DAMAGED = trace(
    event("aten::add", 1_000_000, 5),
    event('<string>("x")(1): f', 1_000_010, 5, "python_function"),
    event("aten::mul", 1_400_000, 5),
)


def write(folder: Path, data: bytes) -> Check:
    path = folder / "rank1.h_7.pt.trace.json"
    path.write_bytes(data)
    return Check(str(path), str(folder / "rank1.h.7.pt.trace.json"), 1, 4, "h")


def test_trace_says_whose_it_is(tmp_path: Path) -> None:
    check = write(tmp_path, GOOD)
    check.start_ms, check.end_ms = FIRST_MS, FIRST_MS + 500
    checked = finish(check)
    assert (checked.ok, checked.events, checked.dropped) == (True, 2, 0)
    assert checked.first_ms == pytest.approx(FIRST_MS)
    text = Path(check.target).read_text()
    assert json.loads(text)["distributedInfo"] == {"rank": 1, "world_size": 4}
    # Holistic Trace Analysis looks for this, line by line.
    assert re.search(r'"rank":\s+(\d+)', text)
    assert not Path(check.path).exists()


def test_events_that_are_no_json_are_left_out_and_the_others_kept(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(DAMAGED)
    check = write(tmp_path, DAMAGED)
    checked = finish(check)
    assert (checked.ok, checked.events, checked.dropped) == (True, 2, 1)
    names = [e["name"] for e in json.loads(Path(check.target).read_text())["traceEvents"]]
    assert names == ["aten::add", "aten::mul"]


def test_file_that_ends_in_the_middle_keeps_what_precedes(tmp_path: Path) -> None:
    document, dropped = read_trace(GOOD[:-60])
    assert [e["name"] for e in document["traceEvents"]] == ["aten::add"]
    assert dropped == 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"", "empty"), (b"{}", "traceEvents"), (b"hello", "no JSON"), (trace(), "no events")],
)
def test_file_without_a_trace_is_told_as_such(tmp_path: Path, data: bytes, reason: str) -> None:
    checked = finish(write(tmp_path, data))
    assert not checked.ok
    assert reason in checked.reason


@pytest.mark.parametrize(("shift", "word"), [(10_000, "before"), (-10_000, "after")])
def test_events_outside_the_window_are_no_success(tmp_path: Path, shift: int, word: str) -> None:
    check = write(tmp_path, GOOD)
    check.start_ms, check.end_ms = FIRST_MS + shift, FIRST_MS + shift + 500
    checked = finish(check)
    assert not checked.ok
    assert word in checked.reason


def test_encoded_trace_is_the_same_document() -> None:
    document, _ = read_trace(GOOD)
    assert json.loads(encode_trace(document)) == document
