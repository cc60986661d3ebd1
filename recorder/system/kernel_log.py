"""Kernel messages while the job runs: kills for want of memory, GPU errors, failing disks.

A driver that is emulated cannot write into the kernel's log: it has a file of its own in the job's
runtime folder, which is read beside it.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Final

#: Kinds of messages that are kept.
_TELLING = re.compile(
    r"[Oo]ut of memory: Killed process|oom-kill:|oom_reaper|NVRM: Xid|nvidia-nvswitch.*SXid"
    r"|blocked for more than \d+ seconds|I/O error|EXT4-fs error|XFS .*(?:error|shutting down)"
    r"|nfs: server .* not responding|Buffer I/O error|segfault at|traps: "
)
#: Name of an emulated driver's log in the runtime folder.
EMULATED_LOG: Final = "kernel.log"
_MOST = 64
_LONGEST = 400


class KernelLog:
    """The kernel's messages since this was opened.  ``missing`` says why there are none.

    ``emulated`` is the log of an emulated driver, of which all messages are of the job.
    """

    def __init__(self, emulated: Path | None = None) -> None:
        self.missing = ""
        self._emulated = emulated
        self._seen = 0
        self._descriptor = -1
        try:
            self._descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._descriptor, 0, os.SEEK_END)
        except OSError as error:
            self.missing = f"/dev/kmsg: {error.strerror}"

    def new(self) -> list[str]:
        """Telling messages since the last call, oldest first."""
        found = self._new_of_driver()
        if self._descriptor < 0:
            return found
        while len(found) < _MOST:
            try:
                record = os.read(self._descriptor, 1 << 14)
            except BrokenPipeError:
                continue  # some were overwritten before they were read
            except OSError:
                break
            text = record.partition(b";")[2].partition(b"\n")[0].decode("utf-8", "replace")
            if _TELLING.search(text):
                found.append(text[:_LONGEST])
        return found

    def _new_of_driver(self) -> list[str]:
        """Whole lines of the emulated driver that have not been read yet."""
        if self._emulated is None:
            return []
        try:
            with self._emulated.open("rb") as file:
                file.seek(self._seen)
                text = file.read(_MOST * _LONGEST)
        except OSError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._seen += len(whole)
        lines = whole.decode("utf-8", "replace").splitlines()
        return [line[:_LONGEST] for line in lines if _TELLING.search(line)]

    def close(self) -> None:
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1
