"""The backend that a command runs its jobs on: its option, and what this machine lacks for it."""

from __future__ import annotations

from typing import Annotated

import typer

from hanglab.recorder.case.backends import RUNNABLE, backend_of


def _one_backend(given: str | None) -> str | None:
    """The name as command lines write it.  Raises UsageError for none, for several, for others."""
    if given is None:
        return None
    from hanglab.harness.errors import UsageError
    from hanglab.harness.jobs.backend_choice import read_backends

    names = read_backends(given)
    if len(names) > 1:
        raise UsageError(
            f"This command runs jobs on one backend, and not on {' and '.join(names)}.",
            f"Name one, such as --backend {names[0]}.",
        )
    return names[0]


_HELP = "Backend of the process groups; nccl needs a GPU, nccl-emulated none."
_METAVAR = f"[{'|'.join(RUNNABLE)}]"
BackendName = Annotated[
    str, typer.Option("--backend", callback=_one_backend, metavar=_METAVAR, help=_HELP)
]
#: Where something else says which it is, if the command line does not.
OptionalBackendName = Annotated[
    str | None, typer.Option("--backend", callback=_one_backend, metavar=_METAVAR, help=_HELP)
]


def require_backend(command: str, backend: str) -> None:
    """Raises MissingExtra where this machine cannot run jobs on it, with what to do about it."""
    from hanglab.harness import capabilities
    from hanglab.harness.errors import MissingExtra

    for need in ("torch", backend):
        found = capabilities.capability(need)
        if found.available:
            continue
        remedy = found.remedy
        if backend_of(need).needs_gpu:
            remedy = f"`--backend {need}-emulated` needs no GPU. {remedy or ''}".strip()
        raise MissingExtra(f"`{command}` on {backend} needs {need}: {found.reason}.", remedy)


__all__ = ["BackendName", "OptionalBackendName", "require_backend"]
