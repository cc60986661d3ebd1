"""The error of a place that cannot be read or written."""

from __future__ import annotations

from hanglab.harness.errors import HanglabError


class StorageError(HanglabError, OSError):
    """A URL leads to nothing, or to a store that refuses or does not answer."""

    advice = "docs/storage.md says which URLs there are, and where their credentials come from."

    # OSError would print its arguments otherwise.
    __str__ = Exception.__str__
