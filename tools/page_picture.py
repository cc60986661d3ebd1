"""Draws the picture at the top of the README: the page of a hung job, as Chromium shows it.

python -m tools.page_picture docs/report.png

The job is an entry of the corpus, so that the same code draws the same picture.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from hanglab.harness.corpus.entries import unpack_entry
from hanglab.harness.report.page.examined_job import load_job
from hanglab.harness.report.page.gathering import page_data
from hanglab.harness.report.page.rendering import render_page
from tools.corpus.__main__ import CORPUS

ENTRY = "local/skipped_collective.fault"
#: From the verdict to the timeline.
WIDTH, HEIGHT = 1180, 1640


def main(picture: str) -> None:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        sys.exit("There is no chromium to draw with: apt-get install chromium")
    with tempfile.TemporaryDirectory() as scratch:
        case = Path(scratch) / "hanglab-case"
        unpack_entry(CORPUS, ENTRY, case)
        page = case.with_name("page.html")
        page.write_text(render_page(page_data(load_job(case))).replace(f"{scratch}/", ""))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            shown = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            shown.goto(page.as_uri())
            shown.wait_for_selector("html[data-drawn]", state="attached")
            shown.screenshot(path=picture)
            browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
