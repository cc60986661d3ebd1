"""Operations on backends that no ProcessGroup stands before, made by their own constructors.

``ProcessGroupGloo(store, rank, size)`` is a backend.  torch.distributed keeps no books
on it, and its calls do not pass ProcessGroup's methods.
"""

from __future__ import annotations

from typing import Any

from hanglab.recorder.rank.boundary import Boundary, name_of
from hanglab.recorder.rank.group_members import GroupMembers


class Backends:
    """Records calls from Python into backends, at the same boundary as those into groups.

    They bear no name, so several of one rank cannot be told apart.  Their members are
    known as long as each that was used has all ranks of the job, in their order.
    """

    def __init__(
        self, boundary: Boundary, rank: int, world_size: int | None, groups: GroupMembers
    ) -> None:
        self._boundary = boundary
        self._rank = rank
        self._world_size = world_size
        self._groups = groups
        self._whole = True

    def install(self, backend: type) -> None:
        """``backend`` is torch's class Backend, from which all inherit their methods."""
        self._boundary.add(backend)

    def look_at(self, backend: Any) -> None:
        """Look at a backend whose first operation is about to begin."""
        if name_of(backend):
            return  # a group's own, and known by it
        whole = backend.rank() == self._rank and backend.size() == self._world_size
        self._whole = self._whole and whole
        self._groups.note_nameless(str(backend.name()), backend.size() if self._whole else 0)
