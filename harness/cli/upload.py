"""``hanglab upload``: a Case sent to a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def upload(
    case: Annotated[Path, typer.Argument(metavar="CASE", help="Folder of a Case, or of dumps.")],
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Where it is to lie, such as s3://bucket/name.")
    ],
) -> int:
    """Send a Case to object storage; what has arrived already is not sent again."""
    from hanglab.harness.errors import UsageError
    from hanglab.harness.storage.locations import is_url

    if not is_url(url):
        raise UsageError(f"{url} is no URL.", "Give one such as s3://bucket/name.")
    if not case.is_dir():
        raise UsageError(f"{case} is no folder.", "Give the folder of a Case.")
    print(send(case, url))
    return 0


def send(case: Path, url: str) -> str:
    """Uploads with progress; a sentence that says what has arrived where.

    Raises StorageError, MissingExtra and UsageError.
    """
    from rich.filesize import decimal

    from hanglab.harness.report.transfer_progress import transfer_progress
    from hanglab.harness.storage.uploading import upload as sent

    with transfer_progress(f"files sent to {url}") as told:
        done = sent(case, url, told)
    again = f", {done.files - done.sent} of them lay there" if done.sent < done.files else ""
    return f"{done.url}: {done.files} files, {decimal(done.size)}{again}"
