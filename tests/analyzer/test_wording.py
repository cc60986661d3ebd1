"""Words of evidence that is asked for, each kind of it once."""

from __future__ import annotations

from hanglab.analyzer.wording import Need, name_needs, need_dump, need_later_dump


def test_evidence_of_a_kind_is_asked_for_once_in_the_order_in_which_it_comes() -> None:
    needs = [need_dump(rank) for rank in (9, 3, 4, 5, 3)]
    needs += [need_later_dump(1), Need("native stacks"), Need("native stacks"), need_dump(12)]
    assert name_needs(needs) == [
        "the dumps of ranks 3-5, 9 and 12",
        "a later dump of rank 1",
        "native stacks",
    ]
    assert name_needs([need_dump(7), need_dump(7)]) == ["rank 7's dump"]
    assert name_needs([]) == []
