"""Assignment of files to ranks, where names, contents and copies disagree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hanglab.analyzer.flight_recorder.columns import ABSENT, RankDump
from hanglab.analyzer.flight_recorder.moments import Moments

#: More members than this in common say nothing about one of them.
_FEW = 16


@dataclass(frozen=True)
class Claim:
    """Reasons for a file to be one rank's dump.

    ``named`` is the rank in the file's name.  ``possible`` are the ranks that
    belong to every group the dump knows the members of, for a rank's dump names
    only groups of which it is a member; None where that says nothing, or where
    it agrees with the name.
    """

    named: int | None
    possible: tuple[int, ...] | None
    entries: int
    #: Number of the last record, ABSENT without entries.
    last: int
    whole: bool
    frames: bool
    source: str
    moments: Moments = Moments()
    #: When the file was written; ABSENT if not known.
    written_ns: int = ABSENT

    @classmethod
    def of(cls, dump: RankDump, named: int | None) -> Claim:
        possible = None
        groups = {id(members): members for members in dump.members.values()}.values()
        if named is None or not all(_has(members, named) for members in groups):
            possible = _in_all(dump)
        entries = dump.entries
        return cls(
            named=named,
            possible=possible,
            entries=0 if entries is None else len(entries),
            last=ABSENT if entries is None else int(entries.record_id[-1]),
            whole=not dump.damage,
            frames=bool(entries is not None and entries.stacks),
            source=dump.source,
            moments=Moments.of(dump),
            written_ns=dump.written_ns,
        )

    @property
    def doubtful(self) -> bool:
        """True where only the other files can tell whose dump this is."""
        if self.named is None:
            return True
        return self.possible is not None and len(self.possible) == 1

    @property
    def counts(self) -> tuple[int, int]:
        """Operations issued and finished, of a process the more the later; of a whole dump."""
        return (self.moments.counted, self.moments.ended) if self.whole else (ABSENT, ABSENT)

    @property
    def worth(self) -> tuple[tuple[int, int], int, int, bool, bool]:
        return self.counts, self.entries, self.last, self.whole, self.frames


def _has(members: tuple[int, ...], rank: int) -> bool:
    # The group of all ranks is large and in order.
    return (rank < len(members) and members[rank] == rank) or rank in members


def _in_all(dump: RankDump) -> tuple[int, ...] | None:
    """Ranks that belong to every group; None if there are none, or too many to tell.

    A dump that some tool wrote again may say its rank outright.
    """
    for key in ("rank", "global_rank"):
        rank = dump.extra.get(key)
        if type(rank) is int and rank >= 0:
            return (rank,)
    common: set[int] | None = None
    for members in dump.members.values():
        common = set(members) if common is None else common.intersection(members)
    return tuple(sorted(common)) if common and len(common) <= _FEW else None


@dataclass
class Assigned:
    """``ranks`` by the number of the file; ``left_out`` gives the reason by number."""

    ranks: dict[int, int] = field(default_factory=dict)
    left_out: dict[int, str] = field(default_factory=dict)


def _why(used: Claim, other: Claim) -> str:
    later = used.entries == other.entries and used.last > other.last
    if later or (used.counts > other.counts and ABSENT not in other.counts):
        return "is later"
    return "has more of it" if used.worth > other.worth else "is as good"


def assign_ranks(claims: Mapping[int, Claim]) -> Assigned:
    """One file per rank.

    Names are believed as long as contents do not prove them wrong: some name
    must be contradicted, each contradicted content must leave a single rank, and
    no two files may end at the same one.  (Replicas that train side by side
    number their ranks alike, so contradictions alone prove nothing.)
    """
    ranks = {n: claim.named for n, claim in claims.items() if claim.named is not None}
    contradicted = {n: claims[n].possible for n in ranks if claims[n].possible is not None}
    if contradicted and all(len(possible or ()) == 1 for possible in contradicted.values()):
        proved = {n: possible[0] for n, possible in contradicted.items() if possible}
        kept = {rank for n, rank in ranks.items() if n not in proved}
        if len(set(proved.values())) == len(proved) and not kept & set(proved.values()):
            ranks.update(proved)
    taken = set(ranks.values())
    result = Assigned()
    for number, claim in claims.items():
        if claim.named is None:
            free = [rank for rank in claim.possible or () if rank not in taken]
            if len(free) == 1:
                ranks[number] = free[0]
            else:
                result.left_out[number] = "neither its name nor its content tells the rank"
    best: dict[int, int] = {}
    for number, rank in ranks.items():
        other = best.get(rank)
        if other is None or claims[number].worth > claims[other].worth:
            best[rank] = number
    for number, rank in ranks.items():
        if best[rank] != number:
            used = claims[best[rank]]
            why = _why(used, claims[number])
            result.left_out[number] = f"another dump of rank {rank}: {used.source} {why}"
    result.ranks = {number: rank for rank, number in best.items()}
    return result
