"""Files grouped into worlds: the dumps of one attempt of one job.

Files are separated by what proves them apart and by nothing else: two dumps of
one rank that cannot be of one process, or members of the group of all ranks that
differ.  Which of several worlds a file belongs to is told by its series (names
that differ in the rank alone), and then by when its operations were issued.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from hanglab.analyzer.flight_recorder.assignment import Claim
from hanglab.analyzer.flight_recorder.columns import ABSENT
from hanglab.analyzer.flight_recorder.discovery import name_without_rank
from hanglab.analyzer.flight_recorder.moments import Moments
from hanglab.analyzer.worlds.thresholds import AGREEING_SHARE, COPIED_LATER_NS

#: Files by number, as the loader counts them.
Claims = Mapping[int, Claim]
#: Names of one or two files, without the rank.
_Names = frozenset[str]


@dataclass(frozen=True)
class World:
    """Files, by number, of one attempt of one job."""

    files: tuple[int, ...]
    #: Index of the world that is a later attempt of the same job; None if there is none.
    restarted_as: int | None = None


def group_files(claims: Claims) -> list[World]:
    """The worlds that the files are of, each file in one: what nothing parts stays together."""
    worlds = [part for world in _separate(claims) for part in _by_members(claims, world)]
    worlds.sort(key=lambda files: (-len(files), files))
    if len(worlds) == 1:
        return [World(tuple(sorted(worlds[0])))]
    return [
        World(tuple(sorted(files)), _restart_of(claims, worlds, index))
        for index, files in enumerate(worlds)
    ]


def one_process(one: Claim, other: Claim, joined: Container[_Names] = ()) -> bool:
    """False if two dumps of one rank are not of one process and one time of its life.

    ``joined`` are names, without the rank, of files that other ranks' dumps prove to belong
    together.
    """
    mine, theirs = one.moments, other.moments
    if _members_differ(one, other):
        return False
    shared = mine.records.keys() & theirs.records.keys()
    if shared:
        return _share_records(mine, theirs)
    if ABSENT in (mine.first_record, theirs.first_record, mine.first_ns, theirs.first_ns):
        # One that left finished entries out may have none, and is of the same moment by its counts;
        # of a rank that has done nothing yet only the file's name tells to which others it belongs.
        if ABSENT in (mine.counted, theirs.counted):
            names = _names(one, other)
            return len(names) == 1 or names in joined
        return mine.counted == theirs.counted or _has_emptied(one, other)
    # Nothing shows that rings without a common moment are of one process: a job that hung may
    # lie beside another that went on.
    return (
        mine.first_ns <= theirs.last_ns
        and theirs.first_ns <= mine.last_ns
        and mine.first_record <= theirs.last_record
        and theirs.first_record <= mine.last_record
    )


def _share_records(mine: Moments, theirs: Moments) -> bool:
    """True if two dumps hold the same entries where they have some of one number."""
    shared = mine.records.keys() & theirs.records.keys()
    equal = sum(mine.records[number] == theirs.records[number] for number in shared)
    return bool(shared) and equal >= AGREEING_SHARE * len(shared)


def _names(one: Claim, other: Claim) -> _Names:
    return frozenset({name_without_rank(one.source), name_without_rank(other.source)})


def _joined(claims: Claims, by_rank: Iterable[Sequence[int]]) -> set[_Names]:
    """Names of files of which some rank has left the same entries under both."""
    return {
        _names(claims[one], claims[other])
        for numbers in by_rank
        for one, other in combinations(numbers, 2)
        if _share_records(claims[one].moments, claims[other].moments)
    }


def _has_emptied(one: Claim, other: Claim) -> bool:
    """True if the dump that was written later counts no less, and has nothing unfinished left."""
    if ABSENT in (one.written_ns, other.written_ns):
        return False
    earlier, later = sorted((one, other), key=lambda claim: claim.written_ns)
    return later.moments.first_record == ABSENT and later.moments.counted >= earlier.moments.counted


def _members_differ(one: Claim, other: Claim) -> bool:
    known = one.whole and other.whole and one.moments.world and other.moments.world
    return bool(known) and one.moments.world != other.moments.world


def _separate(claims: Claims) -> list[list[int]]:
    """Files parted where dumps of one rank are of several processes."""
    by_rank: defaultdict[int, list[int]] = defaultdict(list)
    for number, claim in claims.items():
        if claim.named is not None:
            by_rank[claim.named].append(number)
    several = {rank: numbers for rank, numbers in by_rank.items() if len(numbers) > 1}
    joined = _joined(claims, several.values())
    processes = {rank: _processes(claims, numbers, joined) for rank, numbers in several.items()}
    # The rank with the most of them tells how many worlds there are.
    most = max(processes, key=lambda rank: (len(processes[rank]), -rank), default=None)
    if most is None or len(processes[most]) == 1:
        return [list(claims)] if claims else []
    process_of = {
        number: (rank, index)
        for rank, found in processes.items()
        for index, numbers in enumerate(found)
        for number in numbers
    }
    worlds = [list(numbers) for numbers in processes[most]]
    for series in _series(claims, process_of):
        left = [number for number in series if not any(number in world for world in worlds)]
        if not left:
            continue
        fitting = [world for world in worlds if not _conflict(process_of, world, left)]
        home = [world for world in fitting if set(world) & set(series)]
        if not home and fitting:
            nearest = min(fitting, key=lambda world: _distance(claims, world, left))
            home = [nearest] if _distance(claims, nearest, left) < _UNRELATED else []
        if home:
            home[0].extend(left)
        else:
            worlds.append(left)
    return worlds


def _processes(
    claims: Claims, numbers: Sequence[int], joined: Container[_Names]
) -> list[list[int]]:
    """Files of one rank by the process that wrote them."""
    found: list[list[int]] = []
    for number in numbers:
        for process in found:
            if all(one_process(claims[number], claims[other], joined) for other in process):
                process.append(number)
                break
        else:
            found.append([number])
    return found


def _series(claims: Claims, process_of: Mapping[int, tuple[int, int]]) -> list[list[int]]:
    """Files whose names differ in the rank alone; single ones where that puts worlds together."""
    by_name: defaultdict[str, list[int]] = defaultdict(list)
    for number, claim in claims.items():
        by_name[name_without_rank(claim.source)].append(number)
    found: list[list[int]] = []
    for numbers in by_name.values():
        ranks = [claims[number].named for number in numbers]
        found += [numbers] if len(set(ranks)) == len(ranks) else [[number] for number in numbers]
    # Whatever holds one of several processes is laid first: the others join them.
    return sorted(found, key=lambda series: -sum(number in process_of for number in series))


def _conflict(
    process_of: Mapping[int, tuple[int, int]], world: Sequence[int], files: Sequence[int]
) -> bool:
    """True if some rank would be there as two processes."""
    there = dict(process_of[number] for number in world if number in process_of)
    for number in files:
        if number in process_of:
            rank, index = process_of[number]
            if there.get(rank, index) != index:
                return True
    return False


#: Sorts behind every distance of files that may belong together.
_UNRELATED = (3, 0.0)


def _distance(claims: Claims, world: Sequence[int], files: Sequence[int]) -> tuple[int, float]:
    """Difference of the times of operations; comparable among worlds, the least is nearest."""
    if any(_members_differ(claims[one], claims[other]) for one in files for other in world[:1]):
        return _UNRELATED
    theirs = [claims[number].moments for number in world]
    mine = [claims[number].moments for number in files]
    apart = [
        abs(step[0] - other.steps[seq][0])
        for one in mine
        for other in theirs[:4]
        for seq, step in one.steps.items()
        if seq in other.steps
    ]
    if apart:
        return 0, median(apart)
    windows = _window(mine), _window(theirs)
    if windows[0] is None or windows[1] is None:
        return 2, 0.0
    (a, b), (c, d) = windows[0], windows[1]
    return 1, max(0.0, c - b, a - d)


def _window(moments: Sequence[Moments]) -> tuple[float, float] | None:
    """Span of time of which a world's rings tell, whatever the clock of one host."""
    timed = [one for one in moments if one.first_ns != ABSENT]
    if not timed:
        return None
    return median(one.first_ns for one in timed), median(one.last_ns for one in timed)


def _by_members(claims: Claims, world: list[int]) -> list[list[int]]:
    """Parts of a world in which no dump contradicts another on who is in the group of all ranks.

    Only a rank that the others' list has no place for, or that was dumped before the others
    began, is taken out: lists of replicas that train side by side may differ.
    """
    by_members: defaultdict[int, list[int]] = defaultdict(list)
    for number in world:
        claim = claims[number]
        by_members[claim.moments.world if claim.whole else 0].append(number)
    unknown = by_members.pop(0, [])
    if len(by_members) < 2:
        return [world]
    main = max(by_members.values(), key=len)
    size = claims[main[0]].moments.world_size
    window = _window([claims[number].moments for number in main])
    parts: list[list[int]] = [[*main, *unknown]]
    for files in by_members.values():
        if files is main:
            continue
        mine = _window([claims[number].moments for number in files])
        apart = window is not None and mine is not None and mine[1] < window[0]
        outside = all((claims[number].named or 0) >= size for number in files)
        if apart or outside:
            parts.append(files)
        else:
            parts[0].extend(files)
    return parts


def _restart_of(claims: Claims, worlds: Sequence[Sequence[int]], index: int) -> int | None:
    """The last world that is a later attempt of the same job, if any."""
    mine = _by_rank(claims, worlds[index])
    ended = _window([*mine.values()])
    later: list[tuple[float, int]] = []
    for other, files in enumerate(worlds):
        theirs = _by_rank(claims, files)
        began = _window([*theirs.values()])
        if other == index or ended is None or began is None or began[0] <= ended[1]:
            continue
        if not 0 < _written_ns(claims, worlds[index]) <= began[0]:
            # It was there still when the other began, or may have been.
            continue
        # Where the ring has lost its beginning, it may have run beside the first all the time.
        whole = all(one.first_record == 0 for one in theirs.values() if one.records)
        if whole and _same_job(mine, theirs):
            later.append((began[0], other))
    return max(later)[1] if later else None


def _by_rank(claims: Claims, files: Sequence[int]) -> dict[int, Moments]:
    """Moments by rank; by a number of its own where a name tells none."""
    named = [claims[number].named for number in files]
    return {
        -1 - number if rank is None else rank: claims[number].moments
        for number, rank in zip(files, named, strict=True)
    }


def _written_ns(claims: Claims, files: Sequence[int]) -> float:
    """Time when most of a world's files were written; ABSENT where only copies' times are known."""
    known = [claims[number].written_ns for number in files]
    last = _window([claims[number].moments for number in files])
    if ABSENT in known or last is None or median(known) - last[1] > COPIED_LATER_NS:
        return ABSENT
    return median(known)


def _same_job(one: Mapping[int, Moments], other: Mapping[int, Moments]) -> bool:
    """True if two worlds have the same ranks and begin with the same operations, rank by rank."""
    if {m.world for m in one.values() if m.world} != {m.world for m in other.values() if m.world}:
        return False
    steps = _pairs(_steps(one), _steps(other))
    records = [
        pair
        for rank in one.keys() & other.keys()
        if one[rank].first_record == other[rank].first_record == 0
        for pair in _pairs(one[rank].records, other[rank].records)
    ]
    return bool(steps) and _mostly_equal(steps) and _mostly_equal(records)


def _steps(moments: Mapping[int, Moments]) -> dict[int, tuple[int, str]]:
    return {seq: step for one in moments.values() for seq, step in one.steps.items()}


def _pairs(
    mine: Mapping[int, tuple[int, str]], theirs: Mapping[int, tuple[int, str]]
) -> list[tuple[str, str]]:
    """The operations that both have under one number."""
    return [(mine[number][1], theirs[number][1]) for number in mine.keys() & theirs.keys()]


def _mostly_equal(pairs: Sequence[tuple[str, str]]) -> bool:
    return sum(one == other for one, other in pairs) >= AGREEING_SHARE * len(pairs)
