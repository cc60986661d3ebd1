"""Stages of the decision: they stand in the catalogue, and no detector knows them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from hanglab.analyzer import causes, fallback
from hanglab.analyzer.catalogue import Cause, Stage
from hanglab.analyzer.proposal import Proposal
from hanglab.analyzer.verdict import Finding, Status

FILES = sorted(Path(causes.__path__[0]).rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_detector_names_a_stage(file: Path) -> None:
    tree = ast.parse(file.read_text())
    named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    read = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not {"Stage", "stage"} & (named | read)


def test_what_is_said_where_nothing_is_proved_names_no_cause() -> None:
    """A suspicion of a cause is told by that cause's own module."""
    tree = ast.parse(Path(str(fallback.__file__)).read_text())
    assert "Cause" not in {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _proposal(cause: Cause, culprits: list[int], status: Status, *, on_record: bool) -> Proposal:
    finding = Finding(
        status=status,
        category=cause.category,
        cause=cause,
        culprits=culprits,
        victims=[],
        collective=None,
        location=None,
        confidence=0.9,
        summary="",
        evidence=[],
        advice=cause.advice,
    )
    return Proposal(finding, failure_on_record=on_record)


@pytest.mark.parametrize(
    ("cause", "culprits", "status", "on_record", "stage"),
    [
        (Cause.MISSING_RANK, [1], Status.HUNG, False, Stage.OUTSIDE),
        (Cause.MISSING_RANK, [1], Status.FAILED, True, Stage.EXIT),
        (Cause.SPLIT_MISMATCH, [1], Status.HUNG, False, Stage.DIVERGENCE),
        (Cause.SPLIT_MISMATCH, [1], Status.CORRUPT, False, Stage.CORRUPT),
        (Cause.RANK0_WORK, [0], Status.SLOW, False, Stage.SLOW),
        (Cause.GPU_FAULT, [1], Status.HUNG, False, Stage.STALLED),
        (Cause.SIZE_MISMATCH, [], Status.HUNG, False, Stage.STALLED),
    ],
)
def test_a_stage_is_that_of_the_cause_unless_the_proposal_has_its_own(
    cause: Cause, culprits: list[int], status: Status, on_record: bool, stage: Stage
) -> None:
    assert _proposal(cause, culprits, status, on_record=on_record).stage is stage
