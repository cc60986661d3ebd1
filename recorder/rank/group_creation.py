"""Recording who creates which group, and noticing when the job has its first and lets go of all.

Nothing else shows it: a group that is being created has no entry in any buffer,
DistributedDataParallel never passes the boundary, and once the groups are gone
the script is past its work and its frames will be gone as well.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from hanglab.recorder.rank.boundary import Boundary
from hanglab.recorder.rank.error_guard import GUARD, is_the_jobs
from hanglab.recorder.rank.hooks import Hooked

#: What ``new_group`` and its relatives all end in; a private name of torch.
_CREATOR = "_new_group_with_tag"
#: What ``init_process_group`` hands the default group to; a private name of torch.
_DEFAULT = "_update_default_pg"
#: Members written in full; a longer list is cut.
_MEMBERS = 512


class GroupCalls(Hooked):
    """Wraps the functions that make groups known, and ProcessGroup.shutdown.

    ``group_seen(group)`` is called with each default group, ``letting_go()`` once, at
    the first shutdown, on the thread that does it.
    """

    def __init__(
        self,
        boundary: Boundary,
        letting_go: Callable[[], None],
        group_seen: Callable[[Any], None] = lambda group: None,
    ) -> None:
        super().__init__()
        self._boundary = boundary
        self._group_seen = group_seen
        self._letting_go = letting_go

    def install(self, module: ModuleType, process_group: type) -> None:
        """``module`` is torch.distributed.distributed_c10d.  Installing twice does nothing."""
        if self._hooks:
            return
        if "shutdown" in process_group.__dict__:
            shutdown = self._shutdown_wrapper(process_group.shutdown)  # type: ignore[attr-defined]
            self._hooks.put(process_group, "shutdown", shutdown)
        for name, wrapper in ((_CREATOR, self._creator), (_DEFAULT, self._updater)):
            original = getattr(module, name, None)
            if original is not None:
                self._hooks.put(module, name, wrapper(original))

    def _creator(self, original: Callable[..., Any]) -> Callable[..., Any]:
        boundary = self._boundary

        @functools.wraps(original)
        def create(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
            if isinstance(ranks, Iterator):
                ranks = list(ranks)  # to be read twice
            try:
                slot, number = boundary.enter("new_group", _members(ranks), sys._getframe(1))
            except Exception as error:
                if is_the_jobs(error):
                    raise
                return original(ranks, *args, **kwargs)
            failed = True
            try:
                group = original(ranks, *args, **kwargs)
                failed = False
                return group
            finally:
                boundary.leave(slot, number, failed)

        return create

    def _updater(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def update(group: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(group, *args, **kwargs)
            if group is not None:
                with GUARD:
                    self._group_seen(group)
            return result

        return update

    def _shutdown_wrapper(self, original: Callable[..., Any]) -> Callable[..., Any]:
        told = False

        def shutdown(group: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal told
            if not told:
                told = True
                with GUARD:
                    self._letting_go()
            return original(group, *args, **kwargs)

        shutdown.__doc__ = original.__doc__
        return shutdown


def _members(ranks: Any) -> str:
    if ranks is None:
        return "all"
    listed = [int(rank) for rank in ranks]
    return str(listed[:_MEMBERS]) + ("..." if len(listed) > _MEMBERS else "")
