"""The table of operations agrees with torch and with itself, and claims no more."""

from __future__ import annotations

import re

import pytest
from torch._C._distributed_c10d import ProcessGroup

from hanglab.analyzer.flight_recorder.columns import Arguments
from hanglab.analyzer.matching.signatures import comparable_sizes
from hanglab.analyzer.program.program import COLLECTIVES, ROOTED
from hanglab.recorder.case.operations import (
    METHODS,
    MONITORED_BARRIER,
    OPERATIONS,
    op_of,
    op_of_method,
)


@pytest.mark.parametrize("method", [name for name in METHODS if name != MONITORED_BARRIER.name])
def test_each_method_that_is_recorded_is_an_operation_of_its_kind(method: str) -> None:
    read, spec = METHODS[method], op_of_method(method)
    assert spec is not None
    assert spec.rooted == read.rooted
    assert spec.p2p == (read.peer >= 0 or read.any_source)
    assert spec.splits >= (read.splits >= 0)


def test_an_unknown_operation_is_compared_but_nothing_else_is_claimed_of_it() -> None:
    unknown = op_of("all_gather_by_carrier_pigeon")
    assert not (unknown.rootless or unknown.synchronizing or unknown.p2p or unknown.splits)
    assert comparable_sizes(unknown.name, Arguments(input_sizes=((4,),))) == ((4,),)
    assert op_of("all_to_allv").splits and not op_of("all_to_allv").rootless
    assert op_of("all_to_allv").program_name == "all_to_all"


def test_a_send_and_a_receive_are_halves_of_each_other() -> None:
    send, recv = op_of("send"), op_of("recv")
    assert (send.half, send.other_half) == (recv.other_half, recv.half) == ("send", "recv")
    assert send.sends and send.p2p and recv.p2p and not recv.sends
    assert op_of("a_backends_own_recv").half == "recv"
    assert not op_of("broadcast").p2p


def test_every_name_of_an_operation_is_read_as_one_of_programs() -> None:
    # Programs name operations by themselves; what has no name there is left as it is.
    names = {spec.usual_name for spec in OPERATIONS.values()} - {""}
    assert names <= set(COLLECTIVES)
    assert {name for name in ROOTED if not op_of(name).rooted} == set()
    renamed = {name: op_of(name).program_name for name in ("_reduce_oop", "all_reduce_barrier")}
    assert renamed == {"_reduce_oop": "reduce", "all_reduce_barrier": "barrier"}


@pytest.mark.parametrize("method", list(METHODS))
def test_positions_are_those_of_torchs_bindings(method: str) -> None:
    bound = getattr(ProcessGroup, method, None)
    if bound is None:
        pytest.skip(f"this torch has no {method}")
    read = METHODS[method]
    first, *_ = [line for line in bound.__doc__.splitlines() if "self: " in line]
    # The group comes first; a default may hold commas, a type brackets.
    names = re.findall(r"[(,] ?(\w+): ", first.partition(" -> ")[0])[1:]
    if read.options >= 0:
        assert names[read.options] == "opts"
    if read.peer >= 0:
        assert names[read.peer] in ("dstRank", "srcRank")
    # recv_anysource has no names for its arguments.
    if read.tag >= 0 and not read.any_source:
        assert names[read.tag] == "tag"
    if read.splits >= 0:
        assert names[read.splits : read.splits + 2] == ["output_split_sizes", "input_split_sizes"]
    if read.tensor >= 0 and not read.any_source:
        assert "ensor" in names[read.tensor] or "put" in names[read.tensor]


def test_no_method_is_two_operations() -> None:
    methods = [method for spec in OPERATIONS.values() for method in spec.methods]
    assert len(methods) == len(set(methods))
