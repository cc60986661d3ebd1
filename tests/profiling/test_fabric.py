"""Frames byte for byte, as kineto and dynolog lay them out on a 64-bit little-endian machine."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanglab.recorder.profiling import fabric, wire
from hanglab.recorder.profiling.fabric import BadFrame, Context, FabricRequest

pytestmark = pytest.mark.skipif(sys.byteorder != "little", reason="bytes of a little-endian host")

TYPE_REQ = b"req" + bytes(29)
#: Type 3 (idle), two process ids, job 7: what a process with one ancestor sends.
REQUEST = (
    bytes.fromhex("1800000000000000")
    + TYPE_REQ
    + bytes.fromhex("03000000 02000000 0700000000000000 d2040000 01000000")
)


def test_request_is_read_and_written_as_kineto_lays_it_out() -> None:
    request = fabric.decode(REQUEST)
    assert request == FabricRequest(accepts=3, job_id=7, pids=(1234, 1))
    assert request.idle
    assert fabric.encode_request(request) == REQUEST


def test_process_in_which_a_trace_runs_is_not_idle() -> None:
    tracing = fabric.decode(REQUEST[:40] + b"\x01" + REQUEST[41:])
    assert isinstance(tracing, FabricRequest)
    assert not tracing.idle


def test_answer_with_nothing_to_do_is_a_bare_header() -> None:
    assert fabric.encode_configuration("") == bytes(8) + TYPE_REQ


def test_answer_holds_the_text() -> None:
    frame = fabric.encode_configuration("A=1\n")
    assert frame == bytes.fromhex("0400000000000000") + TYPE_REQ + b"A=1\n"
    assert fabric.decode_answer(frame) == "A=1\n"


def test_context_is_answered_with_a_count() -> None:
    frame = (
        bytes.fromhex("1000000000000000")
        + b"ctxt"
        + bytes(28)
        + bytes.fromhex("02000000 d2040000 0900000000000000")
    )
    assert fabric.decode(frame) == Context(gpu=2, pid=1234, job_id=9)
    assert fabric.encode_context(Context(2, 1234, 9)) == frame
    assert fabric.encode_count(1) == (
        bytes.fromhex("0400000000000000") + b"ctxt" + bytes(28) + bytes.fromhex("01000000")
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        REQUEST[:39],
        REQUEST[:-1],
        REQUEST + b"x",
        REQUEST[:44] + b"\xff\xff\xff\x7f" + REQUEST[48:],
        REQUEST[:44] + bytes(4) + REQUEST[48:],
        b"\xff" * 8 + REQUEST[8:],
        REQUEST[:8] + b"boo" + bytes(29) + REQUEST[40:],
        REQUEST[:56] + b"\xff\xff\xff\xff" + REQUEST[60:],
    ],
)
def test_frame_that_lies_about_itself_is_refused(data: bytes) -> None:
    with pytest.raises(BadFrame):
        fabric.decode(data)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_be_refused(data: bytes) -> None:
    try:
        fabric.decode(data)
    except BadFrame:
        return


def test_tcp_message_is_a_length_and_json() -> None:
    assert wire.encode({"fn": "getStatus"}) == bytes.fromhex("12000000") + b'{"fn":"getStatus"}'


@pytest.mark.parametrize("header", ["ffffffff", "00000000", "ffffff7f"])
def test_tcp_length_beyond_all_messages_is_refused(header: str) -> None:
    with pytest.raises(wire.BadMessage):
        wire.body_length(bytes.fromhex(header), wire.MAX_REQUEST)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"fn":', b"\xff\xfe", b"[" * 10000])
def test_tcp_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(wire.BadMessage):
        wire.decode(body)
