"""The folder of one run: ``runs/<time>/<scenario>/<fault|control>/<k>/``, and what lies in it."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from hanglab.harness.errors import HanglabError, UsageError

Variant = Literal["fault", "control"]

RESULTS = "results.json"
#: Beside the folders of runs, the way to the last one.
LATEST = "latest"


class ArtifactsError(HanglabError, OSError):
    """Results cannot be written to disk."""

    advice = "Write into a folder that you may write to, with space left on its disk."


class JobFolder:
    """Files of one job: ``case/``, ``truth.json``, ``verdict.json`` and ``log/``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.case = path / "case"
        self.log = path / "log"

    @property
    def truth(self) -> Path:
        return self.path / "truth.json"

    @property
    def verdict(self) -> Path:
        return self.path / "verdict.json"

    @property
    def harness_log(self) -> Path:
        """Path of hanglab's own log of the job."""
        return self.log / "hanglab.log"


class RunFolder:
    """All artifacts of one call of ``hanglab run``.

    Where it runs on several ``backends``, each has a folder in it that is laid out like a run's.
    """

    def __init__(
        self,
        path: Path,
        backends: Sequence[str] = (),
        began: datetime.datetime | None = None,
    ) -> None:
        """``began`` is now where it is not given."""
        self.path = path
        self.began = began or datetime.datetime.now(datetime.timezone.utc)
        self.backends = tuple(backends) if len(backends) > 1 else ()

    @classmethod
    def create(cls, root: Path, backends: Sequence[str] = ()) -> RunFolder:
        """A new folder below ``root``, named by the time; ``root/latest`` points to it.

        Runs that start at the same moment get folders of their own.  Raises ArtifactsError.
        """
        stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        try:
            root.mkdir(parents=True, exist_ok=True)
            for number in range(1000):
                path = root / (f"{stamp}-{number}" if number else stamp)
                with contextlib.suppress(FileExistsError):
                    path.mkdir()
                    break
            else:
                raise FileExistsError(f"{root / stamp} and a thousand more exist")
            _point(root / LATEST, path.name)
        except OSError as failure:
            raise ArtifactsError(f"No folder for this run below {root}: {failure}") from failure
        return cls(path, backends)

    def of(self, backend: str) -> RunFolder:
        """The folder in which the jobs on a backend have theirs."""
        return RunFolder(self.path / backend, began=self.began) if self.backends else self

    def begin(self) -> None:
        """Makes the folder where it is not there yet; ``latest`` beside it points to it.

        Raises ArtifactsError.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            _point(self.path.with_name(LATEST), self.path.name)
        except OSError as failure:
            raise ArtifactsError(f"{self.path} cannot be created: {failure}") from failure

    def job(self, scenario: str, variant: Variant, repetition: int) -> JobFolder:
        """Creates the folder of one job, ``<repetition>``.  Raises ArtifactsError.

        A job that runs once more in the same run gets ``<repetition>-2``, and so on:
        pytest may try an item again, or send it to several workers.
        """
        parent = self.path / scenario / variant
        path = parent / str(repetition)
        try:
            parent.mkdir(parents=True, exist_ok=True)
            for number in itertools.count(2):
                with contextlib.suppress(FileExistsError):
                    path.mkdir()
                    break
                path = parent / f"{repetition}-{number}"
            folder = JobFolder(path)
            folder.log.mkdir()
            folder.case.mkdir(mode=0o700)
        except OSError as failure:
            raise ArtifactsError(f"{path} cannot be created: {failure}") from failure
        return folder

    @property
    def results(self) -> Path:
        return self.path / RESULTS


def write_json(path: Path, content: object) -> None:
    """Writes ``content`` indented, whole or not at all.  Raises ArtifactsError."""
    text = msgspec.json.format(msgspec.json.encode(content), indent=2)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(text + b"\n")
        temporary.replace(path)
    except OSError as failure:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise ArtifactsError(f"{path} cannot be written: {failure}") from failure


def write_new(path: Path, text: str, kept: Path | None = None) -> None:
    """Writes a file that is not there yet, whole or not at all; ``kept`` has the same text.

    Raises UsageError where the file has come to be, and ArtifactsError where it cannot be.
    """
    try:
        with path.open("x") as file:
            try:
                file.write(text)
                file.flush()
            except OSError:
                path.unlink()
                raise
    except FileExistsError as failure:
        raise UsageError(
            f"{path} is there already, and nothing is overwritten.", "Choose another name."
        ) from failure
    except OSError as failure:
        raise ArtifactsError(
            f"{path} cannot be written: {failure.strerror or failure}.",
            f"{kept} has the same text; {ArtifactsError.advice.lower()}" if kept else None,
        ) from failure


def _point(link: Path, target: str) -> None:
    """Makes ``link`` a symbolic link to ``target``, in one step."""
    temporary = link.with_name(f".{LATEST}.{target}.{os.getpid()}")
    temporary.symlink_to(target)
    try:
        temporary.replace(link)
    except OSError:
        temporary.unlink()
        raise
