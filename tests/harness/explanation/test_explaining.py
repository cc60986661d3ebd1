"""Explanations of entries of the corpus, part by part."""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Sequence
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
    assert "waited for its data loaders 0% of the time" in excluded[("slow_input",)]
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


def folder_of(folder: Path, ranks: Sequence[Sequence[tuple[str, str, int]]]) -> Path:
    """Dumps of two groups of all ranks: operation, group and number; the last is unfinished."""
    members = str([*range(len(ranks))])
    for rank, calls in enumerate(ranks):
        entries = [
            {
                "record_id": at, "pg_id": int(group), "process_group": (group, "same"),
                "collective_seq_id": 0 if "->" in op or "<-" in op else seq,
                "p2p_seq_id": seq if "->" in op or "<-" in op else 0, "op_id": at,
                "profiling_name": f"nccl:{op}", "time_created_ns": 1_000_000_000 + at,
                "input_sizes": [[4]], "input_dtypes": ["Float"], "output_sizes": [[4]],
                "output_dtypes": ["Float"], "is_p2p": "->" in op or "<-" in op,
                "state": "completed" if at < len(calls) - 1 else "scheduled",
                "retired": at < len(calls) - 1, "timeout_ms": 600_000,
                "time_discovered_started_ns": None, "time_discovered_completed_ns": None,
            }
            for at, (op, group, seq) in enumerate(calls)
        ]  # fmt: skip
        config = {name: {"name": name, "desc": "same", "ranks": members} for name in ("1", "2")}
        dump = {"version": "2.10", "pg_config": config, "entries": entries}
        (folder / f"rank_{rank}").write_bytes(pickle.dumps(dump))
    return folder


def test_groups_in_opposite_order_are_no_ring_that_is_excluded(tmp_path: Path) -> None:
    """Whatever it is called: rank 1 waits in one group for those who wait for it in the other."""
    rounds = [("all_reduce", group, seq) for seq in range(1, 9) for group in ("1", "2")]
    usual, odd = [*rounds, ("all_reduce", "1", 9)], [*rounds, ("all_reduce", "2", 9)]
    folder = folder_of(tmp_path, [usual, odd, usual])
    told = explain_examined(examine(folder), folder)
    assert told.culprits == (1,)
    assert not any("group_order" in one.causes for one in told.excluded)


def test_two_that_miss_each_other_are_told_by_what(tmp_path: Path) -> None:
    both = [("all_reduce", group, 1) for group in ("1", "2")]
    calls = [[*both, ("send 0->1", "1", 1)], [*both, ("recv 1<-0", "2", 1)]]
    folder = folder_of(tmp_path, calls)
    told = explain_examined(examine(folder), folder)
    assert told.headline.startswith("Ranks 0 and 1 send and receive past each other, by groups 1")
