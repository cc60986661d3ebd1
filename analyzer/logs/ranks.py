"""Whose lines are whose: the logs of a folder, divided among the ranks of a job.

A part of a file is a rank's own if its name or prefix has the rank; if torchrun made it for one of
a host's, and there is one host; if it names one rank alone, as each part like it does; or if the
names of like parts have the numbers of all ranks.  Of any other, a rank has the lines that bear
its name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from hanglab.analyzer.logs.endings import (
    MOST_RANKS,
    LoggedEnd,
    ToldEnd,
    starts_ranks_by_host,
    told_by_itself,
    told_by_launchers,
)
from hanglab.analyzer.logs.files import LogFile
from hanglab.analyzer.logs.kernel_lines import kernel_lines, pids_of_ranks
from hanglab.analyzer.logs.parts import parts, run_of
from hanglab.analyzer.logs.past import success_in, without_past_errors
from hanglab.analyzer.logs.pyspy import stacks_in
from hanglab.analyzer.logs.rank_prefixes import lines_of_ranks, named_ranks
from hanglab.recorder.case.records import StackSample

#: What NCCL and programs say of how many ranks there are, and stores of how many have not come.
_WORLD_SIZE = re.compile(
    r"\bnranks (\d{1,6})\b|\bworld[_ ]size['\"]?\s?[=:]\s?(\d{1,6})\b"
    r"|\b\d{1,6}/(\d{1,6}) clients joined",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<!\d)(\d{1,6})(?!\d)")

#: A file, and what of it a part is.
Key = tuple[str, str]


@dataclass
class RankLog:
    """The text that a rank wrote, and how it ended by that or by what its launcher wrote."""

    rank: int
    text: str = ""
    #: None where nothing tells that it ended.
    ending: LoggedEnd | None = None
    pid: int | None = None
    stacks: list[StackSample] = field(default_factory=list)


@dataclass
class JobLogs:
    """The logs of a job by rank, those that are nobody's, and those of attempts that are over."""

    ranks: dict[int, RankLog] = field(default_factory=dict)
    world_size: int | None = None
    #: Lines of which nothing tells whose they are, by file.
    nobodys: dict[str, str] = field(default_factory=dict)
    of_earlier_attempts: list[str] = field(default_factory=list)
    #: Names of the files with lines of which the rank is known, or that tell of its end.
    used: set[str] = field(default_factory=set)
    #: What a launcher said of the success of all; "" where none did.
    success: str = ""
    #: What the kernels of hosts said.
    kernel: list[str] = field(default_factory=list)


def divide(
    files: Sequence[LogFile], known: Collection[int] = (), year: int | None = None
) -> JobLogs:
    """The logs of the ranks of a job; ``known`` are ranks that are known otherwise.

    ``year`` is that of times without one, else this one.
    """
    when = year or datetime.now(timezone.utc).year
    latest = {run: max(f.attempt for f in files if f.run == run) for run in {f.run for f in files}}
    over = [file.name for file in files if file.attempt < latest[file.run]]
    judged = [
        replace(file, text=without_past_errors(file.text, when))
        for file in files
        if file.name not in over
    ]
    divided = [part for file in judged for part in parts(file)]
    by_host = any(starts_ranks_by_host(part.text) for part in divided)
    named = {_key(part): named_ranks(part.text) for part in divided}
    told = [
        (part, one)
        for part in divided
        for one in told_by_launchers(part.text.splitlines(), when, hosts_are_tasks=by_host)
    ]
    least = _least_size(named.values(), (one for _, one in told), known)
    job = JobLogs(world_size=_world_size(divided, least), of_earlier_attempts=over)
    size = job.world_size or least
    local = _local_ranks(divided, [one for _, one in told])
    # A host's ranks are numbered as the job's where it has no other host.
    one_host = local > 0 and size <= local
    owners = _owners(divided, named, size, one_host=one_host, by_host=by_host)
    texts: dict[int, list[str]] = {}
    nobodys: dict[str, list[str]] = {}
    for part in divided:
        owner = owners.get(_key(part))
        theirs = lines_of_ranks(part.text) if owner is None else {owner: part.text}
        for rank, text in theirs.items():
            if rank is None:
                nobodys.setdefault(part.name, []).append(f"{text}\n")
            elif rank < (job.world_size or MOST_RANKS):
                texts.setdefault(rank, []).append(f"{text}\n")
                job.used.add(part.name)
    job.nobodys = {name: "".join(mine) for name, mine in nobodys.items()}
    job.ranks = {rank: RankLog(rank, "".join(mine)) for rank, mine in texts.items()}
    job.success = next(filter(None, (success_in(file.text) for file in judged)), "")
    _add_processes(job, judged, divided, owners, told)
    endings: dict[int, LoggedEnd] = {}
    local_owners = _local_owners(divided, owners)
    for part, one in told:
        whose = one.rank
        if whose is None and one.local_rank is not None:
            whose = local_owners.get((run_of(part), one.local_rank))
        if whose is None and one_host:
            whose = one.local_rank
        if whose is not None and whose < (job.world_size or MOST_RANKS):
            endings.setdefault(whose, one.ending)
            job.ranks.setdefault(whose, RankLog(whose))
            job.used.add(part.name)
    for rank, log in job.ranks.items():
        _end(log, endings.get(rank), when)
    return job


def _add_processes(
    job: JobLogs,
    files: Iterable[LogFile],
    divided: Iterable[LogFile],
    owners: Mapping[Key, int],
    told: Iterable[tuple[LogFile, ToldEnd]],
) -> None:
    """Adds what others wrote of processes: kernels, and py-spy."""
    ranks_of: dict[int, set[int]] = {}
    for part in divided:
        for rank, pid in pids_of_ranks(part.text).items():
            ranks_of.setdefault(pid, set()).add(rank)
    for _, one in told:
        if one.pid is not None and one.rank is not None:
            ranks_of.setdefault(one.pid, set()).add(one.rank)
    # Processes of several hosts may have one number.
    pids = {pid: min(ranks) for pid, ranks in ranks_of.items() if len(ranks) == 1}
    for file in files:
        if lines := kernel_lines(file.text):
            job.kernel += lines
            job.used.add(file.name)
        for sample in stacks_in(file.text):
            whose = owners.get(_key(file), pids.get(sample.pid))
            whose = file.rank if whose is None else whose
            if whose is not None and whose < MOST_RANKS:
                log = job.ranks.setdefault(whose, RankLog(whose))
                log.stacks.append(sample)
                job.used.add(file.name)
    for pid, rank in pids.items():
        if rank < MOST_RANKS:
            job.ranks.setdefault(rank, RankLog(rank)).pid = pid


def _key(part: LogFile) -> Key:
    return part.name, part.part


def _end(log: RankLog, told: LoggedEnd | None, year: int) -> None:
    own = told_by_itself(log.text.splitlines(), year)
    if told is None:
        log.ending = own
        return
    at_ns = own.at_ns if own is not None and own.at_ns is not None else told.at_ns
    log.ending = LoggedEnd(told.code, told.signal, at_ns)


def _local_owners(
    divided: Iterable[LogFile], owners: Mapping[Key, int]
) -> dict[tuple[str, int], int]:
    """The rank that a launcher calls by its place on a host, where the host's parts tell it."""
    found: dict[tuple[str, int], set[int]] = {}
    for part in divided:
        if part.run is not None and part.local_rank is not None and _key(part) in owners:
            found.setdefault((part.run, part.local_rank), set()).add(owners[_key(part)])
    return {place: min(ranks) for place, ranks in found.items() if len(ranks) == 1}


def _local_ranks(divided: Iterable[LogFile], told: Sequence[ToldEnd]) -> int:
    """The number of ranks of the only host, by torchrun's names; 0 if there are several."""
    places = [(part.run, part.local_rank) for part in divided if part.local_rank is not None]
    if len({run for run, _ in places}) > 1:
        return 0
    found = [local for _, local in places if local is not None]
    found += [one.local_rank for one in told if one.local_rank is not None]
    return max(found, default=-1) + 1


def _world_size(divided: Iterable[LogFile], least: int) -> int | None:
    """The number of ranks of the largest group that anybody speaks of; at least ``least``."""
    told = [
        int(next(filter(None, sizes)))
        for part in divided
        for sizes in set(_WORLD_SIZE.findall(part.text))
    ]
    told = [size for size in told if size <= MOST_RANKS]
    return max(told) if told and max(told) >= max(least, 1) else None


def _least_size(
    named: Iterable[Counter[int]], told: Iterable[ToldEnd], known: Collection[int]
) -> int:
    """One more than the last rank that anything names."""
    ranks = [rank for counts in named for rank in counts]
    ranks += [one.rank for one in told if one.rank is not None]
    return max([*known, *(rank for rank in ranks if rank < MOST_RANKS)], default=-1) + 1


def _owners(
    divided: Sequence[LogFile],
    named: Mapping[Key, Counter[int]],
    size: int,
    *,
    one_host: bool,
    by_host: bool,
) -> dict[Key, int]:
    """The rank whose own each part is; parts of several ranks are left out."""
    owners: dict[Key, int] = {}
    for part in divided:
        theirs = set(named[_key(part)])
        if part.rank is not None:
            if theirs <= {part.rank}:
                owners[_key(part)] = part.rank
        elif part.local_rank is not None:
            if len(theirs) == 1:
                owners[_key(part)] = min(theirs)
            elif not theirs and one_host:
                owners[_key(part)] = part.local_rank
    owners |= _by_host(divided, owners, named)
    owners |= _by_content(divided, owners, named, size)
    return owners | _by_series(divided, owners, named, size, by_host=by_host)


def _by_host(
    divided: Iterable[LogFile], owners: Mapping[Key, int], named: Mapping[Key, Counter[int]]
) -> dict[Key, int]:
    """Owners of parts by their place on a host of which others tell: its ranks are in a row."""
    first: dict[str | None, set[int]] = {}
    for part in divided:
        if part.local_rank is not None and _key(part) in owners:
            first.setdefault(part.run, set()).add(owners[_key(part)] - part.local_rank)
    return {
        _key(part): min(first[part.run]) + part.local_rank
        for part in divided
        if part.local_rank is not None
        and not named[_key(part)]
        and len(first.get(part.run, ())) == 1
    }


def _by_content(
    divided: Sequence[LogFile],
    owners: Mapping[Key, int],
    named: Mapping[Key, Counter[int]],
    size: int,
) -> dict[Key, int]:
    """Owners of parts each of which names one rank alone, and no two the same.

    Where one of as many parts as there are ranks names nobody, it is that of the rank left.
    """
    rest = [_key(part) for part in divided if _key(part) not in owners]
    alone = {key: min(named[key]) for key in rest if len(named[key]) == 1}
    times = Counter([*alone.values(), *owners.values()])
    once = {key: rank for key, rank in alone.items() if times[rank] == 1}
    if len(once) < 2:
        return {}
    left = sorted(set(range(size)) - {*once.values(), *owners.values()})
    silent = [key for key in rest if not named[key]]
    if len(left) == len(silent) == 1 and _alike(silent[0], once):
        once[silent[0]] = left[0]
    return once


def _alike(key: Key, others: Iterable[Key]) -> bool:
    """True if the name of a part differs from that of another in a number alone."""
    return any(_masked(key) == _masked(other) for other in others)


def _masked(key: Key) -> str:
    return _NUMBER.sub("#", "/".join(key))


def _by_series(
    divided: Sequence[LogFile],
    owners: Mapping[Key, int],
    named: Mapping[Key, Counter[int]],
    size: int,
    *,
    by_host: bool,
) -> dict[Key, int]:
    """Owners of parts whose names differ in a number that is 0 to the last rank's.

    Where nothing tells how many ranks there are, only tasks of Slurm are ranks, unless they are
    hosts: files are numbered for many reasons.
    """
    series: dict[tuple[str, str], dict[int, Key]] = {}
    for part in divided:
        name = "/".join(_key(part))
        for match in _NUMBER.finditer(name) if _key(part) not in owners else ():
            around = (name[: match.start()], name[match.end() :])
            series.setdefault(around, {})[int(match[1])] = _key(part)
    found: dict[Key, int] = {}
    for numbers in series.values():
        whole = sorted(numbers) == list(range(len(numbers))) and len(numbers) > 1
        tasks = not by_host and all(label.isdecimal() for _, label in numbers.values())
        if not whole or (len(numbers) != size if size else not tasks):
            continue
        if all(set(named[key]) <= {number} for number, key in numbers.items()):
            found |= {key: number for number, key in numbers.items()}
    return found
