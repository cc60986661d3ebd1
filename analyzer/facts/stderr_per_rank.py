"""Standard error per rank, where all ranks of a host write to one.

Launchers hand their own standard error on, so what is found there may be
anybody's.  Torch puts the rank before an uncaught exception; and the last words
of a process that dies of a signal are those of the only rank that did.  Where
several did, and as many last words say that it was a peer's doing, each of them
was a victim, whosever which words are.  A job that was started again goes on
writing to the same: what its earlier attempts raised is known, and all up to
the last of it is theirs.
"""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Iterable, Mapping

from hanglab.analyzer.facts.case_facts import EarlierException, RankView
from hanglab.analyzer.facts.error_texts import Kind, classify
from hanglab.analyzer.facts.thresholds import COMPARED_STDERR
from hanglab.analyzer.logs.rank_prefixes import NamedLine, rank_named_in, without_prefixes
from hanglab.recorder.case.records import Raised

#: A line of what Python printed of a rank's exception.
_PRINTED = re.compile(r"^\[[^\]]*rank(?P<rank>\d+)\]:\s?(?P<words>\S.*)")
#: What NCCL puts before its lines: host, process, thread and device.
_OF_PROCESS = re.compile(r"^\S+:(?P<pid>\d+):\d+ \[\d+\] ")
_FATAL = frozenset({signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})
#: What C++ and faulthandler write of a process that is about to die, and how it goes on.
_DYING = re.compile(r"^(?:terminate called |Fatal Python error: )")
_MORE = re.compile(r"^(?:\s|$|Current thread |Thread |<)")


def separate_stderr(
    views: Iterable[RankView],
    shared: Mapping[str, str],
    earlier: Iterable[EarlierException] = (),
) -> None:
    """Leave in each rank's ``stderr`` what is its own.

    ``shared`` is what the command wrote on each host, as far as it was recorded; ``earlier`` are
    the exceptions of earlier attempts.
    """
    raised = Counter((one.rank, _first_line(one.raised)) for one in earlier)
    hosts: dict[str, list[RankView]] = {}
    for view in views:
        hosts.setdefault(view.host, []).append(view)
    for host, neighbours in hosts.items():
        if len(neighbours) > 1:
            _separate(neighbours, shared.get(host, ""), raised)


def _first_line(raised: Raised) -> str:
    """The end of the first line in which Python prints an exception: types may bear a module."""
    return f"{raised.type}: {raised.message}".splitlines()[0].rstrip()


def _since_restart(text: str, raised: Counter[tuple[int, str]]) -> str:
    """The lines after the last exception of an earlier attempt."""
    left, begins = raised.copy(), 0
    lines = text.splitlines(keepends=True)
    for place, line in enumerate(lines):
        match = _PRINTED.match(line)
        if match is None:
            continue
        said = match["words"].rstrip()
        key = next(
            (k for k in left if left[k] and k[0] == int(match["rank"]) and said.endswith(k[1])),
            None,
        )
        if key is not None:
            left[key] -= 1
            begins = place + 1
    return "".join(lines[begins:])


def _separate(neighbours: list[RankView], common: str, raised: Counter[tuple[int, str]]) -> None:
    texts = [view.stderr for view in neighbours if view.stderr]
    dying = [view for view in neighbours if view.ended and view.ended.signal in _FATAL]
    for view in neighbours:
        text = view.stderr
        if text and not _is_shared(text, texts, common, neighbours):
            continue
        lines = without_prefixes(_since_restart(common or text, raised), neighbours)
        own = [one.text for one in lines if _names(one, view)]
        nobody_s = "".join(one.text for one in lines if one.rank is None)
        view.stderr = "".join(own) + (_last_words(nobody_s, len(dying)) if view in dying else "")


def _is_shared(text: str, texts: list[str], common: str, neighbours: list[RankView]) -> bool:
    """True if a text is what several wrote to one stream, and not what each wrote alike."""
    if text[-COMPARED_STDERR:] in common:
        return True
    if texts.count(text) < 2:
        return False
    lines = without_prefixes(text, neighbours)
    return sum(any(_names(line, view) for line in lines) for view in neighbours) > 1


def _names(line: NamedLine, view: RankView) -> bool:
    """True if the line bears the name of the rank, or of its process."""
    if line.rank is not None:
        return line.rank == view.rank
    named = rank_named_in(line.text)
    if named is not None:
        return named == view.rank
    process = _OF_PROCESS.match(line.text)
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
