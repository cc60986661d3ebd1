"""Captures of stopped jobs: each a command of its own, which weighs nothing on the watch."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from hanglab.harness.launchers.supervision.agent_process import FINISH_S
from hanglab.harness.recording import case_folder
from hanglab.recorder.case import folders
from hanglab.recorder.case.reader import CaseReader, NotACase
from hanglab.recorder.system.host_name import host_name

#: Seconds after which a capture with its verdict is given up.
_MOST_S = 300.0
#: Seconds for a capture that is ended to end what it has started, which has FINISH_S for that.
_TIDY_S = FINISH_S + 5.0
_COMMAND = (sys.executable, "-m", "hanglab.harness.cli")
_WORDS = 400


@dataclass
class CaptureResult:
    """End of a capture.  ``problem`` is a sentence where there is no verdict."""

    case: Path | None
    verdict: dict[str, Any] | None
    #: Whether nothing moved while it was captured; None where that is not known.
    at_rest: bool | None = None
    problem: str = ""
    #: Seconds that the capture took, with its analysis.
    seconds: float = 0.0

    @property
    def confirmed(self) -> bool:
        """True if the job stands still, by what was seen of it from near."""
        status = (self.verdict or {}).get("status")
        return bool(self.at_rest) or status in ("hung", "failed")


@dataclass
class RunningCommand:
    """A command of hanglab beside the watch; its words go to files that nobody else reads."""

    words: Sequence[str]
    begun_s: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._out = tempfile.TemporaryFile()
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [*_COMMAND, *self.words],
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._errors,
            start_new_session=True,
            cwd="/",
        )

    def ended(self) -> bool:
        """True once it has ended, by itself or because it took too long."""
        if self._process.poll() is None and time.monotonic() - self.begun_s > _MOST_S:
            self.kill()
        return self._process.poll() is not None

    def kill(self) -> None:
        """End it as Ctrl-C does, which ends its agent, too; by force where that takes too long."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_TIDY_S)
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def take(self) -> tuple[int, bytes, str]:
        """Exit code, output, and the last of its errors, without the advice below it."""
        self._out.seek(0)
        self._errors.seek(0)
        output, errors = self._out.read(), self._errors.read().decode("utf-8", "replace")
        self._out.close()
        self._errors.close()
        lines = [line for line in errors.splitlines() if line[:1].strip()]
        last = lines[-1].removeprefix("hanglab: ") if lines else ""
        return self._process.returncode, output, last[:_WORDS]


class RunningCapture:
    """``hanglab capture`` of a job's ranks.  Raises OSError, HanglabError."""

    def __init__(self, pids: Sequence[int], out: Path, watch_s: float, own: Path | None) -> None:
        """``own`` is the Case that the job is being recorded into by itself."""
        self.case = own
        words = ["capture", *map(str, pids), "--json", "--watch", f"{watch_s:g}"]
        if own is None:
            folders.make_private(out)
            self.case = case_folder.name_folder(cases_here(out))
            words += ["--out", str(self.case)]
        self._own = own is not None
        self._command = RunningCommand(words)

    def poll(self) -> CaptureResult | None:
        """The result once there is one."""
        if not self._command.ended():
            return None
        code, output, words = self._command.take()
        try:
            verdict = msgspec.json.decode(output, type=dict[str, Any])
        except msgspec.MsgspecError:
            self.discard()
            return CaptureResult(None, None, problem=words or f"the capture ended with {code}")
        seconds = time.monotonic() - self._command.begun_s
        return CaptureResult(self.case, verdict, _at_rest(self.case), seconds=seconds)

    def discard(self) -> None:
        """Remove the Case, unless it is the job's own."""
        if self.case is not None and not self._own:
            shutil.rmtree(self.case, ignore_errors=True)

    def close(self) -> None:
        """End it; the Case of one that has not ended is half a Case, of which nobody was told."""
        self._command.kill()
        self.discard()


def cases_here(out: Path) -> Path:
    """The folder below ``out``, which hosts may share, of this host's Cases."""
    return out / folders.host_folder("", host_name()).name


def _at_rest(case: Path | None) -> bool | None:
    if case is None:
        return None
    try:
        job = CaseReader(case).job
    except (NotACase, OSError):
        return None
    return None if job is None or job.trigger is None else job.trigger.kind == "no_progress"
