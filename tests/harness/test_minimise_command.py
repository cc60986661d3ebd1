"""``hanglab minimise``: what it writes hangs for real as the job did, and its control ends well."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from conditions import wait_for
from dump_folders import dumps, ends_on_gloo
from installed import needs_torch

from hanglab.analyzer.program.job_dumps import JobOptions
from hanglab.analyzer.replayable import read_replayable
from hanglab.harness.capabilities import capability
from hanglab.harness.cli import main
from hanglab.harness.jobs.run_folder import RunFolder
from hanglab.harness.minimisation.minimiser import Minimiser
from hanglab.harness.minimisation.output_files import OutputFiles

pytestmark = pytest.mark.usefixtures("kept_launcher")

MEGATRON = Path(__file__).resolve().parents[3] / "shared" / "data" / "megatron-nccl"
SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios" / "synchronization"
#: Those of other categories, and those that need NCCL, are left out.
ON_GLOO = (
    "any_source_knot",
    "any_source_unsent",
    "collective_mismatch",
    "dtype_mismatch",
    "group_creation",
    "group_order",
    "halo_wrong_neighbour",
    "missing_rank",
    "next_bucket",
    "p2p_deadlock",
    "p2p_unmatched",
    "reduction_mismatch",
    "root_mismatch",
    "size_mismatch",
    "skipped_collective",
    "split_mismatch",
    "uneven_inputs",
    "wrong_group",
    # What tells these are groups that ranks make, places at which they stand, and their threads.
    "actors_joined_in_turns",
    "checkpoint_in_thread",
    "checkpoint_not_seen",
    "combined_streams",
    "compile_cache_differs",
    "hidden_in_allocation",
    "own_clock_timeout",
)
HANGLAB = (sys.executable, "-m", "hanglab.harness.cli")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs go below the folder that the command is called in."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.slow
@needs_torch
def test_a_job_shrinks_to_a_script_and_a_scenario_that_run_confirms(
    tmp_path: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = dumps(tmp_path / "dumps", JobOptions(8, "fsdp", "dtype", operations=60, seed=3))
    assert main(["minimise", str(job), "-o", "repro.py"]) == 0
    told = capsys.readouterr().out
    assert "3 of 8 ranks and 1 of" in told and "dtype_mismatch by rank" in told
    script = (here / "repro.py").read_text()
    assert (
        "torchrun --nproc-per-node 3 repro.py" in script and "hanglab" not in script.split('"""')[2]
    )
    (trial,) = (here / "runs").glob("latest/scenario_0.py")
    assert (here / "repro_scenario.py").read_text() == trial.read_text()
    verdicts = (here / "runs").glob("latest/repro/*/0/verdict.json")
    found = [msgspec.json.decode(verdict.read_bytes()) for verdict in sorted(verdicts)]
    # Its control, and itself.
    assert [(one["status"], one["cause"]) for one in found] == [
        ("healthy", None),
        ("failed", "dtype_mismatch"),
    ]
    # Nothing is overwritten, whatever it is.
    assert main(["minimise", str(job), "-o", "repro.py"]) == 64
    (here / "other_scenario.py").write_text("mine")
    assert main(["minimise", str(job), "-o", "other.py"]) == 64
    assert "is there already" in capsys.readouterr().err
    assert (here / "other_scenario.py").read_text() == "mine"


@needs_torch
@pytest.mark.long
def test_on_the_emulated_device_it_hangs_where_gloo_ends_with_an_error(
    tmp_path: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = dumps(tmp_path / "dumps", JobOptions(4, "world", "size", operations=20, seed=2))
    assert main(["minimise", str(job), "--backend", "nccl-emulated"]) == 0
    told = capsys.readouterr().out
    assert "size_mismatch by rank" in told
    assert "hanglab run --backend nccl-emulated repro_scenario.py" in told
    script = (here / "repro.py").read_text()
    assert 'dist.init_process_group("nccl")' in script and "device=device" in script
    ranks, operations = left(here / "repro.py")
    assert ranks <= 4 and operations == 1
    verdicts = (here / "runs").glob("latest/repro/*/0/verdict.json")
    found = [msgspec.json.decode(verdict.read_bytes()) for verdict in sorted(verdicts)]
    assert [(one["status"], one["cause"]) for one in found] == [
        ("healthy", None),
        ("hung", "size_mismatch"),
    ]
    capsys.readouterr()
    # The script says how it is run by itself.
    assert main(["run", "repro.py", "--world-size", str(ranks), "--backend", "nccl-emulated"]) == 0
    assert "size_mismatch" in capsys.readouterr().out


@needs_torch
@pytest.mark.long
def test_a_host_that_waits_for_its_device_at_the_end_is_not_to_blame(
    tmp_path: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = JobOptions(8, "3d", "unmatched", operations=200, seed=5, missing=1, ring=80)
    job = dumps(tmp_path / "dumps", options)
    assert main(["minimise", str(job), "--backend", "nccl-emulated"]) == 0
    assert "p2p_unmatched by rank 4" in capsys.readouterr().out
    ranks, operations = left(here / "repro.py")
    assert ranks <= 4 and operations <= 10


def test_a_backend_that_is_not_here_is_told_with_one_that_is(
    tmp_path: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if capability("nccl").available:
        pytest.skip("NCCL runs here")
    assert main(["minimise", str(tmp_path), "--backend", "nccl"]) == 4
    told = capsys.readouterr().err
    assert "needs nccl" in told and "--backend nccl-emulated" in told
    assert main(["minimise", str(tmp_path), "--backend", "mpi"]) == 64
    assert list(here.iterdir()) == []


@needs_torch
@pytest.mark.long
def test_a_hang_that_gloo_does_not_have_is_lost_in_one_sentence(
    tmp_path: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["minimise", str(ends_on_gloo(tmp_path / "dumps"))]) == 3
    told = capsys.readouterr().err
    assert "hanglab: The calls of this job do not hang for the same reason" in told
    assert "`hanglab replay`" in told and "Traceback" not in told
    assert not (here / "repro.py").exists() and not (here / "repro_scenario.py").exists()


@needs_torch
def test_what_cannot_be_minimised_is_told_in_one_sentence(
    tmp_path: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    healthy = dumps(tmp_path / "dumps", JobOptions(4, "world", "none", operations=20, missing=1))
    assert main(["minimise", str(healthy)]) == 2
    assert "there is no hang" in capsys.readouterr().err
    assert main(["minimise", str(tmp_path / "nowhere")]) == 4
    assert main(["minimise", str(healthy), "-o", "repro.txt"]) == 64
    assert main(["minimise", str(healthy), "-o", "nowhere/repro.py"]) == 64
    assert main(["minimise"]) == 64
    assert list(here.iterdir()) == []


@pytest.fixture
def minimising(tmp_path: Path, here: Path) -> Iterator[subprocess.Popen[str]]:
    job = dumps(tmp_path / "dumps", JobOptions(8, "3d", "skip", operations=60))
    process = subprocess.Popen(
        [*HANGLAB, "minimise", str(job)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@needs_torch
@pytest.mark.long
def test_ctrl_c_keeps_the_smallest_that_was_confirmed(
    minimising: subprocess.Popen[str], here: Path
) -> None:
    assert minimising.stderr is not None
    first = minimising.stderr.readline()
    assert "step_1" in first and "skipped_collective" in first
    # The second run is on its way.
    wait_for(lambda: [*here.glob("runs/*/step_2/fault/0/case/hosts")], "a second run")
    minimising.send_signal(signal.SIGINT)
    _, told = minimising.communicate(timeout=280)
    assert minimising.returncode == 130
    assert "interrupted; repro.py is the smallest that was confirmed" in told
    assert "Traceback" not in told
    compile((here / "repro.py").read_text(), "repro.py", "exec")
    assert not (here / "repro_scenario.py").exists()


@needs_torch
def test_ctrl_c_before_anything_is_confirmed_leaves_nothing(tmp_path: Path, here: Path) -> None:
    job = dumps(tmp_path / "dumps", JobOptions(4, "world", "skip", operations=20))
    stop = threading.Event()
    stop.set()
    minimiser = Minimiser(
        read_replayable(job), OutputFiles(Path("repro.py")), lambda: RunFolder(here), stop, 10.0
    )
    assert minimiser.run() == 130
    assert minimiser.found is None and list(minimiser.sentences()) == []
    assert list(here.iterdir()) == []


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of all scenarios, each with its fault."""
    folder = tmp_path_factory.mktemp("cases")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        names = [str(SCENARIOS / f"{name}.py") for name in ON_GLOO]
        assert main(["run", "--no-control", "--jobs", "2", *names]) == 0
    return folder / "runs" / "latest"


def left(script: Path) -> tuple[int, int]:
    """Ranks and operations that a script's header says are left."""
    words = script.read_text().split('"""')[1].split("`hanglab minimise` left ")[1].split()
    return int(words[0]), int(words[words.index("and") + 1])


@needs_torch
@pytest.mark.long
@pytest.mark.parametrize("name", ON_GLOO)
def test_every_scenario_shrinks_to_four_ranks_and_ten_operations(
    cases: Path, here: Path, name: str
) -> None:
    assert main(["minimise", str(cases / name / "fault" / "0"), "-o", "repro.py"]) == 0
    ranks, operations = left(here / "repro.py")
    assert ranks <= 4 and operations <= 10
    # Where ranks make other groups than their peers, leaving calls out ends no job well.
    control = ["--no-control"] if name == "actors_joined_in_turns" else []
    assert main(["run", *control, "repro_scenario.py"]) == 0


@needs_torch
@pytest.mark.parametrize(
    ("name", "call"),
    [
        pytest.param("process_frozen", "(be_stopped,)", marks=pytest.mark.long),
        pytest.param("exception", "(fail, 'ValueError', 'label 8 of", marks=pytest.mark.long),
        pytest.param("gil_held", "(hold_interpreter,)", marks=pytest.mark.long),
        pytest.param("loader_stuck", "(wait_for_loader,)", marks=pytest.mark.long),
        pytest.param("fork_deadlock", "(fork_with_lock,)", marks=pytest.mark.long),
    ],
)
def test_a_script_ends_its_culprit_as_the_job_did(here: Path, name: str, call: str) -> None:
    assert main(["run", "--no-control", name]) == 0
    case = here / "runs" / "latest" / name / "fault" / "0"
    assert main(["minimise", str(case.resolve()), "-o", "repro.py"]) == 0
    ranks, _ = left(here / "repro.py")
    assert ranks <= 4 and call in (here / "repro.py").read_text()


@needs_torch
@pytest.mark.skipif(
    not MEGATRON.is_dir(), reason=f"put the dumps of the Megatron hangs there: {MEGATRON}"
)
@pytest.mark.long
@pytest.mark.parametrize("job", ["lock_gil_2nd", "gpu_error_2nd"])
def test_a_strangers_job_of_sixteen_ranks_shrinks(here: Path, job: str) -> None:
    assert main(["minimise", str(MEGATRON / job), "-o", "repro.py"]) == 0
    ranks, operations = left(here / "repro.py")
    assert ranks <= 4 and operations <= 10
    assert main(["run", "repro_scenario.py"]) == 0


@needs_torch
@pytest.mark.long
def test_the_script_hangs_under_torchrun_alone(
    tmp_path: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verdict on it comes from ``hanglab record`` around torchrun."""
    job = dumps(tmp_path / "dumps", JobOptions(8, "hsdp", "skip", operations=60))
    assert main(["minimise", str(job)]) == 0
    ranks, _ = left(here / "repro.py")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    command = ["record", "-o", "case", "--hang-after", "5", "--then", "kill", "--"]
    assert main([*command, *torchrun, "repro.py"]) == 124
    capsys.readouterr()
    assert main(["analyze", "case", "--json"]) == 0
    assert '"skipped_collective"' in capsys.readouterr().out
