"""The environment of a recorded command: the start-up hook, and torch's Flight Recorder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

#: Longest folder that Kineto can open its sockets in: it adds 53 characters to it, of the 107
#: that a socket's path may have.
_LONGEST_FOLDER = 54


def recorded_environment(
    caller: Mapping[str, str], case: Path, runtime: Path, host: Path
) -> dict[str, str]:
    """The caller's environment with what recording needs; what the caller has set stays.

    ``host`` is this host's folder in the Case.
    """
    from hanglab.recorder.rank import OWNER, hook_dir
    from hanglab.recorder.rank.flight_recorder_switches import switches
    from hanglab.recorder.rank.other_host import HOST
    from hanglab.recorder.system.host_name import host_name

    environment = {name: value for name, value in caller.items() if name != OWNER}
    environment.update(switches(environment, runtime, host))
    environment.update(profiled(environment, runtime))
    path = environment.get("PYTHONPATH")
    hook = str(hook_dir())
    environment["PYTHONPATH"] = hook if not path else hook + os.pathsep + path
    environment["HANGLAB_CASE"] = str(case)
    environment["HANGLAB_RUNTIME"] = str(runtime)
    environment[HOST] = host_name()
    return environment


def profiled(environment: Mapping[str, str], runtime: Path) -> dict[str, str]:
    """Settings that let the agent ask the processes for traces, unless the caller's daemon does.

    Writes Kineto's own settings into the runtime folder.
    """
    if "KINETO_USE_DAEMON" in environment or len(os.fsencode(runtime)) > _LONGEST_FOLDER:
        # Without its socket Kineto complains, and reads its settings anew every second: a
        # rank that hangs would look as if it moved.
        return {}
    settings = {
        "KINETO_USE_DAEMON": "1",
        "KINETO_IPC_SOCKET_DIR": str(runtime),
        "KINETO_ONDEMAND_TRACE_DIR": str(runtime),
        # Errors only: it would announce itself and each stage of a trace on the job's stderr.
        "KINETO_LOG_LEVEL": environment.get("KINETO_LOG_LEVEL", "4"),
    }
    if "KINETO_CONFIG" not in environment:
        config = runtime / "kineto.conf"
        with contextlib.suppress(OSError):
            config.write_text("ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n")
            settings["KINETO_CONFIG"] = str(config)
    return settings
