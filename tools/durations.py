"""Writes the table of durations (`scenarios/durations.json`) from a whole run of the scenarios.

python tools/durations.py runs/latest
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

from hanglab.harness.scenarios.durations import measured_seconds, table_path


def main(run: Path) -> None:
    """Entries that the run did not pass through keep their figures."""
    seconds: Counter[str] = Counter()
    for result in json.loads((run / "results.json").read_text())["results"]:
        if result["outcome"] == "pass":
            seconds[result["scenario"]] += result["seconds"]
    found = {name: round(total, 1) for name, total in seconds.items()}
    known = measured_seconds() if table_path().exists() else {}
    table_path().write_text(json.dumps({**known, **found}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
