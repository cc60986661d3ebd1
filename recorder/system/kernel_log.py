"""Kernel messages while the job runs: kills for want of memory, GPU errors, failing disks."""

from __future__ import annotations

import contextlib
import os
import re

#: Kinds of messages that are kept.
_TELLING = re.compile(
    r"[Oo]ut of memory: Killed process|oom-kill:|oom_reaper|NVRM: Xid|nvidia-nvswitch.*SXid"
    r"|blocked for more than \d+ seconds|I/O error|EXT4-fs error|XFS .*(?:error|shutting down)"
    r"|nfs: server .* not responding|Buffer I/O error|segfault at|traps: "
)
_MOST = 64
_LONGEST = 400


class KernelLog:
    """The kernel's messages since this was opened.  ``missing`` says why there are none."""

    def __init__(self) -> None:
        self.missing = ""
        self._descriptor = -1
        try:
            self._descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._descriptor, 0, os.SEEK_END)
        except OSError as error:
            self.missing = f"/dev/kmsg: {error.strerror}"

    def new(self) -> list[str]:
        """Telling messages since the last call, oldest first."""
        found: list[str] = []
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

    def close(self) -> None:
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1
