"""torchfrtrace, which comes with torch: Flight Recorder dumps of NCCL jobs, a file for each rank.

It says nothing where it finds nothing wrong, and the answer is then that of a sound job; of what
it prints, the first mismatch is taken, which is the one that it looks for.
"""

from __future__ import annotations

import gc
import logging
import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hanglab.harness.errors import MissingExtra
from hanglab.harness.evaluation.answers import CaseAnswer
from hanglab.harness.evaluation.peers.dump_files import dumps_by_rank, unsafe
from hanglab.harness.evaluation.time_limit import time_limit

#: Time that it may take for one Case, in seconds.
LIMIT_S = 60.0
_PREFIX = "rank_"
#: What it calls a mismatch, and the cause that it is nearest to.
_CAUSES = {
    "COLLECTIVE_TYPE_MISMATCH": "collective_mismatch",
    "SIZE_OR_SYNTAX_MISMATCH": "size_mismatch",
    "COLLECTIVE_DTYPE_MISMATCH": "dtype_mismatch",
}


@dataclass(frozen=True)
class Torchfrtrace:
    """Raises MissingExtra where torch is not installed."""

    name: str = "torchfrtrace"

    def __post_init__(self) -> None:
        if find_spec("torch") is None:
            raise MissingExtra("torchfrtrace is a part of torch.", "pip install 'hanglab[run]'")

    def conclude(self, folder: Path) -> CaseAnswer:
        dumps = dumps_by_rank(folder)
        if not dumps:
            return CaseAnswer(refused="there is no Flight Recorder dump")
        for path in dumps.values():
            if reason := unsafe(path):
                return CaseAnswer(refused=f"{path.name} {reason}")
        with TemporaryDirectory(prefix="hanglab-corpus-") as copies, time_limit(LIMIT_S):
            for rank, path in dumps.items():
                shutil.copy(path, Path(copies, f"{_PREFIX}{rank}"))
            try:
                return _read(_database(copies))
            except TimeoutError:
                raise
            except Exception as error:
                return CaseAnswer(refused=f"it fails: {type(error).__name__}: {error}")


def _database(folder: str) -> Any:
    from torch.distributed.flight_recorder.components.builder import build_db
    from torch.distributed.flight_recorder.components.config_manager import JobConfig
    from torch.distributed.flight_recorder.components.fr_logger import FlightRecorderLogger
    from torch.distributed.flight_recorder.components.loader import read_dir

    FlightRecorderLogger().set_log_level(logging.CRITICAL + 1)
    arguments = JobConfig().parse_args([folder, "--allow-incomplete-ranks", "-p", _PREFIX])
    try:
        details, version = read_dir(arguments)
        return build_db(details, arguments, version)
    finally:
        gc.enable()  # which its loader turns off


def _read(database: Any) -> CaseAnswer:
    """The first collective that it finds fault with."""
    for collective in database.collectives:
        if collective.mismatch_collectives:
            kinds = {
                rank: other.type_of_mismatch.state.name
                for rank, other in collective.mismatch_collectives.items()
            }
            kind = kinds[min(kinds)]
            # Of a group's sizes it does not know whose is wrong, and names the first rank.
            ranks = [] if collective.input_numel is not None else sorted(kinds)
            return _answer(_CAUSES.get(kind), ranks, kind.lower().replace("_", " "))
        if collective.missing_ranks:
            return _answer("missing_rank", sorted(collective.missing_ranks), "not all ranks join")
    return CaseAnswer(status="healthy", confidence=1.0, summary="It finds no mismatch.")


def _answer(cause: str | None, ranks: list[int], words: str) -> CaseAnswer:
    return CaseAnswer(status="hung", cause=cause, culprits=ranks, confidence=1.0, summary=words)
