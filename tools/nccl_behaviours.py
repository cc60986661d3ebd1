"""The column ``confirmed`` of the table of behaviours in ``docs/nccl-emulated.md``.

``make gpu`` runs tests of the emulated device on NCCL, where there is a GPU, and leaves what came
of each in ``artifacts/nccl-behaviours.json``.  ``python -m tools.nccl_behaviours [FILE]`` keeps
that as ``docs/nccl-behaviours.json``, and writes the column after it.  A test compares the two.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_DOCS = Path(__file__).parents[1] / "docs"
PAGE = _DOCS / "nccl-emulated.md"
KEPT = _DOCS / "nccl-behaviours.json"
_ROW = re.compile(r"^(\| .* \| .* \| )(.*)( \| )([^|]*)( \|)$")
_TEST = re.compile(r"`(test_[^`]*)`")


def confirmed(tests: str, outcomes: Mapping[str, Any]) -> str:
    """Content of the column in the row of these tests, as the table writes them."""
    results: dict[str, str] = outcomes.get("tests", {})
    came = [
        result
        for written in _TEST.findall(tests)
        for name, result in results.items()
        if _is_meant(written, name)
    ]
    if not came:
        return "no"
    if any(result != "passed" for result in came):
        return f"differs ({outcomes['device']})"
    return f"yes ({outcomes['device']})"


def _is_meant(written: str, name: str) -> bool:
    """True if the table means the test: it shortens names by dots, and names parameters or none."""
    begin, _, end = written.partition("...")
    return (
        name.startswith(begin) and name.endswith(end)
        if "..." in written
        else (name == written or name.startswith(f"{written}["))
    )


def with_column(page: str, outcomes: Mapping[str, Any]) -> str:
    """The page with the column as the outcomes have it."""
    lines = page.splitlines(keepends=True)
    for number, line in enumerate(lines):
        row = _ROW.match(line.rstrip("\n"))
        if row is not None and _TEST.search(row[2]):
            lines[number] = f"{row[1]}{row[2]}{row[3]}{confirmed(row[2], outcomes)}{row[5]}\n"
    return "".join(lines)


def main() -> None:
    if len(sys.argv) > 1:
        # Kept as they were found: a machine's own folders are in none of it.
        outcomes = json.loads(Path(sys.argv[1]).read_text())
        KEPT.write_text(json.dumps(outcomes, indent=1, sort_keys=True) + "\n")
    PAGE.write_text(with_column(PAGE.read_text(), json.loads(KEPT.read_text())))


if __name__ == "__main__":
    main()
