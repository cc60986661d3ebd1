"""The process groups that this rank is a member of, with their membership put right.

On gloo Flight Recorder's own table names every group '' and often knows no
members, so they come from torch.distributed's own books.
"""

from __future__ import annotations

import sys
from typing import Any

from hanglab.recorder.rank.error_guard import is_the_jobs


class GroupMembers:
    """Remembers every group ever seen: a destroyed one still stands in the buffer.

    ``rows`` hold what records.Group holds.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._rows: dict[str, dict[str, Any]] = {}
        self._count = -1
        #: True while there is something that has not been written.
        self.changed = False

    def rows(self) -> list[dict[str, Any]]:
        return list(self._rows.values())

    def look(self) -> None:
        """Note the groups that there are now, if their number changed since the last look."""
        world = _world()
        if world is None:
            return
        count = len(world.pg_names)
        if count != self._count:
            self._count = count
            for group in list(world.pg_names):
                self.note(group)

    def note_nameless(self, backend: str, size: int) -> None:
        """Groups without a name have the job's first ``size`` ranks for members; 0: not known."""
        row = {
            "id": "",
            "description": f"nameless {backend}",
            "ranks": list(range(size)),
            "backend": backend,
        }
        if not size and "" not in self._rows:
            return
        if self._rows.get("") != row:
            self._rows[""] = row
            self.changed = True

    def note(self, group: Any) -> None:
        """Note one group; raises only what a signal handler of the job raises."""
        try:
            self._note(group)
        except Exception as error:  # a group that is being created or destroyed right now
            if is_the_jobs(error):
                raise
            self._count = -1

    def _note(self, group: Any) -> None:
        name = str(group.group_name)
        world = _world()
        if world is None:
            return
        members = world.pg_group_ranks.get(group)
        if members is not None:
            # The books map global rank to rank within the group.
            ranks = sorted(members, key=members.__getitem__)
        elif group is world.default_pg:
            ranks = list(range(group.size()))  # not in the books yet
        else:
            return
        row = {
            "id": name,
            "description": str(group.group_desc),
            "ranks": [int(rank) for rank in ranks],
            "backend": str(world.pg_map[group][0]) if group in world.pg_map else "",
        }
        if self._rank in row["ranks"] and self._rows.get(name) != row:
            self._rows[name] = row
            self.changed = True


def _world() -> Any:
    module = sys.modules.get("torch.distributed.distributed_c10d")
    return getattr(module, "_world", None)
