"""Draws a picture of the README: what `hanglab analyze` prints for a job that hangs.

python -m tools.picture docs/verdict.svg

The job is an entry of the corpus, so that the same code draws the same picture.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from hanglab.analyzer.engine import examine
from hanglab.harness.corpus.entries import unpack_entry
from hanglab.harness.report.explanation.explaining import explain_examined
from hanglab.harness.report.verdict_text import print_explanation
from tools.corpus.__main__ import CORPUS

ENTRY = "local/skipped_collective.fault"


def draw() -> str:
    """The picture as SVG, which fetches no fonts from anywhere."""
    console = Console(record=True, width=110, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as scratch:
        case = Path(scratch) / "case"
        unpack_entry(CORPUS, ENTRY, case)
        # People name a Case by its last part.
        print_explanation(console, explain_examined(examine(case), Path("case")))
    # A name made of the content would be that of the run's clock, too.
    drawn = console.export_svg(title="hanglab analyze", unique_id="verdict")
    return re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(draw())
