"""The edit that rounds tell where nothing follows the call at which two orders part."""

from __future__ import annotations

import pytest

from hanglab.analyzer.matching.predicted_edits import goes_on, leaves_out, predict_edit
from hanglab.analyzer.matching.program_order import Edit, find_first_parting

ROUNDS = list("gnrs") * 3


@pytest.mark.parametrize(
    ("mine", "theirs", "edit"),
    [
        ("n", "g", Edit.LEFT_OUT),
        ("r", "g", Edit.LEFT_OUT),  # two of them
        ("nr", "g", Edit.LEFT_OUT),
        ("nr", "gn", Edit.LEFT_OUT),
        ("s", "g", Edit.ADDED),  # the last one once more, rather than three left out
        ("xg", "g", Edit.ADDED),
        ("xg", "gn", Edit.ADDED),
        ("sg", "gn", Edit.ADDED),
        ("sn", "gn", None),  # the last one once more, if that were all
        ("x", "g", None),  # new to the rounds: too many, or in the place of another
        ("n", "x", None),  # the other one left its rounds
        ("nx", "g", None),
    ],
)
def test_what_comes_next_in_the_rounds_tells(mine: str, theirs: str, edit: Edit | None) -> None:
    first, second = [*ROUNDS, *mine], [*ROUNDS, *theirs]
    parting = find_first_parting(first, second)
    assert parting is not None
    assert predict_edit(first, second, parting) is edit


def test_in_rounds_of_two_the_last_again_is_the_next_but_one() -> None:
    first, second = [*"ab" * 4, "b"], [*"ab" * 4, "a"]
    parting = find_first_parting(first, second)
    assert parting is not None
    assert predict_edit(first, second, parting) is None


@pytest.mark.parametrize(("times", "edit"), [(1, Edit.LEFT_OUT), (2, None), (4, None)])
@pytest.mark.parametrize("mine", ["r", "rs"])
def test_one_more_of_a_loop_within_the_round_may_be_too_many(
    times: int, edit: Edit | None, mine: str
) -> None:
    """A stage that receives and sends for each microbatch, and then reduces."""
    first = [*("rs" * times + "a") * 3, *"rs" * times, *mine]
    second = [*("rs" * times + "a") * 4]
    parting = find_first_parting(first, second)
    assert parting is not None
    assert predict_edit(first, second, parting) is edit


def test_more_than_one_time_of_a_loop_within_the_round_is_the_next_round() -> None:
    first, second = [*("rsrsa" * 3), *"rsrs", *"rsrs"], [*("rsrsa" * 4)]
    parting = find_first_parting(first, second)
    assert parting is not None
    assert predict_edit(first, second, parting) is Edit.LEFT_OUT


def test_turns_too_many_are_no_more_than_what_the_next_round_would_lack() -> None:
    """Loops of two, four and six turns: two more of the first, or less of the next."""
    rounds = "rrarrrrarrrrrra" * 2
    first, second = [*rounds, *"rr", *"rra"], [*rounds, *"rra"]
    parting = find_first_parting(first, second)
    assert parting is not None
    assert predict_edit(first, second, parting) is None


def test_without_rounds_nothing_is_predicted() -> None:
    first, second = [*"abcd", "f"], [*"abcd", "e", "f"]
    parting = find_first_parting(first, second)
    assert parting is not None
    assert predict_edit(first, second, parting) is None


def test_a_new_phase_is_no_jump_within_the_rounds() -> None:
    order = [*ROUNDS, "x"]
    assert not goes_on(order, len(ROUNDS))
    assert not leaves_out(order, len(ROUNDS))
    assert leaves_out([*ROUNDS, "r"], len(ROUNDS))
    assert not leaves_out([*ROUNDS, "g"], len(ROUNDS))


def test_one_that_is_followed_by_the_usual_calls_may_be_in_the_place_of_one() -> None:
    """In rounds of one call nothing tells whether it is one too many, or that call made wrong."""
    first, second = [*"aaaa", *"xaaa"], [*"aaaa", *"aaaa"]
    parting = find_first_parting(first, second)
    assert parting is not None
    assert predict_edit(first, second, parting) is None
