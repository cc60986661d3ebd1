"""Turns a process that was forked off a warm parent into what a fresh interpreter would be."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import types
from collections.abc import Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path

from hanglab.harness.launchers.supervision.descendants import die_with_parent
from hanglab.harness.launchers.supervision.forked_ranks import RankSpec
from hanglab.harness.rank import emulated_device

_PORT_PIPE = 3


def initialize_rank(spec: RankSpec) -> None:
    """Makes this process the rank that ``spec`` describes, up to its first line of user code."""
    os.setsid()
    die_with_parent(spec.supervisor)
    _default_signals()
    _own_files(spec)
    _own_environment(spec)
    _own_randomness()
    _own_libraries(spec.environment)
    _own_main(spec)
    os.environ["MASTER_PORT"] = _read_port()
    _start_recorder(spec)
    emulated_device.prepare()


def _default_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    # What the interpreter itself sets when it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _own_files(spec: RankSpec) -> None:
    """Standard streams of its own, line by line, and no other descriptor but the port's pipe."""
    spec.log_dir.mkdir(parents=True, exist_ok=True)
    nothing = os.open(os.devnull, os.O_RDONLY)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    out = os.open(spec.log_dir / f"rank{spec.rank}.out", flags, 0o600)
    err = os.open(spec.log_dir / f"rank{spec.rank}.err", flags, 0o600)
    port = os.dup(spec.port_pipe)
    for source, target in ((nothing, 0), (out, 1), (err, 2), (port, _PORT_PIPE)):
        # None of the sources can lie below 3: those are the root supervisor's own streams.
        if source != target:
            os.dup2(source, target, inheritable=target < _PORT_PIPE)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > _PORT_PIPE:
            with contextlib.suppress(OSError):  # the one that listed the folder
                os.close(descriptor)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True)


def _own_environment(spec: RankSpec) -> None:
    os.environ.clear()
    os.environ.update(spec.environment)
    os.chdir(spec.folder)
    # Asked for while the parent imported its modules, in another environment.
    tempfile.tempdir = None


def _own_randomness() -> None:
    """``random`` reseeds itself after a fork; torch and numpy were seeded when imported."""
    import torch

    torch.default_generator.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def _own_libraries(environment: Mapping[str, str]) -> None:
    """Undoes what importing libraries in the parent has settled from its environment."""
    import multiprocessing.process

    import torch
    from torch._C._distributed_c10d import set_debug_level_from_env

    multiprocessing.set_start_method(None, force=True)
    multiprocessing.process.ORIGINAL_DIR = os.getcwd()  # type: ignore[attr-defined]
    multiprocessing.current_process().authkey = os.urandom(32)
    with contextlib.suppress(ValueError):
        torch.set_num_threads(int(environment.get("OMP_NUM_THREADS", "1")))
    set_debug_level_from_env()


def _own_main(spec: RankSpec) -> None:
    """``__main__``, ``sys.argv`` and ``sys.path`` of ``python script.py arguments``."""
    script = str(spec.script)
    main = types.ModuleType("__main__")
    main.__file__ = script
    main.__loader__ = SourceFileLoader("__main__", script)
    main.__dict__.update(__builtins__=sys.modules["builtins"], __cached__=None)
    main.__dict__.setdefault("__annotations__", {})
    sys.modules["__main__"] = main
    sys.argv = [script, *spec.arguments]
    sys.orig_argv = [sys.executable, *sys.argv]
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, str(spec.script.parent))


def _read_port() -> str:
    """The port of the rendezvous, as soon as the supervisor has opened it."""
    with open(_PORT_PIPE, "rb") as pipe:
        port = pipe.readline().decode().strip()
    if not port:
        os._exit(1)  # the supervisor is gone or has given up
    return port


def _start_recorder(spec: RankSpec) -> None:
    """Recording never decides whether a job runs."""
    try:
        from hanglab.recorder import rank as recorder

        recorder.start(
            spec.environment["HANGLAB_CASE"],
            rank=spec.rank,
            world_size=spec.world_size,
            local_rank=spec.rank,
        )
    except Exception as error:
        print(f"hanglab: not recorded: {type(error).__name__}: {error}", file=sys.stderr)


def script_code(script: Path) -> types.CodeType:
    """Raises what the interpreter would: OSError, SyntaxError."""
    from hanglab.recorder.rank.branches.recording import RECORDING

    source = script.read_bytes()
    recorded = RECORDING.script_code(str(script), source)
    if recorded is not None:
        return recorded
    code = compile(source, str(script), "exec", dont_inherit=True)
    assert isinstance(code, types.CodeType)
    return code
