"""Command line of the corpus: check its verdicts, accept new ones, add entries.

python -m tools.corpus check [--accept]     compare with the frozen verdicts
python -m tools.corpus runs RUNS            add the Cases of a run of scenarios
python -m tools.corpus trials --seeds N        add dumps of trials
python -m tools.corpus damaged --seeds N    add damaged copies of entries that are there
python -m tools.corpus add NAME FOLDER ...  add one folder

What is added has no verdict until ``check --accept``.  Exit code 1 if one differs.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from hanglab.harness.corpus.analysis import analyze_entries
from hanglab.harness.corpus.comparison import Agreement, compare_with_truth, differences
from hanglab.harness.corpus.entries import (
    CorpusEntry,
    Truth,
    add_entry,
    entry_names,
    read_entry,
    write_entry,
)
from tools.corpus.damage import add_damaged
from tools.corpus.trials import add_trials
from tools.corpus.zoo import add_runs

CORPUS = Path(__file__).parents[2] / "tests" / "corpus"


def check(corpus: Path, jobs: int, *, accept: bool = False) -> int:
    """Print what differs and, by origin, how many verdicts agree with the truth."""
    names = entry_names(corpus)
    if not names:
        print(f"{corpus} holds no entry; `make corpus` collects some.")
        return 1
    differing = 0
    scores: defaultdict[str, Counter[Agreement]] = defaultdict(Counter)
    for name, answer in analyze_entries(corpus, names, jobs):
        entry = read_entry(corpus, name)
        scores[name.partition("/")[0]][compare_with_truth(answer, entry.truth)] += 1
        if entry.verdict is not None and not list(differences(entry.verdict, answer)):
            continue
        crashed = "crash" in answer
        takes = accept and not crashed
        print(f"{name}:{' accepted' if takes else ''}")
        for line in _differences(entry, answer):
            print(f"    {line}")
        if takes:
            entry.verdict = answer
            write_entry(corpus, name, entry)
        else:
            differing += 1
    _print_scores(scores)
    print(f"{len(names)} entries, {differing} differ")
    return 1 if differing else 0


def _differences(entry: CorpusEntry, answer: dict[str, Any]) -> Iterable[str]:
    if entry.verdict is not None or "crash" in answer:
        return differences(entry.verdict, answer)
    return [f"new: {answer.get('summary', answer.get('error'))}"]


def _print_scores(scores: dict[str, Counter[Agreement]]) -> None:
    print(f"{'verdict and truth':20}" + "".join(f"{one.value:>14}" for one in Agreement))
    for origin, counts in scores.items():
        print(f"{origin:20}" + "".join(f"{counts[one]:14}" for one in Agreement))


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "tools.corpus", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="default: tests/corpus")
    commands = parser.add_subparsers(dest="command", required=True)
    checking = commands.add_parser("check")
    checking.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    checking.add_argument("--accept", action="store_true", help="freeze today's verdicts")
    commands.add_parser("runs").add_argument("runs", type=Path, help="such as runs/latest")
    commands.add_parser("trials").add_argument("--seeds", type=int, required=True)
    commands.add_parser("damaged").add_argument("--seeds", type=int, required=True)
    adding = commands.add_parser("add")
    adding.add_argument("name", help="ORIGIN/NAME")
    adding.add_argument("folder", type=Path)
    adding.add_argument("--source", required=True, help="where it comes from, in words")
    adding.add_argument("--licence", required=True, help="SPDX identifier")
    adding.add_argument("--truth", default="null", help="JSON list of status, cause, culprits")
    return parser


def main() -> int:
    options = _options().parse_args()
    if options.command == "check":
        return check(options.corpus, options.jobs, accept=options.accept)
    if options.command == "runs":
        names = add_runs(options.corpus, options.runs)
    elif options.command == "trials":
        names = add_trials(options.corpus, range(options.seeds))
    elif options.command == "damaged":
        names = add_damaged(options.corpus, range(options.seeds))
    else:
        names = [options.name]
        truth = msgspec.json.decode(options.truth, type=list[Truth] | None)
        entry = CorpusEntry(source=options.source, licence=options.licence, truth=truth)
        add_entry(options.corpus, options.name, options.folder, entry)
    print(f"{len(names)} entries added to {options.corpus}; `check --accept` adds their verdicts")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
