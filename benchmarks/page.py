"""Pages and traces of large jobs: seconds, processor time and megabytes; first paint in Chromium.

python benchmarks/page.py
"""

from __future__ import annotations

import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

from hanglab.harness.cli import main as hanglab

JOBS = (("world", 64), ("3d", 64), ("world", 1024), ("3d", 1024))
ENTRIES = 2000
#: Of a page of 1,024 ranks and of one of 64: seconds, and megabytes.  Below these it is a page
#: that somebody waits for, and can be mailed.
MOST_S = 20
MOST_MB = {64: 3, 1024: 15}
#: Milliseconds until something can be read.
MOST_PAINT_MS = 2000


def _used() -> float:
    """Processor time of this process and of those that it has waited for, in seconds."""
    own, below = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + below.ru_utime + below.ru_stime


def _first_paint(page: Path) -> str:
    """Milliseconds until something can be read; "-" without a browser."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        return "-"
    from playwright.sync_api import sync_playwright

    asked = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": 1280, "height": 900})
        shown.goto(page.as_uri())
        shown.wait_for_selector("html[data-drawn]", state="attached", timeout=120_000)
        found = f"{shown.evaluate(asked):.0f} ms"
        browser.close()
    return found


def main() -> None:
    paint = f"first paint (most {MOST_PAINT_MS:,} ms)"
    print(
        f"| layout | ranks | page (most {MOST_S} s) | its processor time | size | most | {paint} |"
    )
    print("|---|---|---|---|---|---|---|")
    for layout, ranks in JOBS:
        with tempfile.TemporaryDirectory() as scratch:
            dumps, page = Path(scratch) / "dumps", Path(scratch) / "page.html"
            made = ["simulate", "--ranks", str(ranks), "--fault", "skip", "--layout", layout]
            if hanglab([*made, "--operations", str(ENTRIES), "-o", str(dumps)]):
                sys.exit("no dumps were made")
            begun, used = time.perf_counter(), _used()
            if hanglab(["report", str(dumps), "-o", str(page)]):
                sys.exit("no page was made")
            took, used = time.perf_counter() - begun, _used() - used
            size = page.stat().st_size / 1e6
            print(
                f"| {layout} | {ranks} | {took:.1f} s | {used:.1f} s | {size:.2f} MB "
                f"| {MOST_MB[ranks]} MB | {_first_paint(page)} |"
            )


if __name__ == "__main__":
    main()
