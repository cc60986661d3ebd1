"""``hanglab agent``: the per-host daemon that hands profiling requests to running jobs."""

from __future__ import annotations

import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import Annotated

import typer


def agent(
    listen: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="Address to listen on, may be repeated; loopback without it. Others need a token.",
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="TCP port; 0 takes a free one.")
    ] = 1778,
    socket_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the socket that jobs look for (their KINETO_IPC_SOCKET_DIR), at the "
            "same path in containers; without it the abstract name of the host.",
        ),
    ] = None,
    output_root: Annotated[
        Path | None,
        typer.Option(help="Folder below which traces are written; the temporary folder without."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File whose content every request must carry.")
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="Certificate (PEM) to speak TLS with; needs --tls-key.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key (PEM).")] = None,
) -> int:
    """Answer processes that ask for profiling work, and people who want traces of them.

    Jobs are started with KINETO_USE_DAEMON=1 in their environment.  Dynolog's own client, dyno,
    works against it.  It runs until Ctrl-C.
    """
    from hanglab.harness.errors import HanglabError, UsageError
    from hanglab.harness.recording.endpoints import read_token
    from hanglab.recorder.profiling import agent_notes
    from hanglab.recorder.profiling.access_control import Refused
    from hanglab.recorder.profiling.service import ProfilingService, Settings
    from hanglab.recorder.system.host_name import host_name

    if (tls_certificate is None) != (tls_key is None):
        raise UsageError("TLS needs a certificate and its key.", "Give both, or neither.")
    token = read_token(token_file)
    addresses = listen or ["127.0.0.1", *_loopback6()]
    root = output_root or (socket_dir / "traces" if socket_dir else Path(tempfile.gettempdir()))
    try:
        for folder in (socket_dir, root):
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
        service = ProfilingService(
            Settings(
                root=root.resolve(),
                host=host_name(),
                socket_folder=socket_dir.resolve() if socket_dir else None,
                addresses=addresses,
                port=port,
                token=token,
                certificate=tls_certificate,
                key=tls_key,
            ),
            trouble=lambda text: print(f"hanglab: {text}", file=sys.stderr, flush=True),
        )
    except Refused as error:
        raise UsageError(f"The agent does not start: {error}.", "See --token-file.") from None
    except OSError as error:
        raise HanglabError(
            f"The agent cannot listen: {error.strerror or error}.",
            "Another agent or a dynolog daemon may run already; --port and --socket-dir choose "
            "other places.",
        ) from None
    note = None
    try:
        note = agent_notes.leave(
            agent_notes.own(
                service.port,
                addresses,
                token=token,
                authority=str(tls_certificate.resolve()) if tls_certificate else None,
                socket_folder=str(socket_dir.resolve()) if socket_dir else None,
            )
        )
    except OSError as error:
        print(f"hanglab: commands on this host will need --host: {error}", file=sys.stderr)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    print(f"listening on port {service.port}; traces go below {root}", flush=True)
    try:
        stop.wait()
    finally:
        service.close()
        if note is not None:
            agent_notes.remove(note)
    return 0


def _loopback6() -> list[str]:
    """``::1`` where the host has it: dynolog's client tries the first resolved address only."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return []
    return ["::1"]
