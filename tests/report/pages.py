"""Pages of corpus entries and of made-up jobs, for the tests of pages."""

from __future__ import annotations

import json
import shutil
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from hanglab.harness.corpus.entries import unpack_entry
from hanglab.harness.report.page.examined_job import load_job
from hanglab.harness.report.page.gathering import page_data
from hanglab.harness.report.page.records import PageData
from hanglab.harness.report.page.rendering import render_page
from tools.corpus.__main__ import CORPUS


def unpacked(name: str, folder: Path) -> Path:
    """The folder of a corpus entry."""
    job = folder / "job"
    if not job.exists():
        unpack_entry(CORPUS, name, job)
    return job


def data_of(job: Path) -> PageData:
    return page_data(load_job(job))


def page_of(job: Path) -> str:
    return render_page(data_of(job))


def json_of(page: str) -> dict[str, Any]:
    """The data that lies in a page."""
    found: dict[str, Any] = json.loads(PageText(page).scripts["hanglab-data"])
    return found


@cache
def entry_of_each_cause() -> dict[str, str]:
    """Cause -> an entry of the corpus with that verdict, a Case where there is one."""
    found: dict[str, str] = {}
    for path in sorted(CORPUS.glob("*/*.json"), key=lambda path: "rendered" in path.parts):
        if path.parent.name in ("damaged", "hostile", "fuzz"):
            continue
        verdict = json.loads(path.read_bytes()).get("verdict") or {}
        cause = verdict.get("cause") or verdict.get("status")
        if cause:
            found.setdefault(cause, str(path.relative_to(CORPUS))[: -len(".json")])
    return found


class PageText(HTMLParser):
    """What a reader without scripts gets: texts by section, elements, and data in scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.sections: dict[str, str] = {}
        self.scripts: dict[str, str] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._section = ""
        self._script: str | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag == "section":
            self._section = attributes.get("id") or ""
        if tag in ("script", "style"):
            self._script = attributes.get("id") or tag

    def handle_endtag(self, tag: str) -> None:
        if tag == "section":
            self._section = ""
        if tag in ("script", "style"):
            self._script = None

    def handle_data(self, data: str) -> None:
        if self._script is not None:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data
        else:
            self.sections[self._section] = self.sections.get(self._section, "") + data


def chromium() -> str | None:
    """The browser that tests look at pages with, as Debian and Ubuntu name it."""
    return shutil.which("chromium") or shutil.which("chromium-browser")
