"""nvidia-resiliency-ext's attribution of Flight Recorder dumps: the ranks that others wait for.

It names no cause.  Ranks that miss from an operation which their peers have enqueued are its
answer, and missing_rank is the cause that is nearest to it; where it lists none, the answer is
that of a sound job.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from hanglab.harness.errors import MissingExtra
from hanglab.harness.evaluation.answers import CaseAnswer
from hanglab.harness.evaluation.peers.dump_files import dumps_by_rank, is_json, unsafe

#: Time that it may take for one Case, in seconds.
LIMIT_S = 60.0
_PACKAGE = "nvidia_resiliency_ext"
_MODULE = f"{_PACKAGE}.attribution.trace_analyzer.fr_attribution"
#: Prints the table that is read here; 0.6.0 was the first release to have it.
_TABLE_OPTION = "--emit-stdout"
#: It takes a rank from what follows the last underscore.
_PREFIX = "_dump_"
_ADVICE = "pip install 'nvidia-resiliency-ext>=0.6'; its wheels ask for glibc 2.39."


@dataclass(frozen=True)
class ResiliencyExt:
    """Raises MissingExtra where the package is not installed, or is older than this part of it."""

    name: str = "nvidia-resiliency-ext"

    def __post_init__(self) -> None:
        # Without importing it: parts of it ask for a GPU's library.
        spec = find_spec(_PACKAGE)
        if spec is None or not spec.submodule_search_locations:
            raise MissingExtra("nvidia-resiliency-ext is not installed.", _ADVICE)
        module = Path(next(iter(spec.submodule_search_locations)), *_MODULE.split(".")[1:])
        source = module.with_suffix(".py")
        if not source.is_file() or _TABLE_OPTION not in source.read_text(encoding="utf-8"):
            raise MissingExtra(
                "This release of nvidia-resiliency-ext has no attribution of dumps that can be "
                "asked from outside.",
                _ADVICE,
            )

    def conclude(self, folder: Path) -> CaseAnswer:
        dumps = dumps_by_rank(folder)
        if not dumps:
            return CaseAnswer(refused="there is no Flight Recorder dump")
        with TemporaryDirectory(prefix="hanglab-corpus-") as copies:
            for rank, path in dumps.items():
                in_json = is_json(path)
                if not in_json and (reason := unsafe(path)):
                    return CaseAnswer(refused=f"{path.name} {reason}")
                shutil.copy(path, Path(copies, f"{_PREFIX}{rank}{'.json' if in_json else ''}"))
            return _ask(copies)


def _ask(copies: str) -> CaseAnswer:
    command = [sys.executable, "-m", _MODULE, "--fr-path", copies, "--pattern", f"{_PREFIX}*"]
    try:
        told = subprocess.run(
            [*command, _TABLE_OPTION],
            cwd=copies,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"it takes more than {LIMIT_S:g} s") from None
    if told.returncode:
        last = (told.stderr.strip().splitlines() or [f"exit code {told.returncode}"])[-1]
        return CaseAnswer(refused=f"it fails: {last}")
    return answer_in(told.stdout)


def answer_in(table: str) -> CaseAnswer:
    """The answer that its table gives; without a row, that of a sound job."""
    rows = list(_rows(table))
    if not rows:
        return CaseAnswer(status="healthy", confidence=1.0, summary="It finds no rank missing.")
    groups = ", ".join(dict.fromkeys(group for group, _ in rows))
    return CaseAnswer(
        status="hung",
        cause="missing_rank",
        culprits=sorted({rank for _, ranks in rows for rank in ranks}),
        confidence=1.0,
        summary=f"ranks are missing from {groups}",
    )


def _rows(table: str) -> Iterator[tuple[str, list[int]]]:
    """Description of a group and ranks that are missing from it, of each row."""
    begun = False
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if cells[0] == "PGID":
            begun = cells[-1] == "Missing Ranks"
        elif begun and len(cells) > 5:
            ranks = [int(word) for word in cells[-1].split(",") if word.strip().isdigit()]
            if ranks:
                yield cells[1], ranks
