"""Loads a folder of dumps: every rank's buffer once, and why a file could not be used."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from hanglab.analyzer.flight_recorder.assignment import Claim, assign_ranks
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.flight_recorder.discovery import find_candidates
from hanglab.analyzer.flight_recorder.dump_input import MAX_FILE, DumpInput, bytes_of
from hanglab.analyzer.flight_recorder.elsewhere import cluster_in_use
from hanglab.analyzer.flight_recorder.errors import REFUSED, DumpError, RefusedDump
from hanglab.analyzer.flight_recorder.formats import read_dump
from hanglab.analyzer.flight_recorder.kept_child import KeptChild, KeptChildPool
from hanglab.analyzer.flight_recorder.worker_pool import Limits, Lost, Pool, usable_cores
from hanglab.analyzer.verdict import Unusable

T = TypeVar("T")
United = TypeVar("United")

#: Processor seconds for one file; more for each byte of a large one.
DEADLINE_S = 5.0
_BYTES_PER_S = 2e6
_MEMORY = 256 << 20
_MEMORY_PER_BYTE = 24
#: Bytes that are worth a worker of their own.
_BYTES_PER_WORKER = 200_000
#: Names of files without any use that are listed.
MAX_UNUSABLE = 1000
#: The child that reads whatever this process loads, once :func:`keep_reader` was called.
_KEPT: list[KeptChild] = []


def keep_reader() -> Callable[[], None]:
    """Has one child read whatever this process loads from now on; gives what ends the child.

    For processes that read many small folders, side by side with others: each saves the fork, and
    has the child to itself.  Functions for :func:`map_folder` must be ones that can be pickled.
    """
    if not _KEPT:
        _KEPT.append(KeptChild())
    return _KEPT[0].end


@dataclass
class Loaded:
    """The dumps of a folder, by rank, and the files that yielded none or not all."""

    dumps: list[RankDump] = field(default_factory=list)
    unusable: list[Unusable] = field(default_factory=list)


@dataclass
class Mapped(Generic[T]):
    """Results of a function for each rank's dump.

    ``ranks`` stand beside ``results``; ``kept`` are the numbers of further ones that stayed with
    the cluster that read them.
    """

    ranks: list[int] = field(default_factory=list)
    results: list[T] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    unusable: list[Unusable] = field(default_factory=list)
    #: Names of the files that held dumps, of whatever use.
    files: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[list[T] | list[Unusable]]:
        return iter((self.results, self.unusable))

    def united(self, unite: Callable[[list[Any]], United]) -> United:
        """All results as one; they are gone then.

        ``unite`` takes results and what it made of others, in any order and grouping.
        """
        cluster, parts = cluster_in_use(), [*self.results]
        self.results.clear()
        if cluster is not None and self.kept:
            parts.append(cluster.unite(unite, self.kept))
        return unite(parts)


@dataclass(frozen=True)
class _Read(Generic[T]):
    """A file that held a dump."""

    claim: Claim
    damage: str
    value: T | None
    #: The value stayed where it was made.
    kept: bool = False


def _without_value(answer: _Read[T] | Lost) -> _Read[T] | Lost:
    return answer if isinstance(answer, Lost) else replace(answer, value=None, kept=True)


def identity(dump: RankDump) -> RankDump:
    """The dump itself, for those who keep it whole."""
    return dump


@dataclass(frozen=True)
class _DumpReader(Generic[T]):
    """Reads one file, and applies the function to its dump; runs in a worker."""

    function: Callable[[RankDump], T]

    def __call__(self, file: DumpInput) -> _Read[T] | Lost:
        try:
            data = bytes_of(file)
            dump = read_dump(
                data,
                rank=-1 if file.rank is None else file.rank,
                source=file.name,
                contained=True,
            )
        except DumpError as error:
            return Lost(error.reason)
        except OSError as error:
            return Lost(f"cannot be read: {error.strerror or error}")
        dump.written_ns = file.written_ns
        claim = Claim.of(dump, file.rank)
        # Without a rank it is read once more, when the other files have theirs.
        value = None if file.rank is None else self.function(dump)
        return _Read(claim, dump.damage, value)


def _run(
    files: Sequence[DumpInput],
    function: Callable[[RankDump], T],
    workers: int | None,
    deadline_s: float,
    keep: bool,
) -> Iterator[tuple[int, _Read[T] | Lost]]:
    def limits(file: DumpInput) -> Limits:
        size = min(max(file.size, len(file.data)), MAX_FILE)
        return Limits(deadline_s + size / _BYTES_PER_S, _MEMORY + _MEMORY_PER_BYTE * size)

    reader = _DumpReader(function)
    cluster = cluster_in_use()
    if cluster is not None:
        if keep:
            return cluster.keep(reader, files, limits, _without_value)
        return cluster.run(reader, files, limits)
    if _KEPT:
        return KeptChildPool(reader, files, limits, kept=_KEPT[0]).run()
    if workers is None:
        volume = sum(max(min(file.size, MAX_FILE), len(file.data)) for file in files)
        workers = min(usable_cores(), 1 + volume // _BYTES_PER_WORKER)
    return Pool(reader, files, limits, count=workers).run()


def map_folder(
    path: Path,
    function: Callable[[RankDump], T],
    *,
    workers: int | None = None,
    deadline_s: float = DEADLINE_S,
    ranks: Collection[int] | None = None,
    names: Collection[str] | None = None,
) -> Mapped[T]:
    """``function`` of each rank's dump, made where the dump is loaded.

    ``function`` runs in worker processes (forks of this one) and its results
    come back pickled, so a dump itself never leaves its worker: memory is that
    of the results.  ``workers`` defaults to the cores that may be used,
    ``deadline_s`` is processor time per file.  With ``ranks``, only the dumps of
    these are looked for, which spares the other files unless names are wrong; then
    ``unusable`` speaks only of the files that were read.  With ``names``, no other files are
    looked at.  Nothing in a file is executed, and a file that is no dump, or not a whole one,
    stands in ``unusable``.  Raises NotADirectoryError if ``path`` is no folder.
    """
    files = _files(path)
    if names is not None:
        files = [file for file in files if file.name in names]
    if ranks is None:
        return _collect(files, function, workers, deadline_s)[0]
    named = [file for file in files if file.rank is None or file.rank in ranks]
    mapped, doubtful = _collect(named, function, workers, deadline_s)
    if doubtful:
        # Only all files together tell which one is whose.
        reads, _ = _read_all(files, _nothing, workers, deadline_s)
        assigned = assign_ranks({number: read.claim for number, read in reads.items()}).ranks
        wanted = [replace(files[n], rank=rank) for n, rank in assigned.items() if rank in ranks]
        mapped, _ = _collect(wanted, function, workers, deadline_s)
    return mapped


def map_worlds(
    path: Path,
    function: Callable[[RankDump], T],
    separate: Callable[[Mapping[int, Claim]], Sequence[Sequence[int]]],
    *,
    workers: int | None = None,
    deadline_s: float = DEADLINE_S,
    keep: bool = False,
) -> list[Mapped[T]]:
    """Like :func:`map_folder`, for each part of the files that ``separate`` gives, at least one.

    ``separate`` gets what each file claims, by number, and returns the numbers that belong
    together.  Files that held no dump stand in ``unusable`` of every part.  With ``keep`` a cluster
    keeps what it made, for :meth:`Mapped.united`.
    """
    files = _files(path)
    reads, reasons = _read_all(files, function, workers, deadline_s, keep)
    foreign = {number: reason for number, reason in reasons.items() if number not in reads}
    parts = separate({number: read.claim for number, read in reads.items()})
    return [
        _assign(
            files,
            {number: reads[number] for number in part},
            foreign | {number: reasons[number] for number in part if number in reasons},
            function,
            workers,
            deadline_s,
        )
        for part in parts or [[]]
    ]


def _files(path: Path) -> list[DumpInput]:
    path = Path(path)
    if not path.is_dir():
        raise NotADirectoryError(f"{path} is no folder")
    return [DumpInput.of(candidate) for candidate in find_candidates(path)]


def _nothing(dump: RankDump) -> None:
    return None


def _read_all(
    files: Sequence[DumpInput],
    function: Callable[[RankDump], T],
    workers: int | None,
    deadline_s: float,
    keep: bool = False,
) -> tuple[dict[int, _Read[T]], dict[int, str]]:
    """Content of each file, and what is to be said of it, by the file's place in ``files``."""
    reads: dict[int, _Read[T]] = {}
    reasons: dict[int, str] = {}
    for number, answer in _run(files, function, workers, deadline_s, keep) if files else ():
        if isinstance(answer, Lost):
            reasons[number] = answer.reason
        else:
            reads[number] = answer
            if answer.damage:
                reasons[number] = f"damaged: {answer.damage}"
    return reads, reasons


def _collect(
    files: Sequence[DumpInput],
    function: Callable[[RankDump], T],
    workers: int | None,
    deadline_s: float,
) -> tuple[Mapped[T], bool]:
    """The results, and whether more files might have changed which rank a file belongs to."""
    reads, reasons = _read_all(files, function, workers, deadline_s)
    doubtful = any(read.claim.doubtful for read in reads.values())
    return _assign(files, reads, reasons, function, workers, deadline_s), doubtful


def _assign(
    files: Sequence[DumpInput],
    reads: dict[int, _Read[T]],
    reasons: dict[int, str],
    function: Callable[[RankDump], T],
    workers: int | None,
    deadline_s: float,
) -> Mapped[T]:
    """One result per rank of files that belong together."""
    assigned = assign_ranks({number: read.claim for number, read in reads.items()})
    reasons.update(assigned.left_out)
    changed = [
        number for number, rank in assigned.ranks.items() if rank != reads[number].claim.named
    ]
    again = [replace(files[number], rank=assigned.ranks[number]) for number in changed]
    seconds, failures = _read_all(again, function, workers, deadline_s)
    for index, number in enumerate(changed):
        if index in seconds:
            reads[number] = seconds[index]
        else:
            reasons[number] = failures[index]
            del assigned.ranks[number]
    mapped: Mapped[T] = Mapped(files=[files[number].name for number in sorted(reads)])
    for number, rank in sorted(assigned.ranks.items(), key=lambda item: item[1]):
        if reads[number].kept:
            mapped.kept.append(number)
            continue
        mapped.ranks.append(rank)
        mapped.results.append(reads[number].value)  # type: ignore[arg-type]
    mapped.unusable = [Unusable(files[n].name, reasons[n]) for n in sorted(reasons)]
    if len(mapped.unusable) > MAX_UNUSABLE:
        more = len(mapped.unusable) - MAX_UNUSABLE
        mapped.unusable[MAX_UNUSABLE:] = [Unusable("", f"and {more} more files of no use")]
    return mapped


def load_folder(
    path: Path,
    *,
    workers: int | None = None,
    deadline_s: float = DEADLINE_S,
    ranks: Collection[int] | None = None,
    names: Collection[str] | None = None,
) -> Loaded:
    """Every rank's dump below ``path``.  See :func:`map_folder`, which needs less memory."""
    mapped = map_folder(
        path, identity, workers=workers, deadline_s=deadline_s, ranks=ranks, names=names
    )
    return Loaded(mapped.results, mapped.unusable)


def load_many(
    items: Sequence[tuple[bytes, int | None, str]],
    *,
    workers: int | None = None,
    deadline_s: float = DEADLINE_S,
) -> list[RankDump | DumpError]:
    """The dump in each of ``items`` (bytes, rank, source), or the reason why there is none."""
    files = [
        DumpInput(source, -1 if rank is None else rank, data=data) for data, rank, source in items
    ]
    found: dict[int, RankDump | DumpError] = {}
    if files:
        for number, answer in _run(files, identity, workers, deadline_s, keep=False):
            if isinstance(answer, Lost):
                refused = answer.reason.startswith(REFUSED)
                found[number] = (
                    RefusedDump.again(answer.reason) if refused else DumpError(answer.reason)
                )
            elif answer.value is not None:
                found[number] = answer.value
    return [found[number] for number in range(len(files))]


def load_bytes(
    data: bytes, *, rank: int | None, source: str, deadline_s: float = DEADLINE_S
) -> RankDump:
    """The dump in ``data``; its rank is -1 where ``rank`` is None.  Raises DumpError.

    A worker process does the work; :func:`load_many` shares one among many.
    """
    result = load_many([(data, rank, source)], workers=1, deadline_s=deadline_s)[0]
    if isinstance(result, DumpError):
        raise result
    return result
