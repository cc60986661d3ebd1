from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from recorder_support import Job, WarmParent, short_folder

from hanglab.recorder.rank.native import WRITER

if TYPE_CHECKING:
    from hanglab.recorder.rank.native.writer import Writer

StartJob = Callable[..., Job]


@pytest.fixture(params=["native", "python"])
def writer(request: pytest.FixtureRequest) -> type[Writer] | None:
    """What writes sections and steps: the extension module, and the code in Python."""
    if request.param == "python":
        return None
    if WRITER is None:
        pytest.skip(
            "there is no extension module: install a C compiler and Python's headers, then "
            "install hanglab again, without HANGLAB_PURE_PYTHON"
        )
    return WRITER


@pytest.fixture(scope="session")
def warm_parent() -> Iterator[WarmParent]:
    pytest.importorskip("torch")
    warm_parent = WarmParent()
    try:
        yield warm_parent
    finally:
        warm_parent.close()


@pytest.fixture
def start_job(warm_parent: WarmParent, tmp_path: Path) -> Iterator[StartJob]:
    """``start_job(program, world_size, environment={}, agent=None, record=True)``."""
    with ExitStack() as stack:

        def start(
            program: str,
            world_size: int = 2,
            environment: dict[str, str] | None = None,
            agent: tuple[str, ...] | None = None,
            record: bool = True,
        ) -> Job:
            runtime = stack.enter_context(short_folder())
            folder = tmp_path / f"job{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            job = Job(
                warm_parent, folder, runtime, program, world_size, environment or {}, agent, record
            )
            stack.callback(job.close)
            return job

        yield start
