"""Targets of mutation whose profile is made up: every statement ran as often on each rank."""

from __future__ import annotations

from pathlib import Path

from hanglab.harness.mutation.operator import MutationTarget
from hanglab.harness.mutation.source import Script
from hanglab.harness.mutation.statement_counts import (
    CallRecord,
    Profile,
    RankProfile,
    StatementCounts,
)

#: What communicates in the sources of these tests.
_COMMUNICATES = ("dist.", "backward()")


def make_target(source: str, folder: Path, ranks: int = 4, hits: int = 24) -> MutationTarget:
    path = folder / "train.py"
    path.write_text(source)
    script = Script(path)
    lines = source.splitlines()
    statements = {}
    for one in script.statements:
        text = "".join(lines[one.line - 1 : script.last_line(one.node)])
        own = hits if one.simple and any(word in text for word in _COMMUNICATES) else 0
        below = hits if any(word in text for word in _COMMUNICATES) else 0
        messages = hits if "dist.send" in text or "dist.recv" in text else 0
        statements[one.line] = StatementCounts(hits, 1.0, own, below, messages)
    members = list(range(ranks))
    calls = [CallRecord(line, "all_reduce", members, None) for line in statements]
    groups = [members, members[:2]]
    return MutationTarget(
        script, Profile([RankProfile(rank, statements, calls, groups) for rank in range(ranks)])
    )
