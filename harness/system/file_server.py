"""A folder with one file that a process of its own serves, and may stop serving.

The process is ``file_server FOLDER BYTES``.  Told ``stop`` on its standard input it
answers nothing any more, told ``go`` it answers again, and what has waited too.  When
its input ends it unmounts: that is so also when hanglab is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import subprocess
import sys
import tempfile

from hanglab.harness.system.fuse import DEVICE, SingleFile

_NOSUID, _NODEV, _DETACH = 2, 4, 2
_PROGRAM = "hanglab.harness.system.file_server"
#: How long the process may take to end.
_END_S = 10.0
#: Servers that this process has started, by their folder.
_SERVERS: dict[str, FileServer] = {}


def file_server_of(folder: str) -> FileServer:
    """The server of a folder that this process has started.  Raises OSError."""
    if folder not in _SERVERS:
        raise OSError(f"{folder} is served by no file server of hanglab")
    return _SERVERS[folder]


class FileServer:
    """The folder, as whoever started the process has it."""

    def __init__(self, size: int) -> None:
        """Raises OSError."""
        self.folder = tempfile.mkdtemp(prefix="hanglab-storage-")
        self._process = subprocess.Popen(
            [sys.executable, "-m", _PROGRAM, self.folder, str(size)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if self._answer() != "ready":
            assert self._process.stderr is not None
            said = self._process.stderr.read().strip()
            self.close()
            raise OSError(f"no file system can be served: {said or 'no answer'}")
        # The kernel sends FLUSH until one is refused.  Were the first one sent after `stop`, who
        # closes the file would wait for its answer, and not even SIGKILL would end that.
        with open(f"{self.folder}/{SingleFile.name}", "rb"):
            pass
        _SERVERS[self.folder] = self

    def order(self, what: str) -> None:
        """``stop`` or ``go``; back when it is done.  Raises OSError."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        if self._answer() != "done":
            raise OSError("the file server has ended")

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        """Unmounts and removes the folder."""
        _SERVERS.pop(self.folder, None)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        with contextlib.suppress(OSError):
            os.rmdir(self.folder)

    def __enter__(self) -> FileServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def main() -> int:
    folder, size = sys.argv[1], int(sys.argv[2])
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    except OSError as failure:
        print(f"{DEVICE}: {failure.strerror}", file=sys.stderr)
        return 1
    # Users of the container other than root are to read it, too.
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"hanglab", folder.encode(), b"fuse", _NOSUID | _NODEV, options.encode()):
        print(f"mount: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
        return 1
    try:
        print("ready", flush=True)
        _serve(device, SingleFile(size))
    finally:
        libc.umount2(folder.encode(), _DETACH)
    return 0


def _serve(device: int, served: SingleFile) -> None:
    answering = True
    while True:
        ready, _, _ = select.select([sys.stdin, *([device] if answering else [])], [], [])
        if sys.stdin in ready:
            order = os.read(sys.stdin.fileno(), 64)
            if not order:
                return
            answering = order.endswith(b"go\n")
            print("done", flush=True)
        elif not served.serve_one(device):
            return


if __name__ == "__main__":
    sys.exit(main())
