"""Dumps as other tools want them: one file for each rank, of plain data alone."""

from __future__ import annotations

import pickletools
import re
from pathlib import Path

from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.reader import CaseReader

_RANK = re.compile(r"(\d+)(?:\.json|\.pkl|\.pickle)?$")
#: Instructions by which a pickle names or calls code: tools that unpickle run it.
_CODE = frozenset(
    "GLOBAL STACK_GLOBAL INST OBJ NEWOBJ NEWOBJ_EX REDUCE BUILD "
    "EXT1 EXT2 EXT4 PERSID BINPERSID".split()
)


def dumps_by_rank(folder: Path) -> dict[int, Path]:
    """Each rank's dump, of a Case or of a bare folder."""
    if (folder / "hosts").is_dir():
        ranks = CaseReader(folder).ranks
        found = {rank.rank: rank.folder / files.FLIGHT_RECORDER.name for rank in ranks}
        return {rank: path for rank, path in found.items() if path.is_file()}
    named = ((_RANK.search(path.name), path) for path in folder.iterdir() if path.is_file())
    return {int(match[1]): path for match, path in named if match}


def is_json(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(64).lstrip()[:1] == b"{"


def unsafe(path: Path) -> str:
    """Reason why the file is not handed to an unpickler; "" for plain data."""
    try:
        for code, _, _ in pickletools.genops(path.read_bytes()):
            if code.name in _CODE:
                return "holds code, which an unpickler would run"
    except Exception as error:
        return f"is no pickle: {error}"
    return ""
