"""nvidia-resiliency-ext as a peer: asked where it is installed, named where it is not.

Where no wheel of it can be installed (it asks for glibc 2.39), its attribution, which is Python
alone, runs out of an unpacked one: ``PYTHONPATH=WHEEL pytest tests/evaluation``.
"""

from __future__ import annotations

import pickle
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from hanglab.analyzer.program.job_dumps import JobOptions, SimulatedJob, write_dump
from hanglab.harness.cli import main
from hanglab.harness.errors import MissingExtra
from hanglab.harness.evaluation.peers.resiliency_ext import ResiliencyExt, answer_in

MEGATRON = Path(__file__).resolve().parents[3] / "shared" / "data" / "megatron-nccl"
needs_package = pytest.mark.skipif(
    find_spec("nvidia_resiliency_ext") is None,
    reason="pip install 'nvidia-resiliency-ext>=0.6' (its wheels ask for glibc 2.39)",
)

#: Printed by 0.6.0 for a job of 16 ranks, of which 10 and 15 had stopped.
TABLE = """\
PGID   | Process Group Desc        | Op Type    | Size        | Dtype    | Missing Ranks
73     | EXPERT_MODEL_PARALLEL_GROUP,0 | nccl:all_to_all | 4096x5120     | BFloat16 | 10
74     | EXPERT_MODEL_PARALLEL_GROUP,0 | nccl:all_to_all | 4096x5120     | BFloat16 | 15
90     | EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP,0 | nccl:_all_gather_base | 16   | Long | 9,14
"""


def test_ranks_of_all_rows_are_its_answer() -> None:
    answer = answer_in(TABLE)
    assert (answer.status, answer.cause, answer.culprits) == (
        "hung",
        "missing_rank",
        [9, 10, 14, 15],
    )
    assert answer.summary.endswith(
        "from EXPERT_MODEL_PARALLEL_GROUP,0, EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP,0"
    )
    assert answer_in("").status == "healthy"
    # A table of those who completed something accuses nobody.
    assert answer_in(TABLE.replace("Missing", "Completed")).status == "healthy"


def test_where_it_is_missing_one_sentence_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "nvidia_resiliency_ext"
    if find_spec("nvidia_resiliency_ext") is None:
        assert main(["eval", "--peer", "nvidia-resiliency-ext", "--simulated", "1"]) == 4
        told = capsys.readouterr().err
        assert "nvidia-resiliency-ext is not installed" in told and "pip install" in told
    # A release that cannot be asked comes first on the path.
    source = package / "attribution" / "trace_analyzer" / "fr_attribution.py"
    source.parent.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('not to be imported')")
    with pytest.raises(MissingExtra, match="no attribution of dumps"):
        ResiliencyExt()
    source.write_text("parser.add_argument('--emit-stdout')")
    assert ResiliencyExt().name == "nvidia-resiliency-ext"


def test_code_in_a_dump_is_kept_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ResiliencyExt, "__post_init__", lambda self: None)
    (tmp_path / "rank_0").write_bytes(pickle.dumps(print))
    refused = ResiliencyExt().conclude(tmp_path).refused
    assert refused is not None and "holds code" in refused


@needs_package
def test_it_names_who_stopped_in_a_simulated_job(tmp_path: Path) -> None:
    job = SimulatedJob(JobOptions(8, "world", "stop", operations=40))
    for rank, data in job.dumps():
        write_dump(tmp_path, rank, data, job.written_ns(rank))
    answer = ResiliencyExt().conclude(tmp_path)
    assert (answer.status, answer.culprits) == ("hung", job.truth.culprits), answer


@needs_package
@pytest.mark.skipif(
    not MEGATRON.is_dir(), reason=f"put the dumps of the Megatron hangs there: {MEGATRON}"
)
@pytest.mark.parametrize("job", ["gpu_error_2nd", "lock_gil_2nd"])
def test_it_names_who_stopped_in_real_jobs(job: str) -> None:
    truth = msgspec.json.decode((MEGATRON / "truth.json").read_bytes())[job]
    assert ResiliencyExt().conclude(MEGATRON / job).culprits == truth["culprits"]
