"""A copy of a Case from which nothing can be read but what explains the hang.

Paths, hosts, users, names of functions and sections, addresses, arguments and
settings are replaced, each by the same word wherever it stands; source lines and
free text go.  What is not known to be a file of a Case is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hanglab.recorder.archive.buffer_redaction import redact_buffer
from hanglab.recorder.archive.progress_redaction import redact_progress
from hanglab.recorder.archive.pseudonyms import Pseudonyms
from hanglab.recorder.archive.record_redaction import RecordRedaction
from hanglab.recorder.archive.text_redaction import TextRedaction
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.case.file_kinds import EvidenceFile, JsonFile, Redaction, Scope
from hanglab.recorder.case.folders import Problems, read_regular
from hanglab.recorder.case.reader import CaseReader, EvidenceFolder
from hanglab.recorder.case.records import Absence
from hanglab.recorder.case.writer import write_bytes, write_manifest


def redact(reader: CaseReader, target: Path) -> list[str]:
    """Write the copy into ``target``, an empty folder; says what was left out, and why.

    Raises OSError.
    """
    return _CaseRedaction(reader, target).run()


class _CaseRedaction:
    def __init__(self, reader: CaseReader, target: Path) -> None:
        self._reader = reader
        self._target = target
        self._names = Pseudonyms()
        self._texts = TextRedaction(self._names)
        self._records = RecordRedaction(self._names, self._texts)
        self._left_out: Problems = []
        for rank in reader.all_attempts:
            process = rank.read(files.PROCESS)
            if process is not None:
                self._names.learn(process.python)

    def run(self) -> list[str]:
        reader = self._reader
        folders.make_private(self._target)
        self._copy(reader, self._target, Scope.JOB, (folders.MANIFEST, folders.HOSTS))
        for name, host in reader.hosts.items():
            target = folders.host_folder(self._target, self._names.host(name))
            self._copy(host, target, Scope.HOST, (folders.RANKS,))
        for rank in reader.all_attempts:
            host_name = self._names.host(rank.host)
            target = folders.rank_folder(self._target, host_name, rank.rank, rank.attempt)
            self._copy(rank, target, Scope.RANK)
        write_manifest(self._target, "hanglab redact", map(self._absence, reader.absent))
        return [
            f"{path.relative_to(reader.path).as_posix()}: {reason}"
            for path, reason in self._left_out
        ]

    def _copy(
        self, source: EvidenceFolder, target: Path, scope: Scope, others: Iterable[str] = ()
    ) -> None:
        """Write the folder's evidence anew.  ``others`` are looked after elsewhere."""
        known = set(others)
        for file in files.evidence_files(scope):
            if file.redaction is Redaction.LEFT_OUT:
                continue
            for name in file.names:
                known.add(name)
                data = self._redacted(file, source.folder / name)
                if data is not None:
                    write_bytes(target / name, data)
        for path in sorted(source.folder.iterdir()):
            if path.name not in known:
                self._left_out.append((path, "not needed for the verdict"))

    def _redacted(self, file: EvidenceFile[Any], path: Path) -> bytes | None:
        """Content without names; None of a file that is absent, or left out."""
        data = read_regular(path, file.limit, self._left_out)
        if data is None:
            return None
        try:
            if file.redaction is Redaction.FLIGHT_RECORDER:
                return redact_buffer(data, self._names)
            if file.redaction is Redaction.PROGRESS:
                return redact_progress(data, self._names)
        except ValueError as error:
            self._left_out.append((path, str(error)))
            return None
        content = file.parse(data, lambda reason: self._left_out.append((path, reason)))
        if file.redaction is Redaction.LOG:
            return self._texts.lines(content).encode()
        if content is None or not isinstance(file, JsonFile):
            return None
        if isinstance(content, list):
            return file.encode(map(self._records, content))
        return file.encode(self._records(content))

    def _absence(self, absence: Absence) -> Absence:
        return Absence(
            self._texts.phrase(absence.what) if "/" in absence.what else absence.what,
            self._texts.phrase(absence.reason),
            self._names.host(absence.host) if absence.host else None,
            absence.rank,
        )
