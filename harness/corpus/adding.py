"""Adding a labelled Case to a corpus: redacted, checked, packed."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.flight_recorder.discovery import find_candidates
from hanglab.analyzer.verdict import Verdict
from hanglab.harness.corpus.entries import (
    ARCHIVE,
    CorpusEntry,
    CorpusError,
    add_entry,
    remove_entry,
)
from hanglab.harness.corpus.labels import problems_of_label, problems_of_name, problems_of_ranks
from hanglab.harness.errors import HanglabError, UsageError
from hanglab.harness.recording import archives
from hanglab.harness.recording.archives import compare, open_case
from hanglab.recorder.archive.buffer_redaction import UnsafeBuffer, redact_buffer
from hanglab.recorder.archive.pseudonyms import Pseudonyms
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.reader import CaseReader
from hanglab.recorder.case.records import Python

#: Folders in front of public code, as paths of frames begin.
_SITE = re.compile(rb"/[\x20-\x7e]*?/(?:site|dist)-packages(?=/)")
_STDLIB = re.compile(rb"/[\x20-\x7e]*?/lib/python3(?:\.\d+)?(?=/)")
#: A dump of 2,000 entries has 0.4 MB.
_LARGEST = 64 << 20


class LabelError(HanglabError):
    """A label cannot be right, or says too little."""

    advice = "`hanglab corpus add --help` says what a label is made of."
    exit_code = 64


def add_case(
    corpus: Path, name: str, folder: Path, entry: CorpusEntry, *, redacted: bool = True
) -> list[str]:
    """Add a Case, or a folder of dumps; gives sentences on what the copy lacks.

    Raises LabelError, UsageError where the name is taken, and whatever says that the folder
    cannot be analyzed.
    """
    _refuse([*problems_of_name(name), *problems_of_label(entry)])
    if (corpus / f"{name}{ARCHIVE}").exists() or (corpus / f"{name}.json").exists():
        raise UsageError(
            f"{corpus} has a Case {name} already, and nothing is overwritten.", "Choose another."
        )
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder.", "Give a Case, or a folder of dumps.")
    is_case = any((one / "hosts").is_dir() for one in (folder, folder / "case"))
    if is_case:
        folder = open_case(folder).path
    before = analyze(folder)
    ranks = _ranks_of_case(folder) if is_case else _ranks_of_dumps(folder, before)
    _refuse(problems_of_ranks(entry.truth or [], ranks))
    if not redacted:
        return _add(corpus, name, folder, entry, [])
    with tempfile.TemporaryDirectory(prefix="hanglab-corpus-") as scratch:
        copy = Path(scratch, "copy")
        if is_case:
            left_out, differences = archives.redact(folder, copy, damaged=False)
            told = [f"left out: {line}" for line in left_out]
        else:
            told = [f"left out: {line}" for line in _copy_dumps(folder, copy)]
            differences = compare(before, analyze(copy))
        told += [f"the verdict on the copy differs; {line}" for line in differences]
        return _add(corpus, name, copy, entry, told)


def _refuse(problems: Iterator[str] | list[str]) -> None:
    for problem in problems:
        raise LabelError(f"The label cannot be taken: {problem}.")


def _ranks_of_case(folder: Path) -> Collection[int]:
    """Ranks of the job; none where nothing says how many it has."""
    job = CaseReader(folder).read(files.JOB)
    return range(job.world_size or 0) if job is not None else range(0)


def _ranks_of_dumps(folder: Path, verdict: Verdict) -> Collection[int]:
    """Ranks that dumps are of or tell of; none where a dump that was read has another one."""
    named = {found.rank for found in find_candidates(folder) if found.rank is not None}
    return named.union(verdict.inputs.missing_ranks) if len(named) >= verdict.inputs.ranks else ()


def _add(corpus: Path, name: str, folder: Path, entry: CorpusEntry, told: list[str]) -> list[str]:
    try:
        add_entry(corpus, name, folder, entry)
    except OSError as error:
        if not isinstance(error, FileExistsError):
            remove_entry(corpus, name)
        raise CorpusError(
            f"{corpus} cannot be written: {error.strerror or error}.",
            "Name a folder that you may write to, with space left on its disk.",
        ) from error
    return told


def _python_of(dumps: Iterable[Path]) -> Python:
    """Folders of public code, as far as paths of frames in the dumps tell them."""
    site: set[str] = set()
    stdlib: set[str] = set()
    for path in dumps:
        data = path.read_bytes() if path.stat().st_size <= _LARGEST else b""
        for folders, pattern in ((site, _SITE), (stdlib, _STDLIB)):
            folders |= {"/" + found.decode().strip("/") for found in set(pattern.findall(data))}
    return Python(version="", stdlib=sorted(stdlib), site=sorted(site))


def _copy_dumps(folder: Path, target: Path) -> list[str]:
    """Write dumps without names, each rank's under its number; says what was left out."""
    names = Pseudonyms()
    names.learn(_python_of(found.path for found in find_candidates(folder)))
    left_out = []
    parts: dict[str, str] = {}
    for number, found in enumerate(find_candidates(folder)):
        within = found.name.rpartition("/")[0]
        try:
            data = redact_buffer(found.path.read_bytes(), names)
        except (OSError, UnsafeBuffer) as error:
            left_out.append(f"{found.name}: {error}")
            continue
        part = parts.setdefault(within, f"part{len(parts)}" if within else "")
        rank = found.rank if found.rank is not None else f"unknown_{number}x"
        path = target / part / f"rank_{rank}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, ns=(found.written_ns, found.written_ns))
    if not target.is_dir():
        raise CorpusError(f"{folder} has no dump that could be redacted.", "See --as-it-is.")
    return left_out
