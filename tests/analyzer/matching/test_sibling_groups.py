"""Groups of one description show what the members of another were to call."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest
from graph_rows import Row, columns

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause, Finding

STEPS = 4
EMBEDDING, FORWARD, EVALUATION, GRADIENTS, LAST_RANK = 5, 10, 57, 80, 90


def dumps(
    sizes: Sequence[int],
    went_on: Collection[int],
    description: str = "mp",
    other_stage: Collection[int] = (),
    kind: str = "all_reduce",
) -> list[RankDump]:
    """Groups of these sizes that evaluate for the first time; some ranks go on instead.

    Those of the ``other_stage`` have a call of their own before all others.  The evaluation is of
    that ``kind``, and the last rank makes it from a line of its own.
    """
    found, first, size = [], 0, sum(sizes)
    for group, of in enumerate(sizes, start=1):
        ranks = range(first, first + of)
        first += of
        name, parted = str(group), not set(ranks).isdisjoint(went_on)
        for rank in ranks:
            calls = [FORWARD] * STEPS + [FORWARD if rank in went_on else EVALUATION]
            calls = [EMBEDDING, *calls] if group in other_stage else calls
            if not parted:
                calls.append(FORWARD)
            rows, step = [], 0
            for seq, line in enumerate(calls, start=1):
                stands = parted and seq == len(calls)
                row = Row("all_reduce", seq, group=name, line=line, done=not stands)
                if line == EVALUATION:
                    row = replace(row, op=kind, inputs=((2,),))
                    row = replace(row, line=LAST_RANK) if rank == size - 1 else row
                rows.append(row)
                if line == FORWARD and not stands:
                    step += 1
                    last = not parted and seq == len(calls)
                    rows.append(Row("all_reduce", step, line=GRADIENTS, done=not last))
            members = {"0": range(size), name: ranks}
            found.append(columns(rank, rows, members=members, descriptions={name: description}))
    return found


def findings(*arguments: object, **others: object) -> list[Finding]:
    return synchronization_findings(build_wait_for_graph(dumps(*arguments, **others)))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["all_reduce", "_all_gather_base"])
@pytest.mark.parametrize(
    ("sizes", "went_on"), [([2] * 4, [3]), ([2] * 4, [0]), ([4] * 4, [2, 3]), ([4] * 3, [9])]
)
def test_who_went_on_is_told_by_those_who_all_made_the_call(
    sizes: list[int], went_on: list[int], kind: str
) -> None:
    (finding,) = findings(sizes, went_on, kind=kind)
    assert finding.culprits == went_on and finding.confidence > 0.7
    # Of one against three the group's own majority tells, and what follows has yet to come.
    alone = Cause.COLLECTIVE_MISMATCH if sizes == [4] * 3 else Cause.SKIPPED_COLLECTIVE
    assert finding.cause is alone


def test_the_majority_of_a_group_is_not_right_against_its_siblings() -> None:
    """Nor are these: a branch on the data makes a group call otherwise by right."""
    graph = build_wait_for_graph(dumps([4] * 4, [5, 6, 7]))
    verdict = conclude(CaseFacts(graph=graph, ranks={}))
    assert verdict.culprits == [4, 5, 6, 7] and verdict.confidence <= 0.5


@pytest.mark.parametrize("kind", ["all_reduce", "_all_gather_base"])
def test_a_line_of_a_ranks_own_is_no_side(kind: str) -> None:
    """Ranks 12 to 14 evaluate, and so does 15, from a line of its own; 13 went on."""
    (finding,) = findings([4] * 4, [13], kind=kind)
    assert finding.culprits == [13]


@pytest.mark.parametrize("description", ["", "undefined"])
def test_groups_without_a_description_tell_nothing_of_each_other(description: str) -> None:
    (finding,) = findings([2] * 4, [3], description)
    assert finding.culprits == [2, 3] and finding.confidence <= 0.5


def test_groups_of_another_stage_have_other_numbers() -> None:
    """Their fifth call is the one that went on: by one call more before it, and not by a vote."""
    (finding,) = findings([2] * 4, [3], other_stage=[1, 3, 4])
    assert finding.culprits == [2, 3] and finding.confidence <= 0.5
    (finding,) = findings([2] * 4, [3], other_stage=[3, 4])
    assert finding.culprits == [3]


@pytest.mark.parametrize("pairs", [2, 4])
@pytest.mark.parametrize("odd", [0, 3])
def test_a_call_new_to_all_others_tells_who_left_it_out_without_any_in_common(
    odd: int, pairs: int
) -> None:
    def told(at: int, *, evaluates: bool) -> list[int]:
        dumps = []
        for rank in range(2 * pairs):
            name, held = str(1 + rank // 2), rank // 2 == odd // 2
            rows = [Row("all_reduce", seq, group=name, line=FORWARD) for seq in range(1, at)]
            new = (rank != odd) if evaluates else (rank == odd)
            line, size = (EVALUATION, 2) if new else (FORWARD, 4)
            row = Row("all_reduce", at, group=name, line=line, done=not held, inputs=((size,),))
            rows.append(row)
            if not held:
                rows.append(Row("all_reduce", 1, line=GRADIENTS, done=False))
            members = {"0": range(2 * pairs), name: (rank // 2 * 2, rank // 2 * 2 + 1)}
            dumps.append(columns(rank, rows, members=members, descriptions={name: "dp"}))
        (finding,) = synchronization_findings(build_wait_for_graph(dumps))
        return finding.culprits

    pair = [odd // 2 * 2, odd // 2 * 2 + 1]
    assert told(30, evaluates=True) == [odd]
    # After a few calls their numbers need not be in step.
    assert told(5, evaluates=True) == pair
    # That others go on as before says nothing of what is new to one group, a request for one.
    assert told(30, evaluates=False) == pair


@pytest.mark.parametrize("odd", [8, 13, 15])
@pytest.mark.parametrize("skipped", [0, 1])
def test_neighbours_of_a_pair_tell_by_what_those_in_its_place_share(odd: int, skipped: int) -> None:
    """Two stages of four pairs; ranks of one place and stage reduce together after each step.

    Of the other stage's pairs, which call another operation under that number, nothing is taken.
    One of a pair leaves a call of its steps out, which every step has, and has no lines.
    """
    dumps = []
    steps = {0: ("all_gather", "reduce_scatter"), 1: ("reduce_scatter", "all_gather")}
    for rank in range(16):
        stage, place = rank // 8, rank % 2
        pair = rank // 2 * 2, rank // 2 * 2 + 1
        reduces = range(8 * stage + place, 8 * stage + 8, 2)
        calls = [op for _ in range(4) for op in (*steps[stage], "step")]
        held = rank // 2 == odd // 2
        if held:
            # They wait within the fourth step, and with them who shares a group with either.
            calls = calls[: 10 + skipped]
            calls = calls if rank != odd else [*calls[:-1], steps[stage][1 - skipped]]
        rows: list[Row] = []
        for number, op in enumerate(calls):
            name = "dp" if op == "step" else "tp"
            last = number == len(calls) - 1
            waits = last and (held or (stage == 1 and name == "dp"))
            group = {"dp": f"{20 + 2 * stage + place}", "tp": f"{1 + rank // 2}"}[name]
            seq = 1 + sum(row.group == group for row in rows)
            rows.append(Row("all_reduce" if op == "step" else op, seq, group, not waits))
        members = {"0": range(16), f"{1 + rank // 2}": pair, f"{20 + 2 * stage + place}": reduces}
        descriptions = {f"{1 + rank // 2}": "tp", f"{20 + 2 * stage + place}": "dp"}
        dumps.append(columns(rank, rows, members=members, descriptions=descriptions))
    found = synchronization_findings(build_wait_for_graph(dumps))
    assert [one.culprits for one in found] == [[odd]]
