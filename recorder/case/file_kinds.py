"""Kinds of evidence files: how the bytes of each become records, and records its bytes.

Ranks import this module for the names of what they write.  So it needs the standard
library alone until something is decoded or encoded: msgspec takes 24 ms to import.
"""

from __future__ import annotations

import contextlib
import enum
import importlib
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, TypeVar

from hanglab.recorder.case.decoders import decoder_of
from hanglab.recorder.case.folders import Problems, read_regular

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

#: No file of a Case is read beyond these sizes, in bytes.
JSON_LIMIT: Final = 64 << 20
BUFFER_LIMIT: Final = 1 << 30
PROGRESS_LIMIT: Final = 64 << 20


class Scope(enum.Enum):
    """One file of the job, one of each host, or one of each attempt of each rank."""

    JOB = "job"
    HOST = "host"
    RANK = "rank"


class Redaction(enum.Enum):
    """Treatment of a file in a copy without names (:mod:`hanglab.recorder.archive.redaction`)."""

    #: Text by text, as the record's fields say (:mod:`hanglab.recorder.case.text_kinds`).
    FIELDS = "fields"
    #: Free text, of which what everybody's programs say stays.
    LOG = "log"
    FLIGHT_RECORDER = "flight recorder"
    PROGRESS = "progress"
    LEFT_OUT = "left out"


class DeferredModule:
    """A module that is imported when something of it is first asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


class EvidenceFile(Generic[R_co]):
    """One file of a Case; reading it gives an ``R_co``."""

    #: Bytes beyond which it is not read.
    limit: ClassVar[int] = JSON_LIMIT
    #: Decoded once and kept, or too large for that and read anew each time.
    kept_decoded: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        scope: Scope,
        content: str,
        *,
        redaction: Redaction,
        snapshot: bool = False,
        of_capture: bool = False,
    ) -> None:
        self.name = name
        self.scope = scope
        #: One line for people.
        self.content = content
        self.redaction = redaction
        #: A rank writes it on or anew after the capture: its state at the capture is kept apart.
        self.snapshot = snapshot
        #: The capture makes it, and it goes with the capture if the job turns out to go on.
        self.of_capture = of_capture

    @property
    def snapshot_name(self) -> str:
        stem, dot, ending = self.name.rpartition(".")
        return f"{stem}_captured{dot}{ending}"

    @property
    def names(self) -> tuple[str, ...]:
        """Names that it has in a folder."""
        return (self.name, self.snapshot_name) if self.snapshot else (self.name,)

    @property
    @abstractmethod
    def empty(self) -> R_co:
        """The value of a file that is absent or unusable."""

    @abstractmethod
    def parse(self, data: bytes, damaged: Callable[[str], None]) -> R_co:
        """Decode the whole file; tells ``damaged`` of what is left out, and never raises."""

    def load(self, path: Path, problems: Problems) -> R_co:
        """Read and decode the file at ``path``; what cannot be used is a problem."""
        data = read_regular(path, self.limit, problems)
        if data is None:
            return self.empty
        return self.parse(data, lambda reason: problems.append((path, reason)))


class JsonFile(EvidenceFile[R_co], Generic[R_co, T]):
    """A file of typed records."""

    def __init__(
        self,
        name: str,
        scope: Scope,
        content: str,
        record: Callable[[], type[T]],
        *,
        redaction: Redaction = Redaction.FIELDS,
        snapshot: bool = False,
        of_capture: bool = False,
    ) -> None:
        super().__init__(
            name, scope, content, redaction=redaction, snapshot=snapshot, of_capture=of_capture
        )
        #: Gives the type of the record, which ranks never ask for.
        self.record = record

    @abstractmethod
    def encode(self, content: Any) -> bytes:
        """Bytes of a document, or of lines to be added."""


class JsonDocument(JsonFile[T | None, T], Generic[T]):
    """One JSON document, written whole or not at all."""

    @property
    def empty(self) -> T | None:
        return None

    def parse(self, data: bytes, damaged: Callable[[str], None]) -> T | None:
        return _decode(data, self.record(), damaged)

    def encode(self, content: T) -> bytes:
        from hanglab.recorder.case.undecodable_text import encode_json

        return encode_json(content)


class JsonList(JsonFile[list[T], T], Generic[T]):
    """One JSON document that is a list of records."""

    @property
    def empty(self) -> list[T]:
        return []

    def parse(self, data: bytes, damaged: Callable[[str], None]) -> list[T]:
        type_: Any = list[self.record()]  # type: ignore[misc]
        found: list[T] | None = _decode(data, type_, damaged)
        return found or []

    def encode(self, content: Iterable[T]) -> bytes:
        from hanglab.recorder.case.undecodable_text import encode_json

        return encode_json(list(content))


class JsonLines(JsonFile[list[T], T], Generic[T]):
    """One record a line, appended; a damaged line is left out."""

    @property
    def empty(self) -> list[T]:
        return []

    def parse(self, data: bytes, damaged: Callable[[str], None]) -> list[T]:
        type_, records = self.record(), []
        for number, line in enumerate(data.split(b"\n"), 1):
            if not line.strip():
                continue
            record = _decode(line, type_, _of_line(number, damaged))
            if record is not None:
                records.append(record)
        return records

    def encode(self, content: Iterable[T]) -> bytes:
        from hanglab.recorder.case.undecodable_text import encode_json

        return b"".join(encode_json(record) + b"\n" for record in content)


class TextFile(EvidenceFile[str]):
    """Text that others have written."""

    @property
    def empty(self) -> str:
        return ""

    def parse(self, data: bytes, damaged: Callable[[str], None]) -> str:
        return data.decode("utf-8", "replace")


class RawFile(EvidenceFile[bytes | None]):
    """Bytes of somebody else's format, as they are."""

    limit = BUFFER_LIMIT
    kept_decoded = False

    @property
    def empty(self) -> bytes | None:
        return None

    def parse(self, data: bytes, damaged: Callable[[str], None]) -> bytes | None:
        return data


class MappedFile(EvidenceFile[T | None], Generic[T]):
    """A file that a rank has in its memory and changes in place."""

    limit = PROGRESS_LIMIT

    def __init__(
        self,
        name: str,
        scope: Scope,
        content: str,
        decoder: Callable[[], Callable[[bytes], T]],
        *,
        redaction: Redaction,
    ) -> None:
        super().__init__(name, scope, content, redaction=redaction, snapshot=True)
        #: Gives what decodes the bytes and raises ValueError where it cannot.
        self.decoder = decoder

    @property
    def empty(self) -> T | None:
        return None

    def parse(self, data: bytes, damaged: Callable[[str], None]) -> T | None:
        try:
            return self.decoder()(data)
        except ValueError as error:
            damaged(str(error))
            return None


class FileSet(EvidenceFile[list[bytes]]):
    """A folder of files of somebody else's format; those with the ending are read, latest first."""

    kept_decoded = False

    def __init__(self, name: str, scope: Scope, content: str, ending: str = "") -> None:
        super().__init__(name, scope, content, redaction=Redaction.LEFT_OUT)
        self.ending = ending

    @property
    def empty(self) -> list[bytes]:
        return []

    def parse(self, data: bytes, damaged: Callable[[str], None]) -> list[bytes]:
        return [data]

    def load(self, path: Path, problems: Problems) -> list[bytes]:
        try:
            names = sorted(name for name in os.listdir(path) if name.endswith(self.ending))
        except OSError:
            return []
        found = (read_regular(path / name, self.limit, problems) for name in reversed(names))
        return [data for data in found if data is not None]


def _of_line(number: int, damaged: Callable[[str], None]) -> Callable[[str], None]:
    return lambda why: damaged(f"line {number} {why}")


def _decode(data: bytes, type_: type[T], damaged: Callable[[str], None]) -> T | None:
    import msgspec

    from hanglab.recorder.case.undecodable_text import decode_json, may_hold_surrogates

    decode: Callable[[bytes], T] = decoder_of(type_).decode
    try:
        return decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if may_hold_surrogates(data):
            with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
                return decode_json(data, type_)
        damaged(f"is damaged: {error}")
        return None
