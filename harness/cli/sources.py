"""Arguments that name a Case or a folder of dumps: a path, or a URL, which is fetched."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

_FETCHED = ExitStack()


def source_path(text: str) -> Path:
    """The path; of a URL that of a copy, which :func:`close_sources` removes."""
    if "://" not in text:
        return Path(text)
    from hanglab.harness.storage.locations import is_url

    if not is_url(text):
        return Path(text)
    from hanglab.harness.report.transfer_progress import transfer_progress
    from hanglab.harness.storage.fetching import fetched

    with transfer_progress(f"files of {text} fetched") as told:
        return _FETCHED.enter_context(fetched(text, told))


def close_sources() -> None:
    """Removes the copies of what was fetched."""
    _FETCHED.close()
