"""Whole verdicts on NCCL's dumps: two real hangs, and programs rendered as NCCL dumps them."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.program import Action, Program, ProgramGroup
from hanglab.analyzer.program.rendering import Style, render, to_pickle
from hanglab.analyzer.program.simulation import Run, simulate
from hanglab.analyzer.verdict import Cause, Status, Verdict

ROOT = Path(__file__).resolve().parents[2]
MEGATRON = ROOT.parent / "shared" / "data" / "megatron-nccl"
#: Dumps of GPU runs, each folder with its truth; see the README there.
KEPT = ROOT / "tests" / "data" / "nccl"
WORLD = ProgramGroup("0", (0, 1, 2, 3), "default_pg")


def dumped(run: Run, folder: Path, style: Style) -> Verdict:
    for rank in range(run.program.world_size):
        (folder / f"rank_{rank}").write_bytes(to_pickle(render(run, rank, style)))
    return analyze(folder)


def steps(count: int, numel: int = 64) -> list[Action]:
    body = (
        Action("all_reduce", 0, site=10, numel=numel, overlap=True),
        Action("broadcast", 0, site=11, numel=4, root=0, joins=True),
    )
    return [action for _ in range(count) for action in body]


STYLES = [Style(), Style(version="2.4"), Style(active_only=True), Style(ring=6, timing=True)]


@pytest.mark.parametrize("style", STYLES, ids=["whole", "2.4", "active only", "short ring"])
def test_a_size_that_differs_hangs_and_is_named(style: Style, tmp_path: Path) -> None:
    odd = steps(4)
    odd[4] = Action("all_reduce", 0, site=10, numel=1 << 20, overlap=True)
    program = Program((WORLD,), (tuple(steps(4)), tuple(odd), tuple(steps(4)), tuple(steps(4))))
    run = simulate(program, "nccl")
    assert run.stuck
    verdict = dumped(run, tmp_path, style)
    assert (verdict.status, verdict.cause) == (Status.HUNG, Cause.SIZE_MISMATCH)
    assert verdict.culprits == [1]


@pytest.mark.parametrize("style", STYLES, ids=["whole", "2.4", "active only", "short ring"])
def test_a_rank_that_stays_away_is_named(style: Style, tmp_path: Path) -> None:
    program = Program((WORLD,), tuple(tuple(steps(4)) for _ in range(4)))
    verdict = dumped(simulate(program, "nccl", stops={2: 4}), tmp_path, style)
    assert (verdict.status, verdict.cause) == (Status.HUNG, Cause.MISSING_RANK)
    assert verdict.culprits == [2]


def test_communicators_in_opposite_order_are_a_cycle(tmp_path: Path) -> None:
    """By one line, in a loop over the groups: by lines of their own it is one call too many."""
    groups = (ProgramGroup("0", (0, 1), "expert"), ProgramGroup("1", (0, 1), "data"))
    one = Action("all_reduce", 0, site=10, numel=8)
    other = Action("all_reduce", 1, site=10, numel=8)
    usual = [one, other] * 4
    crossed = [one, other, one, other, other, one, one, other]
    run = simulate(Program(groups, (tuple(usual), tuple(crossed))), "nccl")
    assert run.stuck
    verdict = dumped(run, tmp_path, Style())
    assert (verdict.status, verdict.cause) == (Status.HUNG, Cause.GROUP_ORDER)
    assert 1 in verdict.culprits


def test_a_device_that_stopped_accuses_nobody_else(tmp_path: Path) -> None:
    """A kernel that spins: everybody has launched the same, only that device ends nothing."""
    program = Program((WORLD,), tuple(tuple(steps(4)) for _ in range(4)))
    verdict = dumped(simulate(program, "nccl", device_stops={1: 4}), tmp_path, Style())
    assert verdict.status in (Status.HUNG, Status.INCONCLUSIVE)
    assert set(verdict.culprits) <= {1}


@pytest.mark.skipif(not MEGATRON.is_dir(), reason=f"the real dumps are not there: {MEGATRON}")
@pytest.mark.parametrize("hang", ["lock_gil_2nd", "gpu_error_2nd"])
def test_real_hangs_of_sixteen_ranks(hang: str) -> None:
    truth = json.loads((MEGATRON / "truth.json").read_bytes())[hang]
    verdict = analyze(MEGATRON / hang)
    assert (verdict.status, verdict.cause) == (Status.HUNG, Cause.MISSING_RANK)
    assert verdict.culprits == sorted(truth["culprits"])
    assert not set(verdict.victims) & set(verdict.culprits)


def kept() -> list[Path]:
    return sorted(path.parent for path in KEPT.glob("*/truth.json"))


@pytest.mark.skipif(
    not kept(), reason=f"no dumps of GPU runs are kept yet; {KEPT}/README.md says how"
)
@pytest.mark.parametrize("case", kept() or [KEPT], ids=lambda path: path.name)
def test_kept_dumps_of_gpu_runs(case: Path, tmp_path: Path) -> None:
    truth = json.loads((case / "truth.json").read_bytes())["expected"]
    with tarfile.open(case / "case.tar.gz") as archive:
        archive.extractall(tmp_path)
    verdict = analyze(tmp_path / "case")
    assert verdict.status.value == truth["status"]
    if "cause" in truth:
        assert verdict.cause is not None
        assert verdict.cause.value == truth["cause"]
        assert verdict.culprits == truth["culprits"]
