"""Several backends in one run: which scenario runs where, and how its results are told."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from installed import needs_torch

from hanglab.harness.errors import UsageError
from hanglab.harness.jobs.backend_choice import read_backends
from hanglab.harness.jobs.backend_plan import plan_on_backends
from hanglab.harness.jobs.plan import Options
from hanglab.harness.scenarios.discovery import read_project, select

BOTH = ("gloo", "nccl-emulated")
#: Of both backends, of the emulated one alone, and of gloo alone.
NAMES = ["crash", "item_on_one_branch", "file_lock"]


@pytest.mark.parametrize(
    ("given", "backends"),
    [
        ("gloo", ("gloo",)),
        ("nccl-emulated, gloo,gloo", ("nccl-emulated", "gloo")),
        ("nccl_emulated", ("nccl-emulated",)),
    ],
)
def test_a_list_names_backends_once_each(given: str, backends: tuple[str, ...]) -> None:
    assert read_backends(given) == backends


@pytest.mark.parametrize(
    ("given", "complaint", "advice"),
    [
        ("gloo,nccl_emulatd", "'nccl_emulatd' is not one of gloo, nccl, ", "nccl-emulated?"),
        ("mpi", "'mpi' is not one of", "Name one that is there."),
        (",", "No backend was named", "Name one that is there."),
    ],
)
def test_what_is_no_backend_is_told(given: str, complaint: str, advice: str) -> None:
    with pytest.raises(UsageError, match=complaint) as told:
        read_backends(given)
    assert told.value.advice.endswith(advice)


def _planned(backends: Sequence[str], *, first: bool = False) -> set[tuple[str, str]]:
    requests, settled = plan_on_backends(read_project(), Options(), backends, first=first)
    asked = [*requests, *(one.request for one in settled if one.request)]
    return {(request.scenario.name, request.backend) for request in asked}


def test_each_scenario_is_planned_on_every_backend_that_it_is_for() -> None:
    known = read_project().scenarios
    declared = {(one.name, backend) for one in known for backend in BOTH if backend in one.backends}
    assert _planned(BOTH) == declared


def test_the_first_backend_takes_what_it_can_and_the_next_one_the_rest() -> None:
    """What `make run` runs: all that there is, nothing twice."""
    planned = _planned(BOTH, first=True)
    known = {one.name: one.backends for one in read_project().scenarios}
    assert sorted(name for name, _ in planned) == sorted(known)
    assert {name for name, backend in planned if backend == "gloo"} == {
        name for name, backends in known.items() if "gloo" in backends
    }


def test_a_scenario_that_is_for_none_of_them_is_skipped_once() -> None:
    _, settled = plan_on_backends(select(["device_stopped"]), Options(), ("gloo", "nccl"))
    assert [(one.request.variant, one.judgement.reason) for one in settled if one.request] == [
        ("fault", "runs on nccl-emulated only"),
        ("control", "runs on nccl-emulated only"),
    ]


@pytest.mark.slow
@needs_torch
def test_results_are_told_by_backend(tmp_path: Path) -> None:
    options = ["--backend", "gloo,nccl_emulated", "--jobs", "2"]
    ran = subprocess.run(
        [sys.executable, "-m", "hanglab.harness.cli", "run", *NAMES, *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "skipped" not in ran.stdout
    assert "gloo: 4 jobs: 4 pass" in ran.stdout
    assert "nccl-emulated: 4 jobs: 4 pass" in ran.stdout
    folder = tmp_path / "runs" / "latest"
    content = json.loads((folder / "results.json").read_text())
    assert content["counts"] == {"gloo": {"pass": 4}, "nccl-emulated": {"pass": 4}}
    jobs = {(one["scenario"], one["variant"], one["backend"]) for one in content["results"]}
    assert jobs == {
        (name, variant, backend)
        for variant in ("fault", "control")
        for name, backend in [
            *(("crash", backend) for backend in BOTH),
            ("file_lock", "gloo"),
            ("item_on_one_branch", "nccl-emulated"),
        ]
    }
    for backend in BOTH:
        part = json.loads((folder / backend / "results.json").read_text())
        assert part["backend"] == backend
        assert part["results"] == [one for one in content["results"] if one["backend"] == backend]
        assert (folder / backend / "crash" / "fault" / "0" / "case").is_dir()


def test_a_plain_script_runs_on_one_backend(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('never run')\n")
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "hanglab.harness.cli",
            "run",
            "train.py",
            "--backend",
            ",".join(BOTH),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ran.returncode == 64
    assert "A plain script runs once, and not on each of gloo, nccl-emulated." in ran.stderr
