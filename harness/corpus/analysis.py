"""Analysis of entries, each at the same path on every machine, in several processes."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.errors import InputError
from hanglab.analyzer.verdict import Verdict
from hanglab.harness.corpus.entries import CorpusError, unpack_entry
from hanglab.harness.corpus.workers import WorkerDied, WorkerPool

#: Relative, so that a verdict that names a file says the same wherever it is given.
FOLDER = Path("job")


def analyze_entries(
    corpus: Path,
    names: Sequence[str],
    jobs: int,
    conclude: Callable[[Path], Verdict] = analyze,
    stop: threading.Event | None = None,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each name with its answer: the verdict, a refusal, or ``crash`` where there is a bug.

    An entry that cannot be unpacked has ``broken`` beside it.  Once ``stop`` is set, no more come.
    """
    function = partial(_analyze_entry, corpus.resolve(), conclude)
    pool: WorkerPool[str, dict[str, Any]] = WorkerPool(function, jobs)
    for name, answer in zip(names, pool.map(names, stop), strict=False):
        yield name, {"crash": str(answer)} if isinstance(answer, WorkerDied) else answer


def _analyze_entry(corpus: Path, conclude: Callable[[Path], Verdict], name: str) -> dict[str, Any]:
    try:
        unpack_entry(corpus, name, FOLDER)
        answer: dict[str, Any] = msgspec.json.decode(conclude(FOLDER).to_json())
        return answer
    except InputError as error:
        return {"error": str(error), "advice": error.advice}
    except CorpusError as error:
        return {"crash": str(error), "broken": True}
    except Exception as error:
        return {"crash": f"{type(error).__name__}: {error}"}
    finally:
        shutil.rmtree(FOLDER)
