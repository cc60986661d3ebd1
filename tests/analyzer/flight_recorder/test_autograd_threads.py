"""A backward pass and the thread that waits for it make one order of calls."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from dump_builders import dump, entry, torch_pickle

from hanglab.analyzer.flight_recorder.loading import load_bytes

MAIN, BACKWARD, SAVER = ("pt_main_thread", "1"), ("pt_autograd_0", "2"), ("python", "3")


def threads_of(issued: Sequence[tuple[str, str]]) -> list[str]:
    entries = [entry(n, thread_name=name, thread_id=one) for n, (name, one) in enumerate(issued)]
    data = torch_pickle(dump(entries))
    found = load_bytes(data, rank=0, source="rank_0").entries
    assert found is not None
    return [found.threads[number].rpartition(" ")[2] for number in found.thread.tolist()]


@pytest.mark.parametrize("second", [BACKWARD, ("pt_autograd_7", "4")])
def test_calls_of_autograd_are_those_of_the_thread_that_waits(second: tuple[str, str]) -> None:
    issued = [BACKWARD, MAIN, MAIN, BACKWARD, BACKWARD, MAIN, second, MAIN]
    assert threads_of(issued) == ["1"] * len(issued)


def test_a_thread_of_its_own_stays_one_however_much_it_calls() -> None:
    issued = [SAVER, SAVER, SAVER, MAIN, BACKWARD, MAIN, SAVER, BACKWARD, MAIN, SAVER, SAVER]
    assert threads_of(issued) == ["3" if one is SAVER else "1" for one in issued]


def test_where_no_other_thread_called_autograds_is_its_own() -> None:
    assert threads_of([BACKWARD, BACKWARD]) == ["2", "2"]
