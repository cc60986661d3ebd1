"""Progress of files on their way to or from a store, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def transfer_progress(what: str) -> Iterator[Callable[..., None]]:
    """A function to be told how many files are through, and of how many."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.completed} of {task.total} " + what),
        BarColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task("", total=None)
        yield lambda done, whole: bar.update(task, completed=done, total=whole)
