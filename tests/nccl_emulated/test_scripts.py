"""Scripts that were written for NCCL, under ``hanglab run --backend nccl-emulated``."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from installed import needs_torch

SCRIPT = """
import os, sys
import torch
import torch.distributed as dist
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("cpu:gloo,cuda:nccl")
model = torch.nn.Linear(4, 2).cuda()
loss = model(torch.ones(3, 4, device="cuda")).sum()
loss.backward()
for parameter in model.parameters():
    dist.all_reduce(parameter.grad)
torch.cuda.synchronize()
tensor = torch.full((2,), rank + 1.0, device=f"cuda:{rank}")
dist.all_reduce(tensor)
print(torch.cuda.device_count(), torch.cuda.current_device(), tensor.tolist(), dist.get_backend())
print(model.bias.grad.tolist())
if rank == 1:
    sys.stdin.close()
    import threading
    threading.Event().wait()
dist.all_reduce(tensor)
tensor.sum().item()
"""


def _run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hanglab.harness.cli", "run", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280)


@needs_torch
@pytest.mark.parametrize("launcher", ["local", pytest.param("torchrun", marks=pytest.mark.long)])
def test_a_script_for_nccl_runs_and_is_recorded(tmp_path: Path, launcher: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    ran = _run(
        tmp_path, "train.py", "--backend", "nccl-emulated", "--world-size", "2", "--launcher",
        launcher, "--hang-after", "2", "--json",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    verdict = json.loads(ran.stdout)
    assert (verdict["status"], verdict["culprits"]) == ("hung", [1])
    assert any("The device was emulated" in one["detail"] for one in verdict["evidence"])
    job = next((tmp_path / "runs" / "latest").glob("train/fault/*"))
    said = "".join(path.read_text() for path in sorted(job.rglob("*rank*out*")) if path.is_file())
    said += "".join(path.read_text() for path in job.rglob("stdout.log"))
    for rank in range(2):
        assert f"2 {rank} [3.0, 3.0] nccl_emulated" in said
    assert "[6.0, 6.0]" in said
    ranks = next(job.glob("case/hosts/*/ranks"))
    groups = json.loads((ranks / "0.0" / "groups.json").read_text())
    assert [group["backend"] for group in groups] == ["nccl_emulated"]
    dump = pickle.loads((ranks / "0.0" / "flight_recorder_stacks.pickle").read_bytes())
    assert [entry["state"] for entry in dump["entries"]][-2:] == ["completed", "started"]
    assert "become 'nccl_emulated' for all tensors" in (ranks / "0.0" / "stderr.txt").read_text()


def test_a_backend_misspelt_is_told_in_one_sentence(tmp_path: Path) -> None:
    ran = _run(tmp_path, "--backend", "nccl_emulatd")
    assert ran.returncode == 64
    assert "'nccl_emulatd' is not one of gloo, nccl, nccl-emulated." in ran.stderr


@pytest.mark.long
@needs_torch
@pytest.mark.parametrize("command", ["run", "record"])
@pytest.mark.parametrize(
    "line",
    [
        'dist.init_process_group("nccl_emulated")',
        pytest.param('torch.ones(2, device="cuda")', marks=pytest.mark.long),
        pytest.param('dist.init_process_group("nccl")', marks=pytest.mark.long),
    ],
)
def test_a_script_that_wants_what_is_not_there_is_told_of_the_emulation(
    tmp_path: Path, command: str, line: str
) -> None:
    if torch_sees_a_gpu():
        pytest.skip("there is a GPU")
    (tmp_path / "train.py").write_text(f"import torch\nimport torch.distributed as dist\n{line}\n")
    words = ["run", "train.py", "--world-size", "1"]
    if command == "record":
        words = ["record", "--", sys.executable, "train.py"]
    environment = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    ran = subprocess.run(
        [sys.executable, "-m", "hanglab.harness.cli", *words],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ran.stderr.count("`hanglab run SCRIPT --backend nccl-emulated` runs scripts for") == 1


def torch_sees_a_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
