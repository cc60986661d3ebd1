"""A rank's description of itself at its start, and the part of its environment that is shown."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders, user_code

#: Names of the environment that may stand in a Case: they say how the job was
#: laid out and how communication was set up, and hold no secrets.
_ALLOWED = re.compile(
    r"(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_RANK|NODE_RANK|MASTER_PORT"
    r"|SLURM_JOB_ID|SLURM_STEP_ID|SLURM_RESTART_COUNT"
    r"|OMP_NUM_THREADS|CUDA_VISIBLE_DEVICES|CUDA_LAUNCH_BLOCKING|CUDA_MODULE_LOADING"
    r"|(NCCL|GLOO|TORCH_NCCL|TORCH_FR|TORCH_DIST|TORCH_GLOO|TORCHELASTIC)_[A-Z0-9_]+)"
)
_SECRET = re.compile(r"(?i)(key|token|secret|passw|credential|auth)")


def description(
    rank: int, world_size: int | None, local_rank: int | None, attempt: int
) -> dict[str, Any]:
    """Description of this process, as records.RankProcess has it."""
    return {
        "pid": os.getpid(),
        "rank": rank,
        "world_size": world_size,
        "started": {"wall_ns": time.time_ns(), "mono_ns": time.monotonic_ns()},
        "python": {
            "version": "{}.{}.{}".format(*sys.version_info[:3]),
            "stdlib": user_code.stdlib_folders(),
            "site": user_code.site_folders(),
            "own": user_code.own_folders(),
            **torch_facts(),
        },
        "local_rank": local_rank,
        "attempt": attempt,
        # sys.argv does not exist yet while site is being imported.
        "argv": shown(getattr(sys, "argv", None) or sys.orig_argv),
        "environment": environment(os.environ),
    }


def torch_facts() -> dict[str, str | None]:
    """Folder and version of torch; None each while the process has not imported it."""
    torch = sys.modules.get("torch")
    file = getattr(torch, "__file__", None)
    version = getattr(torch, "__version__", None)
    if not file or version is None:
        return {"torch": None, "torch_version": None}
    return {
        "torch": os.path.dirname(file),
        "torch_version": str(version),
        "cuda": getattr(getattr(torch, "version", None), "cuda", None),
        "nccl": _nccl_version(torch),
    }


def _nccl_version(torch: Any) -> str | None:
    """Version as torch.cuda.nccl.version() takes it apart, which may not have been imported yet."""
    try:
        number = int(torch._C._nccl_version())
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return None
    return f"{number >> 32}.{number >> 16 & 0xFFFF}.{number & 0xFFFF}"


def environment(names: Any) -> dict[str, str]:
    """The part of an environment that is on the allow-list, without values that are paths."""
    return {
        name: value
        for name, value in names.items()
        if _ALLOWED.fullmatch(name) and not _SECRET.search(name) and os.sep not in value
    }


def shown(words: list[str]) -> list[str]:
    """A command line, with the values of options that may be secrets left out."""
    hidden = False
    shown = []
    for word in words:
        name, equals, _ = word.partition("=")
        if hidden:
            word = "..."
        elif equals and _SECRET.search(name):
            word = f"{name}=..."
        hidden = not equals and word.startswith("-") and bool(_SECRET.search(word))
        shown.append(word)
    return shown


def claim_folder(
    case: Path, host: str, rank: int, attempt: int, pid: int | None = None
) -> tuple[Path, int]:
    """Folder of this attempt; a later attempt's where another process has taken it.

    ``pid`` is the process that it is for, this one by default.  Raises OSError.
    """
    pid = os.getpid() if pid is None else pid
    while True:
        folder = folders.rank_folder(case, host, rank, attempt)
        try:
            owner = json.loads((folder / files.PROCESS.name).read_bytes()).get("pid")
        except FileNotFoundError:
            return folders.make_private(folder), attempt
        except (ValueError, AttributeError):
            owner = None
        if owner == pid:
            return folder, attempt
        attempt += 1
