"""Recording calls of ``new_group``: who creates which group, and when.

Nothing else shows it: a group that is being created has no entry in any buffer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from hanglab.recorder.rank.boundary import Boundary

#: What ``new_group`` and its relatives all end in; a private name of torch.
_CREATOR = "_new_group_with_tag"
#: Members written in full; a longer list is cut.
_MEMBERS = 512


class GroupCalls:
    """Wraps the function that creates groups, where this torch has it under its known name."""

    def __init__(self, boundary: Boundary) -> None:
        self._boundary = boundary
        self._module: ModuleType | None = None
        self._original: Callable[..., Any] | None = None

    def install(self, module: ModuleType) -> None:
        original = getattr(module, _CREATOR, None)
        if original is None or self._original is not None:
            return
        boundary = self._boundary

        def create(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
            try:
                slot, number = boundary.enter("new_group", _members(ranks), sys._getframe(1))
            except Exception:
                return original(ranks, *args, **kwargs)
            failed = True
            try:
                group = original(ranks, *args, **kwargs)
                failed = False
                return group
            finally:
                boundary.leave(slot, number, failed)

        create.__name__ = create.__qualname__ = _CREATOR
        create.__doc__ = original.__doc__
        self._module, self._original = module, original
        setattr(module, _CREATOR, create)

    def uninstall(self) -> None:
        if self._module is not None and self._original is not None:
            setattr(self._module, _CREATOR, self._original)
        self._module = self._original = None


def _members(ranks: Any) -> str:
    if ranks is None:
        return "all"
    listed = [int(rank) for rank in ranks]
    return str(listed[:_MEMBERS]) + ("..." if len(listed) > _MEMBERS else "")
