"""Jobs of unmodified frameworks: those that hang get the right verdict, slow ones no false one."""

from __future__ import annotations

from pathlib import Path

import pytest
from frameworks_support import Start, line_seen, needs, record

HUGGING_FACE = needs("transformers", "accelerate")
LIGHTNING = needs("lightning")
long = pytest.mark.long


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "odd", "start", "cause", "culprit"),
    [
        ("ddp", "skip_backward", "torchrun", "skipped_collective", 1),
        pytest.param("fsdp2", "eval_on_rank0", "spawn", "collective_mismatch", 0, marks=long),
        pytest.param("tensor_parallel", "leave_loop", "torchrun", "uneven_inputs", 1, marks=long),
        pytest.param(
            *("hf_trainer", "evaluate_on_rank0", "torchrun", "collective_mismatch", 0),
            marks=[HUGGING_FACE, long],
        ),
        pytest.param(
            *("lightning", "log_on_rank1", "spawn", "collective_mismatch", 1),
            marks=[LIGHTNING, long],
        ),
        pytest.param("ddp", "early_break", "spawn", "uneven_inputs", 1, marks=long),
        pytest.param("ddp", "early_break_metric", "torchrun", "uneven_inputs", 1, marks=long),
        pytest.param("fsdp2", "eval_on_rank0", "torchrun", "collective_mismatch", 0, marks=long),
        pytest.param(
            "tensor_parallel", "skip_module", "spawn", "skipped_collective", 1, marks=long
        ),
        pytest.param(
            *("hf_trainer", "barrier_on_rank0", "spawn", "collective_mismatch", 0),
            marks=[HUGGING_FACE, long],
        ),
        pytest.param(
            *("hf_trainer", "uneven_data", "torchrun", "uneven_inputs", 1),
            marks=[HUGGING_FACE, long],
        ),
        pytest.param(
            *("lightning", "save_on_rank0", "torchrun", "collective_mismatch", 0),
            marks=[LIGHTNING, long],
        ),
    ],
)
def test_a_hang_is_explained(
    program: str, odd: str, start: Start, cause: str, culprit: int, tmp_path: Path
) -> None:
    job = record(program, odd, start, tmp_path)
    found = (job.verdict["status"], job.verdict["cause"], job.verdict["culprits"])
    assert found == ("hung", cause, [culprit]), job.output
    assert job.verdict["victims"] == [1 - culprit]
    assert job.line == line_seen(program, odd), job.verdict
    assert job.code == 124


@pytest.mark.parametrize(
    ("program", "odd", "start", "causes", "culprits"),
    [
        pytest.param("ddp", "slow_checkpoint", "spawn", {"rank0_work"}, [0], marks=long),
        pytest.param("fsdp2", "long_step", "torchrun", {None}, [], marks=long),
        pytest.param(
            "tensor_parallel", "slow_loader", "spawn", {"input_starved"}, [0, 1], marks=long
        ),
        pytest.param(
            *("hf_trainer", "slow_checkpoint", "spawn", {"rank0_work"}, [0]),
            marks=[HUGGING_FACE, long],
        ),
        pytest.param(
            *("lightning", "long_validation", "torchrun", {None}, []), marks=[LIGHTNING, long]
        ),
        pytest.param("ddp", "long_step", "torchrun", {None}, [], marks=long),
        pytest.param("ddp", "long_validation", "torchrun", {None}, [], marks=long),
        pytest.param("ddp", "slow_loader", "torchrun", {"input_starved"}, [0, 1], marks=long),
        pytest.param("fsdp2", "slow_checkpoint", "spawn", {"rank0_work"}, [0], marks=long),
        pytest.param("tensor_parallel", "long_step", "torchrun", {None}, [], marks=long),
        pytest.param("tensor_parallel", "long_validation", "torchrun", {None}, [], marks=long),
        pytest.param(
            *("hf_trainer", "slow_loader", "torchrun", {"input_starved"}, [0, 1]),
            marks=[HUGGING_FACE, long],
        ),
        pytest.param(
            *("hf_trainer", "long_validation", "spawn", {"input_starved", None}, [0, 1]),
            marks=[HUGGING_FACE, long],
        ),
        pytest.param(
            *("hf_trainer", "long_step", "torchrun", {None}, []), marks=[HUGGING_FACE, long]
        ),
        pytest.param(
            *("lightning", "slow_loader", "spawn", {"input_starved"}, [0, 1]),
            marks=[LIGHTNING, long],
        ),
        pytest.param(
            *("lightning", "slow_checkpoint", "torchrun", {"rank0_work"}, [0]),
            marks=[LIGHTNING, long],
        ),
        pytest.param("lightning", "long_step", "spawn", {None}, [], marks=[LIGHTNING, long]),
    ],
)
def test_slow_is_not_hung(
    program: str,
    odd: str,
    start: Start,
    causes: set[str | None],
    culprits: list[int],
    tmp_path: Path,
) -> None:
    job = record(program, odd, start, tmp_path)
    assert job.code == 0, job.output
    assert job.verdict["cause"] in causes, job.output
    if job.verdict["cause"] is None:
        assert job.verdict["status"] == "healthy"
    else:
        assert job.verdict["status"] == "slow"
        assert job.verdict["culprits"] == culprits
