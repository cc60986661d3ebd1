"""Explanations of entries of the corpus, part by part."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console

from hanglab.analyzer.engine import examine
from hanglab.harness.corpus.entries import unpack_entry
from hanglab.harness.report.explanation.explaining import explain, explain_examined
from hanglab.harness.report.explanation.parts import Exclusion, Explanation
from hanglab.harness.report.verdict_text import print_explanation
from tools.corpus.__main__ import CORPUS


def explained(name: str, folder: Path) -> Explanation:
    case = folder / "case"
    folder.mkdir(exist_ok=True)
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


def test_other_causes_of_a_slow_job_are_excluded_by_what_was_measured(tmp_path: Path) -> None:
    told = explained("torchrun/slow_host.fault", tmp_path)
    excluded = {one.causes: one.why for one in told.excluded}
    compute = excluded[("slow_compute",)]
    assert re.fullmatch(
        r"rank 1 used a processor for work of its own \d+% of the time, its peer \d+%", compute
    )
    assert "waited for input 0% of the time" in excluded[("slow_input",)]
    told = explained("torchrun/slow_input.fault", tmp_path / "other")
    assert not any({"slow_input", "input_starved"} & {*one.causes} for one in told.excluded)


def test_places_that_were_not_on_the_stack_are_one_line(tmp_path: Path) -> None:
    told = explained("local/busy_loop.fault", tmp_path)
    assert (
        Exclusion(
            ("loader_stuck", "teardown", "group_creation"),
            "the stack of rank 2 shows no function that these are known by",
        )
        in told.excluded
    )


def test_consequences_are_told_once(tmp_path: Path) -> None:
    told = explained("torchrun/fd_exhausted.fault", tmp_path)
    assert len([one for one in told.why if "a consequence" in one.text]) == 1


def test_ranks_at_one_line_of_a_failed_job_are_one_place(tmp_path: Path) -> None:
    told = explained("torchrun/crash.fault", tmp_path)
    (place,) = told.where
    assert place.ranks == (0, 1, 3)
    assert place.doing == "(rank 0 in all_reduce #11 of default_pg)"


def test_a_line_that_is_known_of_one_culprit_is_not_told_of_all(tmp_path: Path) -> None:
    (place,) = explained("torchrun/input_starved.fault", tmp_path).where
    assert place.ranks == (2,) and place.doing == "(of the others no line is known)"


def test_processes_of_a_host_are_one_sentence(tmp_path: Path) -> None:
    out = io.StringIO()
    console = Console(file=out, width=140, force_terminal=False)
    print_explanation(console, explained("torchrun/input_starved.fault", tmp_path))
    assert "Ranks 0-3 were processes 10736, 10737, 10738 and 10739 on node0." in out.getvalue()
    assert "1. ranks 0-3, each: waited" in out.getvalue()
