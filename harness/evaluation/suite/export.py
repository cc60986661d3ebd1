"""Scenarios as a suite: plain scripts that need torch and torchrun alone, fault and control."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

import msgspec

from hanglab.analyzer.verdict import Status
from hanglab.harness.errors import UsageError
from hanglab.harness.evaluation.suite.declaration import (
    FILE,
    LabelledScript,
    LabelledSuite,
    Observable,
    SuiteBackend,
)
from hanglab.harness.jobs.run_folder import ArtifactsError
from hanglab.harness.scenarios.declaration import Scenario
from hanglab.recorder.case.backends import backend_of

_OBSERVABLE: dict[Status, Observable] = {
    Status.HUNG: "hangs",
    Status.FAILED: "fails",
    Status.CORRUPT: "silently_wrong",
}
#: Parts of ``job`` that a plain script can have of its own.
_OFFERED = frozenset(
    {"rank", "world_size", "local_rank", "faulty", "seed", "backend", "device"}
    | {"steps", "section", "batch"}
)
_HELPER = '''\
import contextlib
import ctypes
import os
import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """The rank, as the script sees it."""

    rank: int = int(os.environ["RANK"])
    world_size: int = int(os.environ["WORLD_SIZE"])
    local_rank: int = int(os.environ.get("LOCAL_RANK", os.environ["RANK"]))
    faulty: bool = {faulty}
    seed: int = 0
    backend: str = "{backend}"
    device: torch.device = {device}

    def steps(self, count):
        yield from range(count)

    def section(self, name):
        return contextlib.nullcontext()

    def batch(self, features, rows=32):
        return torch.randn(rows, features, device=self.device)
'''
_MAIN = """

if __name__ == "__main__":
    torch.manual_seed(int(os.environ["RANK"]))
    random.seed(int(os.environ["RANK"]))
"""
#: Around the scenario's function, where it does not do so itself.
_BEGIN = """\
    dist.init_process_group({words})
    # gloo's group may hang or abort where it is destroyed: it lives as long as the process.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(dist.group.WORLD))
"""
_END = """\
    if dist.is_initialized():
        dist.destroy_process_group()
"""


@dataclass(frozen=True)
class _Texts:
    """Parts of scripts that depend on the backend."""

    device: str
    #: Arguments of init_process_group.
    words: str


_TEXTS: dict[Literal["gloo", "nccl"], _Texts] = {
    "gloo": _Texts('torch.device("cpu")', '"gloo"'),
    "nccl": _Texts(
        'torch.device("cuda", int(os.environ.get("LOCAL_RANK", os.environ["RANK"])))',
        '"nccl", device_id=Job().device',
    ),
}


@dataclass
class Export:
    """Files that were written, and scenarios that were not, with the reason."""

    suite: LabelledSuite
    refused: dict[str, str] = field(default_factory=dict)


def export_suite(scenarios: Sequence[Scenario], folder: Path, backend: str) -> Export:
    """Write fault and control of each scenario, and the suite.json, labelled for a backend.

    Those for NCCL are the same whether their device is to be emulated.  Raises UsageError where
    the folder is in use or no scenario can be exported, and ArtifactsError.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is in use.", "Give a new folder: nothing is overwritten.")
    named: Literal["gloo", "nccl"] = "gloo" if backend_of(backend).blocking else "nccl"
    texts: dict[str, str] = {}
    scripts: list[LabelledScript] = []
    refused = {}
    for scenario in scenarios:
        reason = _refusal(scenario, backend)
        if reason:
            refused[scenario.name] = reason
            continue
        for faulty in (True, False):
            text, lines = _script(scenario, named, faulty=faulty)
            file = f"{scenario.name}_{'fault' if faulty else 'control'}.py"
            texts[file] = text
            scripts.append(_label(scenario, file, lines, backend, faulty=faulty))
    if not scripts:
        told = "; ".join(f"{name} {reason}" for name, reason in refused.items())
        raise UsageError(f"No scenario can be a plain script: {told}.", "Name others.")
    suite = LabelledSuite(
        scripts=scripts,
        origin="hanglab's scenarios, Apache-2.0",
        backend=cast(SuiteBackend, backend),
    )
    content = msgspec.json.format(msgspec.json.encode(suite), indent=1).decode()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in {**texts, FILE: content + "\n"}.items():
            (folder / file).write_text(text)
    except OSError as error:
        raise ArtifactsError(f"{folder} cannot be written: {error.strerror or error}") from error
    return Export(suite, refused)


def _refusal(scenario: Scenario, backend: str) -> str:
    """Reason why a scenario cannot be a plain script; "" where it can."""
    if scenario.function is None or scenario.expect is None:
        return "is a script already"
    if scenario.faults or scenario.needs or scenario.gpus:
        return "needs what a script cannot do to itself"
    if backend not in scenario.backends:
        return f"does not run on {backend}"
    if scenario.expect.cause is None:
        return f"expects {scenario.category}"
    if scenario.expect.status_on(backend) not in _OBSERVABLE:
        return "neither hangs nor fails, nor ends with wrong results"
    tree = ast.parse(scenario.source.read_bytes())
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "job"
    }
    if used - _OFFERED:
        return f"uses {', '.join(f'job.{name}' for name in sorted(used - _OFFERED))}"
    return ""


def _label(
    scenario: Scenario, file: str, lines: dict[int, int], backend: str, *, faulty: bool
) -> LabelledScript:
    expect = scenario.expect
    assert expect is not None
    if not faulty:
        return LabelledScript(file=file, ranks=scenario.world_size, label="ok", observable="fine")
    cause = expect.cause
    assert cause is not None
    seen = [lines[line] for line in scenario.seen_lines] if expect.location else None
    return LabelledScript(
        file=file,
        ranks=scenario.world_size,
        label="error",
        observable=_OBSERVABLE[expect.status_on(backend)],
        kind=cause.value,
        culprits=expect.culprits_of(scenario.world_size),
        lines=seen,
        reference=scenario.reference,
    )


def _script(
    scenario: Scenario, backend: Literal["gloo", "nccl"], *, faulty: bool
) -> tuple[str, dict[int, int]]:
    """The scenario's file without hanglab, and the number of each of its lines there."""
    source = scenario.source.read_text()
    tree = ast.parse(source)
    dropped: set[int] = set()
    last_import = 0
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hanglab"):
            dropped |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        if isinstance(node, ast.Import | ast.ImportFrom):
            last_import = node.end_lineno or node.lineno
        if isinstance(node, ast.FunctionDef) and node.name == scenario.function:
            first = min((one.lineno for one in node.decorator_list), default=node.lineno)
            dropped |= set(range(first, node.lineno))
    known = {ast.unparse(node) for node in tree.body if isinstance(node, ast.Import)}
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    needed = [
        line
        for name, line in (("torch", "import torch"), ("dist", "import torch.distributed as dist"))
        if name not in imported
    ]
    own = _TEXTS[backend]
    helper_text = _HELPER.replace("{faulty}", str(faulty)).replace("{backend}", backend)
    lines = helper_text.replace("{device}", own.device).splitlines()
    helper = needed + [line for line in lines if line not in known]
    out: list[str] = []
    numbers: dict[int, int] = {}
    for number, line in enumerate(source.splitlines(), 1):
        if number not in dropped:
            out.append(line)
            numbers[number] = len(out)
        if number == last_import:
            out += helper
    parts = ["\n".join(out), "\n", _MAIN]
    if backend == "nccl":
        parts.append("    torch.cuda.set_device(Job().device)\n")
    by_itself = any(
        "init_process_group" in (getattr(node, "attr", ""), getattr(node, "id", ""))
        for node in ast.walk(tree)
    )
    if not by_itself:
        parts.append(_BEGIN.replace("{words}", own.words))
    parts.append(f"    {scenario.function}(Job())\n")
    if not by_itself:
        parts.append(_END)
    return "".join(parts), numbers
