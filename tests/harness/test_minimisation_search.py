"""The search goes by what real runs say, and takes more of the job where they refuse the least."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from installed import needs_torch

from hanglab.analyzer.hang_similarity import KeptVerdict, SimilarityTest
from hanglab.analyzer.program import Action, Program, ProgramGroup
from hanglab.analyzer.program.reduced_program import ReducedProgram, whole
from hanglab.analyzer.verdict import Cause
from hanglab.harness.jobs.run_folder import RunFolder
from hanglab.harness.launchers.selection import Launchers
from hanglab.harness.minimisation.confirmation import Confirmer, VerdictAgreement
from hanglab.harness.minimisation.reproduction import Reproduction
from hanglab.harness.minimisation.search import HangLost, Search
from hanglab.harness.report.minimisation_progress import MinimisationProgress
from hanglab.harness.report.panel import make_console

pytestmark = pytest.mark.usefixtures("kept_launcher")

BLAME = KeptVerdict(Cause.DTYPE_MISMATCH, frozenset({1}))


def start(odd: str, calls: int) -> ReducedProgram:
    """Reductions by three ranks, of which rank 1 gives the last one another dtype.

    A simulation stops at any other; on gloo, which compares bytes, one of as many does no harm.
    """
    call = Action("all_reduce", 0, site=1)
    mine = (call,) * (calls - 1)
    groups = (ProgramGroup("0", (0, 1, 2), "default_pg"),)
    odd_one = replace(call, dtype=odd)
    return whole(Program(groups, ((*mine, call), (*mine, odd_one), (*mine, call))))


@pytest.fixture
def confirmer(tmp_path: Path) -> Iterator[Confirmer]:
    launchers = Launchers()
    try:
        yield Confirmer(
            BLAME,
            (),
            {},
            Reproduction(start("Double", 1), (), 3, 3, BLAME.cause, BLAME.culprits),
            RunFolder.create(tmp_path),
            launchers,
            threading.Event(),
            MinimisationProgress(make_console(errors=True), 9),
            60.0,
        )
    finally:
        launchers.close()


def search(confirmer: Confirmer) -> Search:
    return Search(SimilarityTest(BLAME, cause=True), confirmer, lambda what, reduced: None)


@pytest.mark.long
@needs_torch
def test_more_of_the_job_is_taken_where_real_runs_refuse_the_least(confirmer: Confirmer) -> None:
    found = search(confirmer).run(iter([start("Int", 1), start("Double", 2)]))
    assert found.agreement is VerdictAgreement.EXACT
    actions = found.reproduction.reduced.program.actions
    assert [[action.dtype for action in mine] for mine in actions] == [
        ["Float"],
        ["Double"],
        ["Float"],
    ]
    # The first was run and refused.
    assert confirmer.runs > 1


@pytest.mark.slow
@needs_torch
def test_it_is_lost_where_they_refuse_all(confirmer: Confirmer) -> None:
    with pytest.raises(HangLost):
        search(confirmer).run(iter([start("Int", 1)]))
    assert confirmer.runs >= 1
