"""The URLs of what was fetched, for words that people read: the copies have no names of use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ORIGINS: dict[Path, str] = {}


@contextmanager
def remembered(copy: Path, url: str) -> Iterator[None]:
    """Until the context ends the copy goes by its URL."""
    _ORIGINS[copy] = url
    try:
        yield
    finally:
        del _ORIGINS[copy]


def origin(path: Path) -> str | None:
    """URL that a path is a copy of, or below one of; None where nothing was fetched."""
    return next((url for copy, url in _ORIGINS.items() if copy in (path, *path.parents)), None)


def with_origins(text: str) -> str:
    """The text, with URLs in place of the copies' paths."""
    for copy, url in _ORIGINS.items():
        text = text.replace(str(copy), url)
    return text
