"""Recording who creates which group, and noticing when the job lets go of its groups.

Nothing else shows either: a group that is being created has no entry in any
buffer, and once the groups are gone the script is past its work and its frames
will be gone as well.
"""

from __future__ import annotations

import contextlib
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
    """Wraps the function that creates groups, and ProcessGroup.shutdown.

    ``letting_go()`` is called once, at the first shutdown, on the thread that does it.
    """

    def __init__(self, boundary: Boundary, letting_go: Callable[[], None]) -> None:
        self._boundary = boundary
        self._letting_go = letting_go
        self._shutdown: tuple[type, Any] | None = None
        self._module: ModuleType | None = None
        self._original: Callable[..., Any] | None = None

    def install(self, module: ModuleType, process_group: type) -> None:
        """``module`` is torch.distributed.distributed_c10d.  Installing twice does nothing."""
        if self._shutdown is None and "shutdown" in process_group.__dict__:
            self._shutdown = process_group, process_group.__dict__["shutdown"]
            process_group.shutdown = self._shutdown_wrapper(process_group.shutdown)  # type: ignore[attr-defined]
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

    def _shutdown_wrapper(self, original: Callable[..., Any]) -> Callable[..., Any]:
        told = False

        def shutdown(group: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal told
            if not told:
                told = True
                with contextlib.suppress(Exception):
                    self._letting_go()
            return original(group, *args, **kwargs)

        shutdown.__doc__ = original.__doc__
        return shutdown

    def uninstall(self) -> None:
        if self._shutdown is not None:
            owner, original = self._shutdown
            owner.shutdown = original  # type: ignore[attr-defined]
            self._shutdown = None
        if self._module is not None and self._original is not None:
            setattr(self._module, _CREATOR, self._original)
        self._module = self._original = None


def _members(ranks: Any) -> str:
    if ranks is None:
        return "all"
    listed = [int(rank) for rank in ranks]
    return str(listed[:_MEMBERS]) + ("..." if len(listed) > _MEMBERS else "")
