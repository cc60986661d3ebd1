"""What torch dumps by itself reaches the Case.

torch writes such files on NCCL alone, so a rank does here what its watchdog does
there: the bytes are torch's own, written under the name that torch was told.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from hanglab.harness.jobs.plan import Options, requests_of, script_scenario
from hanglab.harness.jobs.run import run
from hanglab.harness.jobs.run_folder import JobFolder
from hanglab.harness.launchers.local import LocalLauncher

TRAIN = """
import os, time
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(4))
if dist.get_rank() == 1:
    with open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + "1", "wb") as file:
        file.write(_dump_fr_trace(True, False, False))
while True:
    dist.all_reduce(torch.ones(4))
    time.sleep(0.01)
"""


@pytest.mark.slow
def test_a_dump_at_a_timeout_is_a_reason_to_capture(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    options = Options(world_size=2, hang_after_s=60.0, deadline_s=60.0)
    request = requests_of(script_scenario(script, options), options)[0]
    folder = JobFolder(tmp_path / "job")
    folder.log.mkdir(parents=True)
    folder.case.mkdir()
    launcher = LocalLauncher()
    try:
        result = run(request, folder, launcher, threading.Event())
    finally:
        launcher.close()
    assert result.verdict is not None, result.detail
    trigger = json.loads((folder.case / "job.json").read_bytes())["trigger"]
    assert trigger["kind"] == "timeout_dump"
