"""Asking Docker for something, with its refusals as the OSError that faults raise."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def asking(what: str) -> Iterator[None]:
    """Raises OSError for whatever Docker, or the way to it, has against it."""
    try:
        yield
    except OSError as failure:
        raise OSError(f"{what}: {failure.strerror or failure}") from None
    except Exception as failure:  # the SDK's errors, without importing it where nobody has it
        said = getattr(failure, "explanation", None) or str(failure)
        raise OSError(f"{what}: {said}") from None
