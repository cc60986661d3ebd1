"""Differences of ranks that should not be: versions of libraries, settings of communication."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.facts.thresholds import LISTED_SETTINGS
from hanglab.analyzer.verdict import Evidence

#: Names of the environment that are each rank's or each host's own.
_OWN = frozenset(
    {"RANK", "LOCAL_RANK", "GROUP_RANK", "NODE_RANK", "ROLE_RANK", "CUDA_VISIBLE_DEVICES",
     "NCCL_HOSTID", "NCCL_RAS_ADDR", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RESTART_COUNT",
     "SLURM_JOB_ID", "SLURM_STEP_ID"}
)  # fmt: skip


def differences(views: Mapping[int, RankView]) -> list[Evidence]:
    """One observation for each version or setting that is not the same on all ranks.

    They decide nothing: a job may well run with them.  But where it does not,
    they are the first thing to look at.
    """
    told: dict[str, dict[int, str]] = defaultdict(dict)
    for rank, view in views.items():
        if view.process is None:
            continue
        python = view.process.python
        for name, version in (
            ("Python", python.version),
            ("torch", python.torch_version),
            ("CUDA", python.cuda),
            ("NCCL", python.nccl),
        ):
            if version:
                told[name][rank] = version
        for name, value in view.process.environment.items():
            if name not in _OWN:
                told[name][rank] = value
    known = {rank for rank, view in views.items() if view.process is not None}
    found = []
    for name in sorted(told):
        values = told[name]
        # A version that is not known differs from nothing; a variable may be unset.
        if name.isupper() and name not in ("CUDA", "NCCL"):
            values = {rank: values.get(rank, "unset") for rank in known}
        if len(set(values.values())) > 1:
            found.append(Evidence("environment", None, f"{name} differs: {_by_value(values)}"))
    return found[:LISTED_SETTINGS]


def _by_value(values: Mapping[int, str]) -> str:
    """``Ring on ranks 0, 1, 2; Tree on ranks 3``."""
    ranks: dict[str, list[int]] = defaultdict(list)
    for rank, value in sorted(values.items()):
        ranks[value].append(rank)
    parts = [
        f"{value[:60]} on ranks {', '.join(map(str, of[:8]))}{' ...' if len(of) > 8 else ''}"
        for value, of in list(ranks.items())[:4]
    ]
    return "; ".join(parts) + (" ..." if len(ranks) > 4 else "")
