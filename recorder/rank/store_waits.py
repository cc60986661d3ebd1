"""Waits for a key in a Store of torch.distributed: for a peer, who is to set it.

Nothing is noted.  The wrapper's frame alone tells the sampler of lines (``line_samples``)
that the rank waits for somebody else: a Store's methods leave no frame of their own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hanglab.recorder.rank.hooks import Hooks

#: Methods of ``Store`` that wait until a key is there.
METHODS = ("get", "multi_get", "wait", "queue_pop", "barrier")


class StoreWaits:
    """Wraps the methods of torch's class ``Store`` that wait."""

    def __init__(self) -> None:
        self._hooks = Hooks()

    def install(self, store: type) -> None:
        """Installing twice does nothing."""
        if not self._hooks:
            for name in METHODS:
                if name in vars(store):
                    self._hooks.put(store, name, _wrapper(getattr(store, name)))

    def uninstall(self) -> None:
        self._hooks.remove()


def _wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wait_for_key(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    return wait_for_key
