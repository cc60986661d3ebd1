"""Which section a thread stands in, as the sampler of lines asks."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hanglab.recorder.case import layout
from hanglab.recorder.rank.progress_file import ProgressFile
from hanglab.recorder.rank.sections import SectionFactory, section_type

if TYPE_CHECKING:
    from hanglab.recorder.rank.native.writer import Writer


@pytest.fixture
def section(tmp_path: Path, writer: type[Writer] | None) -> SectionFactory:
    return section_type(ProgressFile(tmp_path / "progress.bin", writer))


def test_the_innermost_section_of_a_thread(section: SectionFactory) -> None:
    here = threading.get_ident()
    assert section.innermost(here) == ""
    with section("outer"):
        with section("inner é"):
            assert section.innermost(here) == "inner é"
            assert section.innermost(here + 1) == ""
        assert section.innermost(here) == "outer"
    assert section.innermost(here) == ""


def test_other_threads_may_have_taken_all_rows(section: SectionFactory) -> None:
    def enter() -> None:
        for number in range(layout.OPEN.capacity + 3):
            section(f"section {number}").__enter__()

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    with section("without a row"):
        assert section.innermost(threading.get_ident()) == ""
