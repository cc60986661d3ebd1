"""Counts of what each statement of a script does, by rank: its reports, read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hanglab.harness.errors import HanglabError


class CountingError(HanglabError):
    """The script did not run to its end while its statements were counted."""

    advice = "Run it with `hanglab run SCRIPT --world-size N` until it ends well, then mutate it."


class StatementCounts(msgspec.Struct, frozen=True):
    hits: int = 0
    seconds: float = 0.0
    #: Operations of all groups that it made itself; with what it called.
    own: int = 0
    all: int = 0
    #: Sends and receives that the script asked for there.
    messages: int = 0


class CallRecord(msgspec.Struct, frozen=True):
    """A function of torch.distributed, called by the script itself."""

    line: int
    function: str
    #: Global ranks of its group.
    members: list[int]
    #: The root, or the other end of a message.
    peer: int | None


class RankProfile(msgspec.Struct, frozen=True):
    rank: int
    statements: dict[int, StatementCounts]
    calls: list[CallRecord]
    #: Members of the groups of which this rank is one.
    groups: list[list[int]]


_NOTHING = StatementCounts()


@dataclass(frozen=True)
class Profile:
    """Profiles of all ranks; each list is by rank."""

    ranks: Sequence[RankProfile]

    @classmethod
    def read(cls, folder: Path, world_size: int) -> Profile:
        """Raises CountingError where a rank left no report."""
        profiles = []
        for rank in range(world_size):
            try:
                data = (folder / f"rank{rank}.json").read_bytes()
                profiles.append(msgspec.json.decode(data, type=RankProfile))
            except (OSError, msgspec.DecodeError) as failure:
                raise CountingError(f"Rank {rank} left no count of its statements.") from failure
        return cls(profiles)

    @property
    def world_size(self) -> int:
        return len(self.ranks)

    def at(self, line: int, rank: int) -> StatementCounts:
        return self.ranks[rank].statements.get(line, _NOTHING)

    def ranks_at(self, line: int, least: int = 1) -> list[int]:
        """Ranks that ran the statement at least so often."""
        return [rank for rank in range(self.world_size) if self.at(line, rank).hits >= least]

    def pick_rank(self, line: int, salt: int, least: int = 1) -> int | None:
        """A rank that runs the statement; others for other lines and salts."""
        ranks = self.ranks_at(line, least)
        return ranks[(line + salt) % len(ranks)] if ranks else None

    def middle(self, line: int, rank: int) -> int:
        """The number, from 1, of an execution with others before and after it, if there are any."""
        return max(1, self.at(line, rank).hits // 2 + 1 if self.at(line, rank).hits > 1 else 1)

    def communicates(self, line: int) -> bool:
        """True if the statement itself makes operations on some rank."""
        return any(self.at(line, rank).own for rank in range(self.world_size))

    def is_message(self, line: int) -> bool:
        return any(self.at(line, rank).messages for rank in range(self.world_size))

    def leads_to_communication(self, line: int) -> bool:
        """True if the statement makes operations, or calls what does."""
        return any(
            self.at(line, rank).all or self.at(line, rank).own for rank in range(self.world_size)
        )

    def calls_at(self, line: int, rank: int) -> list[CallRecord]:
        return [call for call in self.ranks[rank].calls if call.line == line]

    def members(self, line: int, rank: int) -> list[int]:
        """Ranks of the groups in which the rank communicates there; all where that is unknown."""
        found = {member for call in self.calls_at(line, rank) for member in call.members}
        return sorted(found) or list(range(self.world_size))

    def peers(self, line: int, rank: int) -> list[int]:
        """Ranks that the rank's messages there go to or come from."""
        calls = self.calls_at(line, rank)
        return sorted({call.peer for call in calls if call.peer is not None})

    def other_groups(self, rank: int, members: Sequence[int]) -> list[list[int]]:
        """Groups of the rank with more than one member, besides the one of these members."""
        everybody = list(range(self.world_size))
        groups = [sorted(group) for group in self.ranks[rank].groups]
        found = [group for group in [everybody, *groups] if rank in group and len(group) > 1]
        return [group for group in found if group != sorted(members)]
