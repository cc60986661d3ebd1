"""``hanglab corpus``: labelled Cases, added and checked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from hanglab.harness.cli.run import stopping
from hanglab.harness.cli.sources import source_path

corpus = typer.Typer(
    help="Labelled Cases that verdicts can be held against, and that can be shared.",
    no_args_is_help=True,
)
_Heuristics = Annotated[
    list[str] | None,
    typer.Option(metavar="FILE.py", help="A file with the row of a cause that hanglab lacks."),
]


@corpus.command()
def add(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The corpus; made if need be.")],
    case: Annotated[
        Path,
        typer.Argument(
            metavar="CASE", help="A Case, or a folder of dumps; or its URL.", parser=source_path
        ),
    ],
    name: Annotated[
        str, typer.Option(help="Of the entry in the corpus, such as ours/stuck_loader.")
    ],
    status: Annotated[str, typer.Option(help="hung, slow, failed, corrupt or healthy.")],
    origin: Annotated[str, typer.Option(help="Where it comes from, in words.")],
    licence: Annotated[str, typer.Option(help="SPDX identifier, such as Apache-2.0.")],
    cause: Annotated[
        str | None, typer.Option(help="Of the catalogue; without it any cause is right.")
    ] = None,
    culprits: Annotated[str, typer.Option(metavar="RANKS", help="Such as 1,3.")] = "",
    line: Annotated[
        str | None,
        typer.Option(metavar="[FILE:]LINE", help="The line that a verdict should name."),
    ] = None,
    heuristic: _Heuristics = None,
    as_it_is: Annotated[
        bool, typer.Option("--as-it-is", help="Do not redact: names, paths and texts stay.")
    ] = False,
) -> int:
    """Add a Case with its label to a corpus, without names, paths and texts of its job."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from hanglab.harness.corpus.adding import LabelError, add_case
    from hanglab.harness.corpus.entries import CorpusEntry, Truth
    from hanglab.harness.evaluation.heuristics import HeuristicChoice

    if status != "healthy" and not (culprits or cause):
        raise LabelError(
            "The label cannot be taken: it names neither cause nor culprits.",
            "Say --cause, --culprits 1,3, or both.",
        )
    HeuristicChoice(tuple(heuristic or [])).resolve()
    file, lines = _line(line)
    # A redacted copy has other names for files.
    truth = Truth(status, cause, _ranks(culprits), lines, file if as_it_is else None)
    entry = CorpusEntry(source=origin, licence=licence, truth=[truth])
    for sentence in add_case(folder, name, case, entry, redacted=not as_it_is):
        typer.echo(f"hanglab: {sentence}", err=True)
    print(f"{folder}: {name} added; `hanglab eval --corpus {folder}` judges it")
    return 0


@corpus.command()
def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The corpus.")],
    heuristic: _Heuristics = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; as many as cores without it.")
    ] = None,
) -> int:
    """Name each Case that is broken or has no label, in a sentence; exits with 1 if one is."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from hanglab.harness.corpus.checking import check_corpus
    from hanglab.harness.evaluation.heuristics import HeuristicChoice

    HeuristicChoice(tuple(heuristic or [])).resolve()
    seen = wrong = unknown = 0
    with stopping() as stopped:
        for checked in check_corpus(folder, jobs or len(os.sched_getaffinity(0)), stopped.event):
            seen += 1
            wrong += bool(checked.problem)
            unknown += not checked.truth_known
            if checked.problem:
                print(checked.problem)
    known = f"; of {unknown} no truth is known" if unknown else ""
    print(f"{folder}: {seen} Cases, {wrong} to mend{known}")
    if stopped.signal is not None:
        typer.echo("hanglab: interrupted; the rest was not looked at", err=True)
        return 128 + stopped.signal
    return 1 if wrong else 0


def _ranks(text: str) -> list[int]:
    try:
        return sorted({int(word) for word in text.split(",") if word.strip()})
    except ValueError:
        raise typer.BadParameter(f"{text!r} are no ranks; say them like 1,3.") from None


def _line(text: str | None) -> tuple[str | None, list[int]]:
    if text is None:
        return None, []
    file, _, number = text.rpartition(":")
    if not number.isdecimal():
        raise typer.BadParameter(f"{text!r} is no line; say it like train.py:12.")
    return file or None, [int(number)]
