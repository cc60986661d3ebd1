"""Fit the probabilities of findings on the corpus and on random trials.

python -m tools.calibration [--trials N] [--jobs N] [--check]

Writes ``analyzer/calibration.json``, and prints the Brier score and the reliability of the
detectors' strengths and of the fitted probabilities, each finding left out in turn.  With
``--check`` nothing is written.  Accept the corpus anew after it: every verdict has a probability.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hanglab.analyzer.calibration import TABLE
from tools.calibration.fitting import brier, fit, left_out, reliability
from tools.calibration.labelled_findings import LabelledFinding, observe
from tools.corpus.__main__ import CORPUS
from tools.corpus.trials import add_trials

#: Seeds of trials, apart from those of the corpus.
_FIRST_SEED = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=2000, help="random trials (default 2000)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--check", action="store_true", help="write no table")
    options = parser.parse_args()
    observations = list(observe(CORPUS, options.jobs))
    with tempfile.TemporaryDirectory(prefix="hanglab-calibration-") as folder:
        add_trials(Path(folder), range(_FIRST_SEED, _FIRST_SEED + options.trials))
        observations += observe(Path(folder), options.jobs)
    table = fit(observations)
    right = [one.right for one in observations]
    _print("strengths of detectors", [one.strength for one in observations], right)
    _print("fitted probabilities, left out", left_out(table, observations), right)
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
