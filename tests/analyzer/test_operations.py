"""The table of operations agrees with how the recorder reads calls, and claims no more."""

from __future__ import annotations

import pytest

from hanglab.analyzer.flight_recorder.columns import Arguments
from hanglab.analyzer.matching.signatures import comparable_sizes
from hanglab.analyzer.operations import OPERATIONS, op_of, op_of_gloo_method
from hanglab.recorder.rank.arguments import METHODS


@pytest.mark.parametrize("method", [name for name in METHODS if name != "monitored_barrier"])
def test_each_method_that_is_recorded_is_an_operation_of_its_kind(method: str) -> None:
    read, spec = METHODS[method], op_of_gloo_method(method)
    assert spec is not None
    assert spec.rooted == read.rooted
    assert spec.p2p == (read.peer >= 0 or read.any_source)
    assert spec.splits >= (read.splits >= 0)


def test_an_unknown_operation_is_compared_but_nothing_else_is_claimed_of_it() -> None:
    unknown = op_of("all_gather_by_carrier_pigeon")
    assert not (unknown.rootless or unknown.synchronizing or unknown.p2p or unknown.splits)
    assert comparable_sizes(unknown.name, Arguments(input_sizes=((4,),))) == ((4,),)
    assert op_of("all_to_allv").splits and not op_of("all_to_allv").rootless


def test_no_method_is_two_operations() -> None:
    methods = [method for spec in OPERATIONS.values() for method in spec.gloo_methods]
    assert len(methods) == len(set(methods))
