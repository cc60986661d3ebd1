"""Answers of the emulated device's RAS service, and what recorder and analyzer make of them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from emulated_support import Run
from installed import needs_torch

#: The device of rank 1 fails, and the job is told to overlook it: its host waits elsewhere.
SCRIPT = """
import os
os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
import torch
import torch.distributed as dist
from hanglab.harness.nccl_emulated.control import Order, give_order
dist.init_process_group("nccl")
beside = dist.new_group(backend="gloo")
tensor = torch.ones(4, device="cuda")
for step in range(5):
    dist.all_reduce(tensor)
print(tensor[0].item())
if dist.get_rank() == 1:
    give_order(os.getpid(), Order.FAIL, 0.0, "CUDA error: an illegal memory access was encountered")
work = dist.all_reduce(tensor, async_op=True)
if dist.get_rank() == 0:
    work.wait()
    print(tensor[0].item())
dist.barrier(beside)
"""


@pytest.fixture
def port() -> Iterator[int]:
    """A port that nobody else is given; who listens at it shares it as NCCL's processes do."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@needs_torch
def test_ras_tells_what_each_member_has_come_to(run_ranks: Run, port: int) -> None:
    ended = run_ranks(
        "ras.py",
        "answers",
        4,
        NCCL_RAS_ADDR=f"127.0.0.1:{port}",
        TORCH_NCCL_ASYNC_ERROR_HANDLING="0",
    )
    document = ended[0].told["document"]
    assert document["nccl_version"] == "emulated by hanglab"
    (communicator,) = document["communicators"]
    assert (communicator["size"], communicator["ranks_count"]) == (4, 3)
    by_rank = {member["rank"]: member for member in communicator["ranks"]}
    assert {rank: one["status"]["async_error"] for rank, one in by_rank.items()} == {
        0: 0,
        1: 0,
        2: 1,
    }
    assert [rank for rank, one in by_rank.items() if one["status"]["abort_flag"]] == [1]
    # One of them connects, three are the program's; a barrier is one as well.
    ours = by_rank[0]["collective_counts"]
    assert (ours["AllReduce"], ours["Broadcast"], ours["ReduceScatter"]) == (5, 1, 0)
    assert by_rank[2]["collective_counts"]["AllReduce"] == ours["AllReduce"] + 1
    (left,) = communicator["missing_ranks"]
    assert (left["rank"], left["status"]) == (3, {"unresponsive": False, "considered_dead": False})


@needs_torch
def test_ras_answers_line_by_line_as_nccl_does() -> None:
    from hanglab.harness.nccl_emulated.ras import answer, in_words

    assert [
        answer(said)
        for said in (
            "CLIENT PROTOCOL 7", "TIMEOUT 1", "timeout x", "SET FORMAT json", "SET FORMAT x", "x",
        )
    ] == [
        "SERVER PROTOCOL 2", "OK", "ERROR: Invalid timeout value x", "OK",
        "ERROR: Invalid format x", "ERROR: Unknown command x",
    ]  # fmt: skip
    text = in_words({"nccl_version": "emulated by hanglab", "communicators": []})
    assert text.startswith("NCCL version emulated by hanglab compiled with CUDA")


@needs_torch
def test_a_device_whose_error_nobody_wrote_down_is_named_by_ras(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "hanglab.harness.cli"]
    subprocess.run(
        [*command, "run", "train.py", "--backend", "nccl-emulated", "--world-size", "3",
         "--hang-after", "2", "--json"],
        cwd=tmp_path, capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    case = next((tmp_path / "runs" / "latest").glob("train/fault/*/case"))
    for stderr in case.glob("hosts/*/ranks/*/stderr.txt"):
        stderr.write_text("")
    read = subprocess.run(
        [*command, "analyze", str(case), "--json"], capture_output=True, text=True, timeout=600
    )
    verdict: dict[str, Any] = json.loads(read.stdout)
    assert (verdict["cause"], verdict["culprits"]) == ("gpu_fault", [1])
    assert any(one["source"] == "nccl_ras" for one in verdict["evidence"])
    assert any("The device was emulated" in one["detail"] for one in verdict["evidence"])
