"""The table of error texts: each row by its example, and a copy without names says the same."""

from __future__ import annotations

import pytest

from hanglab.analyzer.facts.error_texts import ROWS, XID, ErrorText, Kind, classify, texts_of
from hanglab.analyzer.facts.printed_errors import sticky_error
from hanglab.analyzer.verdict import Cause
from hanglab.recorder.archive.pseudonyms import Pseudonyms
from hanglab.recorder.archive.text_redaction import TextRedaction

NAMES = [f"{row.kind.value} {row.example[:40]}" for row in ROWS]
JUDGED = [row for row in ROWS if row.kind is not Kind.HINT]


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_each_row_matches_its_example(row: ErrorText) -> None:
    assert row.pattern.search(row.example)
    assert row.note


@pytest.mark.parametrize("row", JUDGED, ids=lambda row: row.example[:40])
def test_an_example_is_told_by_a_row_of_its_kind(row: ErrorText) -> None:
    told = classify(row.example)
    assert told is not None and told.kind is row.kind
    assert (told.cause, told.gave_up) == (row.cause, row.gave_up) or row.kind is Kind.CONSEQUENCE


@pytest.mark.parametrize("row", JUDGED, ids=lambda row: row.example[:40])
def test_a_copy_without_names_tells_the_same(row: ErrorText) -> None:
    """``share --redact`` keeps the words that a verdict hangs on."""
    redacted = TextRedaction(Pseudonyms()).lines(row.example)
    told, before = classify(redacted), classify(row.example)
    assert told is not None and before is not None
    assert (told.kind, told.cause, told.sticky) == (before.kind, before.cause, before.sticky)


@pytest.mark.parametrize(
    ("text", "kind", "cause"),
    [
        ("CUDA error: an illegal memory access was encountered", Kind.ROOT, None),
        ("Triton Error [CUDA]: an illegal memory access was encountered", Kind.ROOT, None),
        ("NCCL WARN Cuda failure 700 'an illegal memory access was encountered'", Kind.ROOT, None),
        ("NCCL WARN Cuda failure 'unspecified launch failure'", Kind.ROOT, None),
        ("Cuda failure 214 'uncorrectable ECC error encountered'", Kind.ROOT, Cause.GPU_FAULT),
        (
            "CUDA error: uncorrectable NVLink error detected during the execution",
            Kind.ROOT,
            Cause.GPU_FAULT,
        ),
        ("Cuda failure 2 'out of memory'", Kind.ROOT, Cause.GPU_OOM),
        (
            "NET/IB : Got completion from peer 7.6.13.83<36315> with error 12, opcode 0, len 0, "
            "vendor err 129",
            Kind.ROOT,
            Cause.FABRIC_STALLED,
        ),
        (
            "NET/IB : Got completion from peer 7.6.13.83<36315> with status=5 opcode=32656 len=0",
            Kind.CONSEQUENCE,
            None,
        ),
        (
            "ncclRemoteError: A call failed possibly due to a network error or a remote process "
            "exiting prematurely.",
            Kind.CONSEQUENCE,
            None,
        ),
        (
            "Process group watchdog thread terminated with exception: [Rank 4] Watchdog caught "
            "collective operation timeout: WorkNCCL(SeqNum=1580)",
            Kind.CONSEQUENCE,
            None,
        ),
    ],
)
def test_texts_of_others(text: str, kind: Kind, cause: Cause | None) -> None:
    told = classify(text)
    assert told is not None and (told.kind, told.cause) == (kind, cause)


@pytest.mark.parametrize("cause", sorted({row.cause for row in ROWS if row.cause}))
def test_all_texts_of_a_cause_are_one_pattern(cause: Cause) -> None:
    for row in ROWS:
        if row.cause is cause:
            assert texts_of(cause, row.kind).search(row.example)


@pytest.mark.parametrize(
    ("line", "number", "pid"),
    [
        ("NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus.", "79", None),
        ("NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked", "63", "1896"),
        ("NVRM: Xid (PCI:0000:3b:00): 13, pid='<unknown>', name=<unknown>, Graphics", "13", None),
        ("NVRM: Xid (0000:01:00): 31, Ch 0000000b, engmask 00000120", "31", None),
    ],
)
def test_an_xid_s_number_and_process(line: str, number: str, pid: str | None) -> None:
    match = XID.pattern.search(line)
    assert match is not None and (match["number"], match["pid"]) == (number, pid)


STAMPED = (
    "[rank3]:[E504 22:44:01.000000000 ProcessGroupNCCL.cpp:1] [PG ID 0 Rank 3] starting\n"
    "[rank3]:[E504 22:44:08.389636235 ProcessGroupNCCL.cpp:1896] [PG ID 0 PG GUID 0(default_pg) "
    "Rank 3] Process group watchdog thread terminated with exception: CUDA error: an illegal "
    "memory access was encountered\n"
    "[rank3]:[E504 22:44:38.389636235 ProcessGroupNCCL.cpp:1] later\n"
)


@pytest.mark.parametrize("hours", [0, -8, 5.5, 14])
def test_a_line_s_time_is_read_in_any_zone(hours: float) -> None:
    # 2025-05-04 22:44:40 in the zone that the log was written in.
    ended_ns = int((1_746_398_680 - hours * 3600) * 1e9)
    printed = sticky_error(STAMPED, ended_ns)
    assert printed is not None and printed.at_ns is not None
    assert ended_ns - printed.at_ns == pytest.approx(31.610363765e9, abs=1e6)


def test_the_turn_of_the_year_is_no_year() -> None:
    text = STAMPED.replace("504 22:44", "1231 23:59")
    ended_ns = int(1_767_225_601e9)  # 2026-01-01 00:00:01
    printed = sticky_error(text, ended_ns)
    assert printed is not None and printed.at_ns is not None
    assert 0 < ended_ns - printed.at_ns < 60e9


def test_without_a_stamp_nothing_is_timed() -> None:
    printed = sticky_error("CUDA error: unspecified launch failure", 5)
    assert printed is not None and printed.at_ns is None
    assert sticky_error("No space left on device\nCUDA out of memory") is None
