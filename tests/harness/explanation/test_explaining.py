"""Explanations of entries of the corpus, part by part."""

from __future__ import annotations

from pathlib import Path

from hanglab.analyzer.engine import examine
from hanglab.harness.corpus.entries import unpack_entry
from hanglab.harness.report.explanation.explaining import explain, explain_examined
from hanglab.harness.report.explanation.parts import Explanation
from tools.corpus.__main__ import CORPUS


def explained(name: str, folder: Path) -> Explanation:
    case = folder / "case"
    unpack_entry(CORPUS, name, case)
    return explain_examined(examine(case), case)


def test_every_part_of_a_hang_is_told_once(tmp_path: Path) -> None:
    told = explained("local/collective_mismatch.fault", tmp_path)
    assert told.headline == (
        "Rank 1 called all_gather at collective_mismatch.py:14 (global_norm) where ranks 0, 2 and "
        "3 called all_reduce #30 of default_pg; they have waited 1.5 s for it."
    )
    assert (told.culprits, told.waiting, told.ranks) == ((1,), (0, 2, 3), 4)
    assert [(p.rank, p.host, p.pid, p.gone) for p in told.processes] == [(1, "node0", 9517, True)]
    assert [(p.role, p.ranks, p.frame.line, p.doing) for p in told.where] == [
        ("culprit", (1,), 14, "in all_gather #30 of default_pg"),
        ("victim", (0, 2, 3), 16, "in all_reduce #30 of default_pg"),
    ]
    assert [frame.line for frame in told.where[0].calls] == [36, 14]
    assert [(one.ranks, one.source) for one in told.why] == [
        ((1,), "flight_recorder"),
        ((0, 2, 3), "flight_recorder"),
        ((), "simulation"),
    ]
    assert told.more_reasons == 0 and len(told.chain) == 5
    assert ("group_order", "p2p_deadlock") in [one.causes for one in told.excluded]
    assert [(one.cause, one.ranks) for one in told.alternatives] == [("skipped_collective", (1,))]
    assert "left out" in told.alternatives[0].told_apart_by
    assert [one.line for one in told.do_now] == [
        f"hanglab entries --unfinished --stacks {tmp_path / 'case'}"
    ]
    assert told.mend is not None and told.mend.frame is not None and told.mend.frame.line == 14


def test_a_verdict_alone_is_explained_with_what_it_has(tmp_path: Path) -> None:
    case = tmp_path / "case"
    unpack_entry(CORPUS, "local/loader_stuck.fault", case)
    told = explain(examine(case).verdict)
    assert told.headline == (
        "Rank 1 gets no data at loader_stuck.py:26 (__iter__); ranks 0, 2 and 3 wait for it in "
        "all_reduce #15 of default_pg."
    )
    assert told.waited_s is None and not told.excluded and told.why
