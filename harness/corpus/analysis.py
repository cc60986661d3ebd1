"""Analysis of entries, each at the same path on every machine, in several processes."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

import msgspec

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.errors import InputError
from hanglab.analyzer.verdict import Verdict
from hanglab.harness.corpus.entries import unpack_entry

#: Relative, so that a verdict that names a file says the same wherever it is given.
_FOLDER = Path("job")


def analyze_entries(
    corpus: Path,
    names: Sequence[str],
    jobs: int,
    conclude: Callable[[Path], Verdict] = analyze,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each name with its answer: the verdict, a refusal, or ``crash`` where there is a bug."""
    with (
        tempfile.TemporaryDirectory(prefix="hanglab-corpus-") as scratch,
        # Threads of a test runner do not go well with forking.
        ProcessPoolExecutor(
            jobs, multiprocessing.get_context("spawn"), _enter_own_folder, (scratch,)
        ) as pool,
    ):
        yield from zip(
            names,
            pool.map(_analyze_entry, repeat(corpus.resolve()), names, repeat(conclude)),
            strict=True,
        )


def _enter_own_folder(scratch: str) -> None:
    os.chdir(tempfile.mkdtemp(dir=scratch))


def _analyze_entry(corpus: Path, name: str, conclude: Callable[[Path], Verdict]) -> dict[str, Any]:
    unpack_entry(corpus, name, _FOLDER)
    try:
        answer: dict[str, Any] = msgspec.json.decode(conclude(_FOLDER).to_json())
        return answer
    except InputError as error:
        return {"error": str(error), "advice": error.advice}
    except Exception as error:
        return {"crash": f"{type(error).__name__}: {error}"}
    finally:
        shutil.rmtree(_FOLDER)
