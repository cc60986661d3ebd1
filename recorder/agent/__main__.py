"""``python -m hanglab.recorder.agent``."""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path

from hanglab.recorder.agent.driver_channel import DriverChannel
from hanglab.recorder.agent.session import Session
from hanglab.recorder.agent.standalone import StandaloneAgent
from hanglab.recorder.agent.torch_dumps import TorchDumps
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.system import socket_folders
from hanglab.recorder.system.host_name import host_name


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hanglab.recorder.agent")
    parser.add_argument("--case", type=Path, required=True, help="folder of the Case")
    parser.add_argument(
        "--runtime",
        type=Path,
        default=None,
        help="folder of the ranks' sockets; without it the one for this host's ranks of the Case",
    )
    parser.add_argument(
        "--beside", default=None, metavar="HOST", help="folder of a host that the Case must have"
    )
    parser.add_argument(
        "--first-attempt", type=int, default=0, help="ranks of earlier ones are not looked at"
    )
    parser.add_argument(
        "--unaided", action="store_true", help="nobody tells how ranks have ended"
    )  # fmt: skip
    parser.add_argument("--world-size", type=int, default=None)
    parser.add_argument(
        "--hang-after", type=float, default=30.0, help="seconds without movement (default 30)"
    )
    parser.add_argument(
        "--dumps", type=Path, default=None, help="prefix of the dumps that torch writes by itself"
    )
    parser.add_argument("--pipes", default=None, help="prefix of torch's pipes")
    parser.add_argument("--stderr", type=Path, default=None, help="standard error of the job")
    parser.add_argument(
        "--stderr-without",
        type=Path,
        default=None,
        help="texts in it that are not the job's, each behind it a NUL",
    )
    parser.add_argument("--stderr-from", type=int, default=0, help="byte at which it begins")
    parser.add_argument(
        "--profile-slow", type=float, default=None, help="trace what takes this many medians"
    )
    parser.add_argument(
        "--alone", type=int, default=None, metavar="PID",
        help="nobody gives commands; PID started the ranks",
    )  # fmt: skip
    parser.add_argument(
        "--several", action="store_true", help="the job has agents on other hosts, too"
    )
    options = parser.parse_args()
    # Nobody's child: whoever started it goes on as if it were not there.
    if options.alone is not None and os.fork():
        os._exit(0)
    # Ctrl-C reaches every process of the terminal's group; the harness decides what ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if options.beside is not None and not _has_host(options.case, options.beside):
        DriverChannel(listening=False).tell("not_shared")
        return
    runtime, held = options.runtime, None
    if runtime is None:
        runtime = socket_folders.of_host(options.case, host_name())
        held = socket_folders.own_meeting(runtime)
        host = folders.host_folder(options.case, host_name())
        options.dumps = options.dumps or host / files.TIMEOUT_DUMPS.name / "rank_"
        options.pipes = options.pipes or str(runtime / "dump_")
    session = Session(
        options.case,
        runtime,
        options.world_size,
        options.hang_after,
        TorchDumps(options.dumps, options.pipes),
        (options.stderr, options.stderr_from, options.stderr_without)
        if options.stderr is not None
        else None,
        options.profile_slow,
        StandaloneAgent(options.alone) if options.alone is not None else None,
        options.several,
        options.unaided,
        options.first_attempt,
    )
    if options.alone is None:
        # A scheduler that ends a job tells its ranks and this process alike.
        signal.signal(signal.SIGTERM, lambda *_: session.ask_to_end())
    session.run()
    if held is not None:
        os.close(held)
        socket_folders.remove_unused(runtime, meeting=True)


def _has_host(case: Path, host: str) -> bool:
    """True if this is the Case that somebody on another host means."""
    return folders.host_folder(case, host).is_dir()


if __name__ == "__main__":
    main()
