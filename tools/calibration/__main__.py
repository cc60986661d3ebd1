"""Fit the probabilities of findings on the corpus and on played trials.

python -m tools.calibration [--trials N] [--jobs N] [--check] [--diagram FILE]

Writes ``analyzer/calibration.json``, and prints the Brier score and the reliability of the
detectors' strengths and of the fitted probabilities, each finding left out in turn.  With
``--check`` nothing is written.  Accept the corpus anew after it: every verdict has a probability.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hanglab.analyzer.calibration import TABLE
from hanglab.harness.evaluation.reliability import brier, reliability
from tools.calibration.diagram import draw
from tools.calibration.fitting import fit, left_out
from tools.calibration.labelled_findings import LabelledFinding, observe
from tools.calibration.played_trials import observe_trials
from tools.corpus.__main__ import CORPUS

#: Seeds of trials, apart from those that rules were mended on.
_FIRST_SEED = 2_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=5000, help="played trials (default 5000)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--check", action="store_true", help="write no table")
    parser.add_argument("--diagram", type=Path, help="SVG to draw the reliability into")
    options = parser.parse_args()
    observations = list(observe(CORPUS, options.jobs))
    seeds = range(_FIRST_SEED, _FIRST_SEED + options.trials)
    observations += observe_trials(seeds, options.jobs)
    table = fit(observations)
    right = [one.right for one in observations]
    series = {
        "strengths of detectors": [one.strength for one in observations],
        "fitted probabilities, left out": left_out(table, observations),
    }
    for title, predicted in series.items():
        _print(title, predicted, right)
    if options.diagram is not None:
        draw({title: reliability(said, right) for title, said in series.items()}, options.diagram)
    print(f"prior: {table.prior:g} findings; rows: {len(table.rows)}")
    _print_surprises(observations)
    if not options.check:
        TABLE.write_bytes(msgspec.json.format(msgspec.json.encode(table), indent=1) + b"\n")


def _print(title: str, predicted: Sequence[float], right: Sequence[float]) -> None:
    print(f"{title}: {len(right)} findings, Brier score {brier(predicted, right):.4f}")
    for one in reliability(predicted, right):
        print(f"  said {one.predicted:.2f}  right {one.right:.2f}  findings {one.count}")


def _print_surprises(observations: Sequence[LabelledFinding]) -> None:
    """Causes of findings that were sure and wrong, the strongest reason to doubt them."""
    causes = sorted({one.cause for one in observations if one.sure and one.right == 0})
    for cause in causes:
        mine = [one for one in observations if one.cause == cause and one.sure]
        wrong = sum(one.right == 0 for one in mine)
        print(f"  {cause}: {wrong} of {len(mine)} that were sure were wrong")


if __name__ == "__main__":
    main()
