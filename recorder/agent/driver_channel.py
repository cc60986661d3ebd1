"""The agent's conversation with the harness, one JSON document per line.

Commands on standard input::

    {"command": "capture", "kind": "deadline|request|interrupt|exit|...", "detail": "..."}
    {"command": "exited", "rank": 1, "attempt": 0, "code": 1, "signal": null,
     "by_recorder": false, "stderr": "/path/to/log"}
    {"command": "tree", "pid": 4711}
    {"command": "adopt", "pid": 4711, "rank": 1, "world_size": 4, "attempt": 0}
    {"command": "status"}
    {"command": "interrupted"}
    {"command": "ending"}
    {"command": "several"}
    {"command": "forget"}
    {"command": "failure", "detail": "rank 3 ended with code 1"}
    {"command": "finish", "ended_by_recorder": true}

``tree`` names the process below which ranks are to be sought that did not
register; from then on the agent finds out for itself how ranks ended.
``adopt`` names a rank that nobody has recorded so far.
``interrupted`` says that the job is being sent a signal that asks it to end.
``ending`` says that whatever ends from now on is ended by hanglab.
``several`` says that from now on the job has agents on other hosts, too.
``forget`` drops the capture: what looked like a hang was none.
``failure`` tells of a rank on another host.

Events on standard output::

    {"event": "ready", "host": "n1"}
    {"event": "not_shared"}
    {"event": "rank", "rank": 1, "attempt": 0, "pid": 4711}
    {"event": "captured", "trigger": {...}, "seconds": 0.4}
    {"event": "status", "moved": false, "quiet_s": 31.5}
    {"event": "resumed"}
    {"event": "stuck"}
    {"event": "due", "kind": "no_progress", "detail": "", "quiet_s": 1.6}
    {"event": "undue"}
    {"event": "alive", "ranks": 2}
    {"event": "asked_to_end"}
    {"event": "finished", "problems": [...], "absent": [...]}

Each also has ``wall_ns``, the clock of this host.
``resumed``: what looked like a hang was none, its capture has been dropped.
``stuck``: after a capture for another reason nothing has moved for as long as
counts as a hang.  Where a job has an agent on each of several hosts, none of them
captures unasked: ``due`` says that this one would, ``undue`` that it would no
longer, ``alive`` how many ranks run here; ``resumed`` then drops nothing unless ``forget`` follows.
job.json and the manifest are left to whoever commands them, who is told
what is absent.  ``not_shared`` is the last word of one that does not see the Case.
``asked_to_end``: it was sent SIGTERM, as a scheduler sends to all of a job, and goes on.
The end of standard input is ``finish``.  Whatever goes wrong, an event follows.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any, get_args

import msgspec

from hanglab.recorder.case.records import TriggerKind
from hanglab.recorder.case.undecodable_text import encode_json

#: Kinds of captures that may be asked for.
KINDS: dict[str, TriggerKind] = {kind: kind for kind in get_args(TriggerKind)}


class Command(msgspec.Struct):
    """Any command; which fields count depends on ``command``."""

    command: str
    kind: str = "request"
    detail: str = ""
    rank: int = -1
    pid: int = 0
    attempt: int = 0
    world_size: int | None = None
    local_rank: int | None = None
    code: int | None = None
    signal: int | None = None
    by_recorder: bool = False
    stderr: str | None = None
    ended_by_recorder: bool = False


class DriverChannel:
    """Commands from standard input, where somebody gives them; events to standard output."""

    def __init__(self, listening: bool) -> None:
        #: To be polled for commands; None where nobody gives any.
        self.descriptor = 0 if listening else None
        #: Nobody speaks or listens any more.
        self.over = False
        self._pending = b""

    def read(self) -> list[Command]:
        """The commands that have come; to be called when the descriptor is readable."""
        try:
            block = os.read(0, 1 << 16)
        except OSError:
            block = b""
        self.over = self.over or not block
        *lines, self._pending = (self._pending + block).split(b"\n")
        commands = []
        for line in lines:
            if line.strip():
                try:
                    commands.append(msgspec.json.decode(line, type=Command))
                except msgspec.MsgspecError as error:
                    self.complain(f"not a command: {error}")
        return commands

    def tell(self, event: str, **content: Any) -> None:
        try:
            line = {"event": event, **content, "wall_ns": time.time_ns()}
            sys.stdout.buffer.write(encode_json(line) + b"\n")
            sys.stdout.buffer.flush()
        except (OSError, ValueError):
            self.over = True

    def complain(self, detail: str) -> None:
        self.tell("error", detail=detail)
