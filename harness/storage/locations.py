"""Places of URLs: a file system of fsspec's and a path in it."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hanglab.harness.errors import MissingExtra, UsageError
from hanglab.harness.storage.errors import StorageError
from hanglab.recorder.case.file_system_space import NO_SPACE

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

Outcome = TypeVar("Outcome")

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
#: What `pip install` brings a protocol with, where it is not the package of fsspec's own words.
_PACKAGES = {"s3": "'hanglab[scale]'", "s3a": "'hanglab[scale]'"}
#: So that a store that does not answer is told in seconds; what is asked again is ours to say.
_S3: dict[str, Any] = {
    "config_kwargs": {"connect_timeout": 5, "read_timeout": 60, "retries": {"max_attempts": 1}}
}
_OPTIONS: dict[str, dict[str, Any]] = {"s3": _S3, "s3a": _S3, "file": {"auto_mkdir": True}}
_INSTALL = re.compile(r"\b(?:[Ii]nstall|pip install) ([\w.-]+)")


def is_url(text: str) -> bool:
    """True for ``s3://bucket/case`` and the like; a path of Windows or of a file is none."""
    return _URL.match(text) is not None


@dataclass(frozen=True)
class StoredPlace:
    """A path in a file system; ``url`` is as the user wrote it."""

    url: str
    files: AbstractFileSystem
    path: str

    @property
    def name(self) -> str:
        """Last part of the path, for a folder of its own here."""
        return next(
            (p for p in reversed(re.split(r"[/:]+", self.path or self.url)) if p), "fetched"
        )

    def __truediv__(self, below: str) -> str:
        return f"{self.path.rstrip('/')}/{below}" if self.path else below


def place_of(url: str) -> StoredPlace:
    """The place of a URL.

    Raises MissingExtra where its package is not installed, UsageError where there is no such
    protocol, and StorageError where the store refuses already here.
    """
    try:
        import fsspec
    except ImportError as error:
        raise MissingExtra(
            f"{url} needs fsspec, which is not installed.", "pip install 'hanglab[scale]'"
        ) from error
    protocol = url.partition("://")[0]
    options = _OPTIONS.get(protocol, {})
    if protocol == "zip" and "::" not in url:
        url = f"zip://::file://{Path(url.removeprefix('zip://')).absolute()}"
    try:
        files, path = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        named = _INSTALL.search(str(error))
        package = _PACKAGES.get(protocol, named[1] if named else "its package")
        raise MissingExtra(
            f"{url} needs a package that is not installed: {error}.", f"pip install {package}"
        ) from error
    except ValueError as error:
        raise UsageError(
            f"{url} is no URL that can be read: {error}.",
            "file://, memory://, zip://, s3://, gs:// and az:// can, and what fsspec knows beside.",
        ) from error
    except FileNotFoundError as error:
        raise StorageError(f"{url} leads to nothing.", "Check the path.") from error
    except Exception as error:
        raise StorageError(f"{url} cannot be opened: {_reason(error)}.") from error
    return StoredPlace(url, files, path)


def asked(place: StoredPlace, question: Callable[[], Outcome]) -> Outcome:
    """Answer of a store.  Raises StorageError with its reason in a sentence.

    Where this machine's disk is full the OSError goes on: that is no fault of the store.
    """
    try:
        return question()
    except StorageError:
        raise
    except Exception as error:  # every package of a protocol has errors of its own
        if _disk_is_full(error):
            raise
        raise _in_words(place, error) from error


def _in_words(place: StoredPlace, error: Exception) -> StorageError:
    if isinstance(error, FileNotFoundError):
        return StorageError(
            f"{place.url} leads to nothing.", "Check the bucket and the path after it."
        )
    if isinstance(error, PermissionError):
        return StorageError(
            f"{place.url} is refused: {_reason(error)}.",
            "Check the credentials: AWS_PROFILE or AWS_ACCESS_KEY_ID for s3://, "
            "GOOGLE_APPLICATION_CREDENTIALS for gs://, AZURE_STORAGE_ACCOUNT_NAME for az://.",
        )
    if type(error).__name__ in _NO_CREDENTIALS:
        return StorageError(
            f"{place.url} needs credentials, and none were found.",
            "Set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or those of the "
            "store; docs/storage.md has more.",
        )
    return StorageError(f"{place.url} cannot be read: {_reason(error)}.")


def _disk_is_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in {*NO_SPACE, errno.EFBIG}


#: Of botocore, of google.auth and of azure.identity.
_NO_CREDENTIALS = frozenset(
    {"NoCredentialsError", "DefaultCredentialsError", "CredentialUnavailableError"}
)


def _reason(error: Any) -> str:
    """One line of an error's words, else its name."""
    words = str(error).strip().splitlines()
    return (words[0].rstrip(".") if words else "") or type(error).__name__


def temporary(error: BaseException) -> bool:
    """True where asking again may help: the store is away, busy or slow; no refusal, no absence."""
    if isinstance(error, (FileNotFoundError, PermissionError, NotADirectoryError, ValueError)):
        return False
    return not _disk_is_full(error) and type(error).__name__ not in _NO_CREDENTIALS
