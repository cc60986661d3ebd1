"""Logs that lie beside dumps, or alone: what ranks wrote, and how they ended by it."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.host import HostView
from hanglab.analyzer.facts.printed_errors import sticky_error
from hanglab.analyzer.facts.thresholds import END_BLUR_NS
from hanglab.analyzer.facts.watchdog_lines import dump_of_watchdog
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.graph.wait_for_graph import WaitForGraph
from hanglab.analyzer.logs.endings import ends_with_traceback
from hanglab.analyzer.logs.files import LogFile, read_logs
from hanglab.analyzer.logs.ranks import JobLogs, RankLog, divide
from hanglab.analyzer.logs.stamps import stamp_ns
from hanglab.analyzer.logs.tracebacks import printed_tracebacks
from hanglab.analyzer.verdict import Inputs, Unusable
from hanglab.recorder.case.host_records import HostSample
from hanglab.recorder.case.records import Clock, Exit, Python, RankProcess, StackFrame

#: Reasons for which a file is no dump; a log may begin as JSON does.
_NO_DUMP = ("not a dump: ", "larger than any dump: ", "damaged before anything of use: ")
_TEXT = ("not a dump: text",)
_NOBODYS = "a log in which nothing tells which lines are whose"
_OF_SEVERAL = "a log, and nothing tells which of several jobs or attempts it is of"
_OF_ANOTHER_TIME = "a log of another time than the dumps"
_EARLIER = "a log of an earlier attempt"
_LAUNCHERS = re.compile(
    r"torch/distributed/(?:elastic|run\.py|launch)|/accelerate/commands/|/deepspeed/launcher/"
)
#: More than the difference of any two zones: times in logs have none.
_DAY_NS = 86_400_000_000_000


def add_logs(path: Path, worlds: Sequence[CaseFacts]) -> None:
    """Give the ranks of dumps in a folder what its logs hold of them."""
    if not worlds:
        return
    logs = read_logs(path, _names(worlds[0].inputs.unusable))
    year = _year(path, logs)
    for facts in worlds:
        mine = logs if len(worlds) == 1 else [one for one in logs if _beside(one, facts, worlds)]
        then = [one for one in mine if _is_of_then(one, facts.graph)]
        job = divide(then, facts.graph.expected, year)
        _add(facts, job)
        reasons = {
            **{one.name: _OF_SEVERAL for one in logs if one not in mine},
            **{one.name: _OF_ANOTHER_TIME for one in mine if one not in then},
        }
        facts.inputs.unusable = _left(facts.inputs.unusable, job, reasons)


def from_logs(path: Path, unusable: Sequence[Unusable]) -> CaseFacts | None:
    """Evidence of a folder of logs without any dump; None where there is no text."""
    logs = read_logs(path, _names(unusable))
    if not logs:
        return None
    year = _year(path, logs)
    job = divide(logs, (), year)
    known = range(job.world_size or max(job.ranks, default=-1) + 1)
    inputs = Inputs(
        ranks=len(job.ranks),
        missing_ranks=sorted(set(known) - set(job.ranks)),
        unusable=_left(unusable, job, {}),
    )
    when = year or time.gmtime().tm_year
    told = [dump_of_watchdog(r, log.text, job.world_size, when) for r, log in job.ranks.items()]
    graph = build_wait_for_graph([dump for dump in told if dump], expected=list(known))
    graph.world_size_unknown = job.world_size is None
    facts = CaseFacts(graph=graph, ranks={}, inputs=inputs, logs_alone=True, success=job.success)
    _add(facts, job)
    return facts


def _left(unusable: Sequence[Unusable], job: JobLogs, reasons: Mapping[str, str]) -> list[Unusable]:
    """The files that are of no use, with the reason why a log is none."""
    gone = job.used.union(job.of_earlier_attempts)
    reasons = {**dict.fromkeys(job.nobodys, _NOBODYS), **reasons}
    return [
        Unusable(one.file, reasons.get(one.file, one.reason) if one.reason in _TEXT else one.reason)
        for one in unusable
        if one.file not in gone
    ]


def _is_of_then(log: LogFile, graph: WaitForGraph) -> bool:
    """False if the times in a log are all of another day than what the dumps tell of."""
    created = [c.created_ns for c in graph.last_calls.values() if c.created_ns]
    if not created:
        return True
    when = time.gmtime(max(created) / 1e9).tm_year
    stamps = [at for line in log.text.splitlines() if (at := stamp_ns(line, when)) is not None]
    if not stamps:
        return True
    return min(stamps) <= max(created) + _DAY_NS and max(stamps) >= min(created) - _DAY_NS


def _names(unusable: Sequence[Unusable]) -> list[str]:
    """Files that hold no dump, damaged or not; the last may stand for more that are not listed."""
    return [one.file for one in unusable if one.file and one.reason.startswith(_NO_DUMP)]


def _year(path: Path, logs: Sequence[LogFile]) -> int | None:
    """Year in which the logs were written last; copies may have a later one."""
    times = []
    for one in logs:
        try:
            times.append((path / one.name).stat().st_mtime)
        except OSError:
            continue
    return time.gmtime(min(times)).tm_year if times else None


def _beside(log: LogFile, facts: CaseFacts, worlds: Sequence[CaseFacts]) -> bool:
    """True if a log lies in the folder of the dumps of one of several jobs, and of no other's."""
    mine = PurePosixPath(log.name).parent
    folders = [PurePosixPath(one.inputs.world or "").parent for one in worlds]
    return [mine == folder for folder in folders] == [one is facts for one in worlds]


def _add(facts: CaseFacts, job: JobLogs) -> None:
    """Give the ranks what their logs hold; who waits for another has not ended by itself.

    It was alive when the others had given up, and was ended for that, unless its log has what no
    process survives.
    """
    waiting = {wait.call.rank for wait in facts.graph.waits if wait.on}
    for log in job.ranks.values():
        if log.rank in waiting and sticky_error(log.text) is None:
            log.ending = None
    times = [log.ending.at_ns for log in job.ranks.values() if log.ending and log.ending.at_ns]
    timeless = [log for log in job.ranks.values() if log.ending and not log.ending.at_ns]
    # Of ends without a time nothing tells that they came later, or earlier, than others.  Only one
    # alone came first: a launcher ends all that are left alike.
    unknown_ns = min(times, default=0) - (2 * END_BLUR_NS if len(timeless) == 1 and times else 0)
    for rank, log in sorted(job.ranks.items()):
        view = facts.ranks.setdefault(rank, RankView(rank))
        view.stderr, view.exit, view.stacks = log.text, _exit(log, unknown_ns), log.stacks
        if log.pid is not None:
            python = Python("")
            view.process = RankProcess(log.pid, rank, job.world_size, Clock(0, 0), python)
    if job.kernel:
        # Of which host it is nothing tells: numbers that two hosts' processes have count for none.
        sample = HostSample(Clock(unknown_ns, 0), kernel=job.kernel)
        facts.hosts[""] = HostView("", [sample])
    facts.inputs.set_aside = [
        *facts.inputs.set_aside,
        *(Unusable(name, _EARLIER) for name in job.of_earlier_attempts),
    ]
    _add_unnamed(facts, job)


def _add_unnamed(facts: CaseFacts, job: JobLogs) -> None:
    """Give the only traceback that bears no name to the only rank that it can be of.

    That is the one that is told to have failed and has none, else the only one that left neither a
    dump nor an end, if it ended its process: whoever dumped had not ended of it.
    """
    found = {one for text in job.nobodys.values() for one in _of_programs(text)}
    if len(found) != 1:
        return
    views = facts.ranks
    told = [rank for rank, view in views.items() if view.exit is not None and view.exit.code]
    ranks = [rank for rank in told if not printed_tracebacks(views[rank].stderr)]
    if not ranks and any(map(ends_with_traceback, job.nobodys.values())):
        ended = {rank for rank, view in views.items() if view.exit is not None}
        ranks = sorted({*facts.graph.expected, *views} - ended - {*facts.graph.ranks})
    if len(ranks) != 1:
        return
    view = views.setdefault(ranks[0], RankView(ranks[0]))
    view.stderr += next(text for text in job.nobodys.values() if _of_programs(text))
    if view.exit is None:
        view.exit = Exit(Clock(0, 0), 1)


def _of_programs(text: str) -> set[tuple[str, str, tuple[StackFrame, ...]]]:
    """The last traceback of a text, unless a launcher's own, or one that led to another."""
    found = [one for one in printed_tracebacks(text) if not _is_launchers(one.frames)]
    return {(one.type, one.message, one.frames) for one in found[-1:]}


def _is_launchers(frames: Sequence[StackFrame]) -> bool:
    return any(_LAUNCHERS.search(frame.file) for frame in frames)


def _exit(log: RankLog, unknown_ns: int) -> Exit | None:
    ending = log.ending
    if ending is None:
        return None
    at = Clock(ending.at_ns if ending.at_ns is not None else unknown_ns, 0)
    return Exit(at, ending.code, ending.signal)
