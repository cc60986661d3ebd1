"""Ends of ranks, by what their launchers and they themselves wrote.

Of each way of saying so there is a source: torchrun's table (torch/distributed/elastic,
multiprocessing/errors/__init__.py) and its agent's line (agent/server/api.py), ``srun``'s lines
(Slurm, src/srun/libsrun/launch.c), Open MPI's (orte and prrte, help-*.txt) and Lightning's
(strategies/launchers/subprocess_script.py).  DeepSpeed's (launcher/launch.py) names the command of
the last process that it started, whichever has ended, and is not read.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hanglab.analyzer.logs.stamps import stamp_ns
from hanglab.analyzer.logs.tracebacks import printed_tracebacks

#: A rank of torchrun's table of failures, and what it tells below.
_TABLE_RANK = re.compile(r"^\s*rank\s*: (?P<rank>\d{1,9}) \(local_rank: \d+\)")
_TABLE_TIME = re.compile(r"^\s*time\s*: (\S+)")
_TABLE_CODE = re.compile(r"^\s*exitcode\s*: (?P<code>-?\d{1,9}) \(pid: (?P<pid>\d{1,9})\)")
_OF_LOCAL = (
    re.compile(
        r"failed \(exitcode: (?P<code>-?\d{1,9})\) local_rank: (?P<local>\d{1,6}) \(pid: \d+\)"
    ),
)
_OF_RANK = (
    re.compile(
        r"^\[rank: (?P<rank>\d{1,9})\] Child process with PID \d+ terminated with code "
        r"(?P<code>-?\d{1,9})"
    ),
    re.compile(
        r"process rank (?P<rank>\d{1,9}) with PID \d+ on node \S+ exited on signal "
        r"(?P<signal>\d{1,4})"
    ),
    re.compile(r"Process name: \[\[\d+,\d+\],(?P<rank>\d{1,9})\]"),
)
_SRUN = re.compile(r"^srun: error: \S+: tasks? (?P<tasks>[\d,-]+): (?P<words>.+)$")
_SRUN_WORDS = {
    "Killed": signal.SIGKILL,
    "Out Of Memory": signal.SIGKILL,
    "Terminated": signal.SIGTERM,
    "Aborted": signal.SIGABRT,
    "Segmentation fault": signal.SIGSEGV,
    "Bus error": signal.SIGBUS,
    "Floating point exception": signal.SIGFPE,
    "Illegal instruction": signal.SIGILL,
}
_SRUN_CODE = re.compile(r"Exited with exit code (\d{1,9})")
_MPI_CODE = re.compile(r"^\s*Exit code:\s+(\d{1,9})")
#: Words without which no line is any of these.
_TOLD = re.compile(r"rank|srun: error:|Process name:")
#: Whoever starts ranks on a host: tasks of Slurm are hosts then.
_STARTER = re.compile(
    r"torch[./]distributed[./](?:elastic|run|launch)|torchrun|deepspeed\.launcher"
)
_TABLE_HEIGHT = 8
_DIGITS = 9
#: No job has more; greater numbers are something else.
MOST_RANKS = 1 << 17

#: What Python writes of an exception that nobody caught, where torch names the rank.
_UNCAUGHT = re.compile(r"^\[rank(\d+)\]: ?Traceback \(most recent call last\):")
#: What shells say of a process that a signal ended.
_SHELL, _SHELL_END = r"^(?:\S+: line \d+: +\d+ )?", r"(?: \(core dumped\))?(?:  .*)?$"
#: Words of a process that dies of a signal: C++, glibc, faulthandler, torch's watchdog.
_DYING = (
    (re.compile(r"^(?:\[rank\d+\]: ?)?terminate called "), signal.SIGABRT),
    (re.compile(r"^Fatal Python error: (?:Aborted|none_dealloc|Py)"), signal.SIGABRT),
    (re.compile(r"^Fatal Python error: Segmentation fault"), signal.SIGSEGV),
    (re.compile(r"^Fatal Python error: Bus error"), signal.SIGBUS),
    (re.compile(r"taking the entire process down|we are taking the process down"), signal.SIGABRT),
)
#: The same of a shell, which may be of any process unless it is the last that is written.
_OF_SHELL = (
    (re.compile(_SHELL + "Killed" + _SHELL_END), signal.SIGKILL),
    (re.compile(_SHELL + "Aborted" + _SHELL_END), signal.SIGABRT),
    (re.compile(_SHELL + "Segmentation fault" + _SHELL_END), signal.SIGSEGV),
    (re.compile(_SHELL + "Bus error" + _SHELL_END), signal.SIGBUS),
)
#: What may follow an exception that ended its process.
_LATE = re.compile(
    r"^\s*$|^\s|destroy_process_group|resource_tracker|Exception ignored|warnings\.warn"
    r"|^\[(?:rank\d+\]:)?\[?[EWIF]\d{3,4} |NCCL INFO|^wandb: |^srun: |^slurmstepd: "
    r"|multiprocessing|^terminate called|^Fatal Python|^Aborted|^Segmentation fault|core dumped"
    r"|^Current thread|^Thread 0x|^Extension modules|^frame #|^Exception raised from|what\(\):"
    r"|^#\d+ |C\+\+ CapturedTraceback|leaked|^During handling|^The above exception|^\*\*\* "
)


@dataclass(frozen=True)
class LoggedEnd:
    """The end of a rank.  ``code`` or ``signal`` is known; ``at_ns`` is None without a time."""

    code: int | None = None
    signal: int | None = None
    at_ns: int | None = None

    @classmethod
    def of(cls, code: int, at_ns: int | None = None) -> LoggedEnd:
        """From an exit code as Python has it: a signal is below 0, or beyond 128 of a shell."""
        if code < 0 or 128 < code < 193:
            return cls(None, -code if code < 0 else code - 128, at_ns)
        return cls(code, None, at_ns)


@dataclass(frozen=True)
class ToldEnd:
    """An ending that a launcher tells; the rank is that of the job, or one of the host's."""

    ending: LoggedEnd
    rank: int | None = None
    local_rank: int | None = None
    pid: int | None = None


def starts_ranks_by_host(text: str) -> bool:
    """True if something starts the ranks of a host there, so that tasks of Slurm are hosts."""
    return _STARTER.search(text) is not None


def told_by_launchers(
    lines: Sequence[str], year: int, *, hosts_are_tasks: bool
) -> Iterator[ToldEnd]:
    """Endings of ranks in what a launcher wrote, in its order."""
    for place, line in enumerate(lines):
        if not _TOLD.search(line):
            continue
        if (row := _TABLE_RANK.match(line)) is not None:
            yield from _of_table(lines, place, int(row["rank"]), year)
        elif line.startswith("srun: error:"):
            yield from () if hosts_are_tasks else _of_srun(line)
        else:
            yield from _of_line(lines, place, year)


def _of_table(lines: Sequence[str], place: int, rank: int, year: int) -> Iterator[ToldEnd]:
    codes = map(_TABLE_CODE.match, lines[place + 1 : place + _TABLE_HEIGHT])
    code = next((match for match in codes if match is not None), None)
    times = map(_TABLE_TIME.match, lines[max(place - _TABLE_HEIGHT, 0) : place])
    time = [match[1] for match in times if match is not None][-1:]
    if code is not None:
        at_ns = stamp_ns(time[0], year) if time else None
        yield ToldEnd(LoggedEnd.of(int(code["code"]), at_ns), rank, pid=int(code["pid"]))


def _of_srun(line: str) -> Iterator[ToldEnd]:
    match = _SRUN.match(line)
    if match is None:
        return
    code = _SRUN_CODE.search(match["words"])
    sent = next((s for words, s in _SRUN_WORDS.items() if match["words"].startswith(words)), None)
    if code is None and sent is None:
        return
    ending = LoggedEnd(signal=sent) if code is None else LoggedEnd.of(int(code[1]))
    for part in match["tasks"].split(","):
        first, _, last = part.partition("-")
        if (
            max(len(first), len(last)) <= _DIGITS
            and first.isdecimal()
            and (last or "0").isdecimal()
        ):
            tasks = range(int(first), int(last or first) + 1)
            for task in tasks if len(tasks) <= MOST_RANKS else ():
                yield ToldEnd(ending, task)


def _of_line(lines: Sequence[str], place: int, year: int) -> Iterator[ToldEnd]:
    line = lines[place]
    for pattern in (*_OF_LOCAL, *_OF_RANK):
        match = pattern.search(line)
        if match is None:
            continue
        found = match.groupdict()
        code, sent = found.get("code"), found.get("signal")
        if code is None and sent is None:
            told = map(_MPI_CODE.match, lines[place + 1 : place + 3])
            code = next((one[1] for one in told if one is not None), None)
        if code is None and sent is None:
            return
        at_ns = stamp_ns(line, year)
        ending = (
            LoggedEnd.of(int(code), at_ns)
            if code
            else LoggedEnd(signal=int(sent or 0), at_ns=at_ns)
        )
        rank, local = found.get("rank"), found.get("local")
        yield ToldEnd(ending, int(rank) if rank else None, int(local) if local else None)
        return


def told_by_itself(lines: Sequence[str], year: int) -> LoggedEnd | None:
    """The end of the rank that wrote these lines; None where it went on, as far as they tell."""
    stamps: list[int | None] = []
    latest: int | None = None
    for line in lines:
        latest = stamp_ns(line, year) or latest
        stamps.append(latest)
    for place in reversed(range(len(lines))):
        line = lines[place]
        sent = next((number for words, number in _DYING if words.search(line)), None)
        if sent is not None:
            return LoggedEnd(signal=sent, at_ns=stamps[place])
        if _UNCAUGHT.match(line):
            return LoggedEnd(code=1, at_ns=stamps[place])
    last = next((n for n in reversed(range(len(lines))) if lines[n].strip()), None)
    if last is not None:
        sent = next((number for words, number in _OF_SHELL if words.search(lines[last])), None)
        if sent is not None:
            return LoggedEnd(signal=sent, at_ns=stamps[last])
    return LoggedEnd(code=1, at_ns=latest) if ends_with_traceback("\n".join(lines)) else None


def ends_with_traceback(text: str) -> bool:
    """True if behind the last traceback nothing stands but what the end of a process writes."""
    last = printed_tracebacks(text)[-1:]
    lines = text.splitlines()
    return any(all(map(_LATE.search, lines[traceback.until :])) for traceback in last)
