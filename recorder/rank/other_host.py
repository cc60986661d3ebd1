"""Processes of a recorded job on another host than that of ``hanglab record``.

Of what they inherit the Case alone is theirs, where both hosts share its folder; sockets, pipes and
dumps need folders of their own host, in which its agent looks for them.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.system import socket_folders
from hanglab.recorder.system.host_name import host_name

#: Name of the host that the environment's folders are for.
HOST = "HANGLAB_HOST"
#: Traces are asked for over a socket that Kineto looks for before this host's agent is there.
_KINETO = (
    "KINETO_USE_DAEMON",
    "KINETO_IPC_SOCKET_DIR",
    "KINETO_ONDEMAND_TRACE_DIR",
    "KINETO_CONFIG",
)


def enter_host(environment: MutableMapping[str, str]) -> None:
    """Have the environment of a process name folders of this host, where it names another's.

    Where the Case's folder is not there, nothing is recorded: a folder of that name on this
    host's own disk would be nobody's.  Raises OSError.
    """
    told, own = environment.get(HOST), host_name()
    if not told or told == own:
        return
    case, runtime = Path(environment["HANGLAB_CASE"]), environment.get("HANGLAB_RUNTIME", "")
    theirs, ours = (folders.host_folder(case, host) for host in (told, own))
    if not theirs.is_dir():
        del environment["HANGLAB_CASE"]
        return
    if environment.get("KINETO_IPC_SOCKET_DIR") == runtime:
        for name in _KINETO:
            environment.pop(name, None)
    here = socket_folders.of_host(case, own)
    socket_folders.make_meeting(here)
    folders.make_private(ours / files.TIMEOUT_DUMPS.name)
    for name, value in list(environment.items()):
        for old, new in ((str(theirs), ours), (runtime, here)):
            if old and (value == old or value.startswith(old + os.sep)):
                environment[name] = f"{new}{value[len(old) :]}"
    environment[HOST] = own
