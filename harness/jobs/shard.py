"""Shards: parts of the scenarios for several machines, which share them out without talking."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

import msgspec

from hanglab.harness.errors import UsageError


class Shard(msgspec.Struct, frozen=True):
    """The ``number``-th, from 1, of ``of`` parts."""

    number: Annotated[int, msgspec.Meta(ge=1)]
    of: Annotated[int, msgspec.Meta(ge=1, le=9999)]
    #: Backends, launchers and ranks that were asked for: shards of other ones are of another suite.
    asked: str = ""

    def __str__(self) -> str:
        return f"{self.number}/{self.of}" + (f" ({self.asked})" if self.asked else "")

    def share_of(self, names: Iterable[str]) -> set[str]:
        """Those of all names that are in this part: dealt out in turns, in their order."""
        return set(sorted(set(names))[self.number - 1 :: self.of])


def asked_for(backends: Iterable[str], launchers: Iterable[str], world_sizes: Iterable[int]) -> str:
    """Backends, launchers and ranks in words; without ``world_sizes`` each scenario's own."""
    ranks = ",".join(map(str, world_sizes))
    return ", ".join(
        [",".join(backends), ",".join(launchers), *([f"{ranks} ranks"] if ranks else [])]
    )


def read_shard(word: str, asked: str) -> Shard:
    """A shard as command lines write it, such as ``2/3``.  Raises UsageError."""
    match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", word)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"{word} is no shard.", "Say I/N, with I from 1 to N, such as 2/3.")
    return Shard(int(match[1]), int(match[2]), asked)
