"""The recorded command: started as the user's shell would, in a process group of its own.

The group is what Ctrl-C has to wait for: a terminal sends it to the whole
foreground, and then nothing would be left to capture.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Mapping, Sequence

from hanglab.harness.errors import UsageError
from hanglab.harness.recording.relay import Streams


class NoSuchCommand(UsageError, FileNotFoundError):
    """The command cannot be run."""

    advice = "Check its name; the words after -- are run as they are, without a shell."


def check_command(words: Sequence[str]) -> None:
    """Raises NoSuchCommand if the command's program cannot be found."""
    if not words:
        raise UsageError(
            "There is no command to record.",
            "hanglab record [OPTIONS] -- torchrun --nproc-per-node 4 train.py",
        )
    if shutil.which(words[0]) is None:
        if os.path.isfile(words[0]):
            raise NoSuchCommand(
                f"{words[0]} is not executable.", f"For example: -- python {words[0]}"
            )
        raise NoSuchCommand(f"The command {words[0]} does not exist.")


class RecordedCommand:
    """A child process and its group.  Raises NoSuchCommand, OSError."""

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        streams: Streams,
        ignored: Sequence[signal.Signals],
    ) -> None:
        actions = []
        if streams.output is not None:
            actions.append((os.POSIX_SPAWN_DUP2, streams.output, 1))
        if streams.error is not None:
            actions.append((os.POSIX_SPAWN_DUP2, streams.error, 2))
        default = {signal.SIGPIPE, signal.SIGXFSZ, *_CAUGHT} - set(ignored)
        try:
            self.pid = os.posix_spawnp(
                words[0],
                list(words),
                dict(environment),
                file_actions=actions,
                setpgroup=0,
                setsigmask=(),
                setsigdef=sorted(default),
            )
        except OSError as error:
            raise NoSuchCommand(f"{words[0]} cannot be run: {error.strerror}.") from error
        #: As waitpid gives it, once it has ended.
        self.status: int | None = None
        self._has_terminal = False

    @property
    def code(self) -> int:
        """Exit code as a shell gives it: 128 and the signal's number where a signal ended it."""
        assert self.status is not None
        if os.WIFSIGNALED(self.status):
            return 128 + os.WTERMSIG(self.status)
        return os.WEXITSTATUS(self.status)

    def poll(self) -> bool:
        """True if it has ended.  One that stops because it reads the terminal gets it."""
        if self.status is not None:
            return True
        with contextlib.suppress(ChildProcessError):
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            if pid and os.WIFSTOPPED(status):
                if os.WSTOPSIG(status) in (signal.SIGTTIN, signal.SIGTTOU):
                    self._take_foreground()
            elif pid:
                self.status = status
        return self.status is not None

    def _take_foreground(self) -> None:
        """From here on Ctrl-C goes to the command itself, as with ``fg`` in a shell."""
        with contextlib.suppress(OSError):
            os.tcsetpgrp(0, self.pid)
            self._has_terminal = True
        self.signal_group(signal.SIGCONT)

    def give_terminal_back(self) -> None:
        if not self._has_terminal:
            return
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        with contextlib.suppress(OSError):
            os.tcsetpgrp(0, os.getpgrp())
        signal.signal(signal.SIGTTOU, before)
        self._has_terminal = False

    def signal(self, number: int) -> None:
        if self.status is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)

    def signal_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


#: Signals that hanglab handles itself: the command gets them in their own time.
_CAUGHT = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTSTP,
    signal.SIGWINCH,
    signal.SIGTTOU,
)
