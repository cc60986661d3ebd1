"""Standard error per rank, where all ranks of a host write to one.

Launchers hand their own standard error on, so what is found there may be
anybody's.  Torch puts the rank before an uncaught exception; and the last words
of a process that dies of a signal are those of the only rank that did.  Where
several did, and as many last words say that it was a peer's doing, each of them
was a victim, whosever which words are.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping

from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.facts.error_texts import Kind, classify
from hanglab.analyzer.facts.thresholds import COMPARED_STDERR

#: Torch's names of a rank: before a line, or as a member of the default group.
_NAMED = re.compile(r"^\[[^\]]*rank(?P<rank>\d+)\]:|\[PG (?:ID )?0 [^\]]*\bRank (?P<member>\d+)\]")
#: What NCCL puts before its lines: host, process, thread and device.
_OF_PROCESS = re.compile(r"^\S+:(?P<pid>\d+):\d+ \[\d+\] ")
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
        own = _named_lines(text, view)
        view.stderr = own + (_last_words(text, len(dying)) if view in dying else "")


def _is_shared(text: str, texts: list[str], common: str) -> bool:
    return texts.count(text) > 1 or text[-COMPARED_STDERR:] in common


def _named_lines(text: str, view: RankView) -> str:
    """The lines that bear the name of the rank, or of its process."""
    return "".join(line for line in text.splitlines(keepends=True) if _names(line, view))


def _names(line: str, view: RankView) -> bool:
    match = _NAMED.search(line)
    if match is not None:
        return int(match["rank"] or match["member"]) == view.rank
    process = _OF_PROCESS.match(line)
    return process is not None and int(process["pid"]) == view.pid


def _last_words(text: str, dying: int) -> str:
    """Words that were written of processes that died, if they hold for each of so many."""
    words = _dying_lines(text)
    if dying == 1:
        return "".join(words)
    felt = {classify(one, Kind.CONSEQUENCE) for one in words}
    return "".join(words) if len(words) == dying and len(felt) == 1 and None not in felt else ""


def _dying_lines(text: str) -> list[str]:
    """Lines written of each process that died, which bear no name."""
    kept: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        begins = bool(_DYING.match(line))
        inside = begins or (inside and bool(_MORE.match(line)))
        if begins:
            kept.append(line)
        elif inside:
            kept[-1] += line
    return kept
