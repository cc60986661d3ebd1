"""Checking a trace in a process of its own, so that reading it delays no answer to a job."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time

import msgspec

from hanglab.recorder.profiling.traces import Check, Checked

#: A trace that takes longer to read is given up, in seconds.
_PATIENCE_S = 300.0


class TraceCheck:
    """One check under way."""

    def __init__(self, check: Check) -> None:
        self._started = time.monotonic()
        # A file takes what a pipe would hold back until somebody reads.
        self._answer = tempfile.TemporaryFile()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "hanglab.recorder.profiling.traces"],
                stdin=subprocess.PIPE,
                stdout=self._answer,
                stderr=subprocess.DEVNULL,
                # `-m` looks into the working directory first.
                cwd="/",
            )
            assert self._process.stdin is not None
            self._process.stdin.write(msgspec.json.encode(check))
            self._process.stdin.close()
        except OSError as error:
            self._problem = f"it could not be read: {error.strerror}"
        else:
            self._problem = ""

    def result(self) -> Checked | None:
        """Result of the check; None while it is under way."""
        if self._problem or self._process is None:
            return Checked(False, self._problem)
        if self._process.poll() is None:
            if time.monotonic() - self._started < _PATIENCE_S:
                return None
            self._process.kill()
            self._process.wait()
            return Checked(False, f"reading it took longer than {_PATIENCE_S:g} s")
        self._answer.seek(0)
        data = self._answer.read()
        self._answer.close()
        try:
            return msgspec.json.decode(data, type=Checked)
        except msgspec.MsgspecError:
            return Checked(False, f"its reader ended with {self._process.returncode}")
