"""Draws the picture of the README: what `hanglab analyze` prints for a Case.

python tools/picture.py runs/latest/skipped_collective/fault/0 docs/verdict.svg
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console

from hanglab.analyzer.engine import examine
from hanglab.harness.report.explanation.explaining import explain_examined
from hanglab.harness.report.verdict_text import print_explanation


def main(case: str, picture: str) -> None:
    console = Console(record=True, width=110, file=io.StringIO(), force_terminal=True)
    # People name a Case by its last part.
    print_explanation(console, explain_examined(examine(Path(case)), Path("case")))
    drawn = console.export_svg(title="hanglab analyze")
    # A picture in a repository must not fetch fonts from anywhere.
    Path(picture).write_text(re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL))


if __name__ == "__main__":
    main(*sys.argv[1:])
