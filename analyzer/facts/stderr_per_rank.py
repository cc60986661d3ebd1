"""Standard error per rank, where all ranks of a host write to one.

Launchers hand their own standard error on, so what is found there may be
anybody's.  Torch puts the rank before an uncaught exception; and the last words
of a process that dies of a signal are those of the only rank that did.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping

from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.facts.thresholds import COMPARED_STDERR

_NAMED = re.compile(r"^\[[^\]]*rank(?P<rank>\d+)\]:")
_FATAL = frozenset({signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})
#: What C++ and faulthandler write of a process that is about to die, and how it goes on.
_DYING = re.compile(r"^(?:terminate called |Fatal Python error: )")
_MORE = re.compile(r"^(?:\s|$|Current thread |Thread |<)")


def separate_stderr(views: Iterable[RankView], shared: Mapping[str, str]) -> None:
    """Leave in each rank's ``stderr`` what is its own.

    ``shared`` is what the command wrote on each host, as far as it was recorded.
    """
    hosts: dict[str, list[RankView]] = {}
    for view in views:
        hosts.setdefault(view.host, []).append(view)
    for host, neighbours in hosts.items():
        if len(neighbours) > 1:
            _separate(neighbours, shared.get(host, ""))


def _separate(neighbours: list[RankView], common: str) -> None:
    texts = [view.stderr for view in neighbours if view.stderr]
    dying = [view for view in neighbours if view.ended and view.ended.signal in _FATAL]
    for view in neighbours:
        text = view.stderr
        if text and not _is_shared(text, texts, common):
            continue
        text = common or text
        own = _prefixed_lines(text, view.rank)
        view.stderr = own + (_dying_lines(text) if dying == [view] else "")


def _is_shared(text: str, texts: list[str], common: str) -> bool:
    return texts.count(text) > 1 or text[-COMPARED_STDERR:] in common


def _prefixed_lines(text: str, rank: int) -> str:
    """The lines that bear the rank's name."""
    return "".join(
        line
        for line in text.splitlines(keepends=True)
        if (match := _NAMED.match(line)) and int(match["rank"]) == rank
    )


def _dying_lines(text: str) -> str:
    """Lines written of a process that died, which bear no name."""
    kept: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        inside = bool(_DYING.match(line)) or (inside and bool(_MORE.match(line)))
        if inside:
            kept.append(line)
    return "".join(kept)
