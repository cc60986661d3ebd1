"""Keys of a Store of torch.distributed that the rank sets, waits for, or asks for.

A key that a rank waits for is for a peer to set: which one tells who has set the keys before it.
The wrapper's frame tells the sampler of lines (``line_samples``), too, that the rank waits for
somebody else: a Store's methods leave no frame of their own.
"""

from __future__ import annotations

import contextlib
import functools
import re
import threading
import weakref
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

from hanglab.recorder.rank.hooks import Hooked

#: Methods of ``Store`` that wait until a key is there, and those that write one.
WAITING = ("get", "multi_get", "wait", "queue_pop", "barrier")
WRITING = ("set", "multi_set", "add", "append", "compare_set", "queue_push")
#: The method that only asks: of one key asked for again and again the first time counts.
ASKING = ("check",)
#: Kinds of keys that are kept, and characters of one.
_MOST = 256
_LONGEST = 256
#: Keys of one call that are kept besides the last.
_OTHERS = 64
#: Times that each was used last.
_LATEST = 4
_NUMBER = re.compile(r"\d+")


class StoreKeys(Hooked):
    """Wraps the methods of torch's class ``Store`` that wait, write or ask.

    ``operations`` tells how many operations the rank has entered.
    """

    def __init__(self, operations: Callable[[], int]) -> None:
        super().__init__()
        self._operations = operations
        self._uses: dict[tuple[str, str, str], _Use] = {}
        #: What a PrefixStore puts before its keys; torch does not tell.
        self._prefixes: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        #: The use whose key the main thread waits for.
        self._waiting: _Use | None = None

    def install(self, store: type, prefixed: type, served: type) -> None:
        """``prefixed`` and ``served`` are torch's ``PrefixStore`` and ``TCPStore``.

        Installing twice does nothing.
        """
        if not self._hooks:
            self._hooks.put(prefixed, "__init__", self._maker(prefixed.__init__))  # type: ignore[misc]
            self._hooks.put(served, "__init__", self._opener(served.__init__))  # type: ignore[misc]
            for names, wrapper in (
                (WAITING, self._waiter),
                (WRITING, self._writer),
                (ASKING, self._asker),
            ):
                for name in names:
                    if name in vars(store):
                        self._hooks.put(store, name, wrapper(getattr(store, name)))

    def prefix_of(self, store: Any) -> str:
        """Text that PrefixStores put before keys passed to ``store``; "" if not known."""
        with contextlib.suppress(TypeError):  # a class of the job's that has no hash
            return self._prefixes.get(store, "")
        return ""

    def rows(self) -> list[dict[str, Any]]:
        """Rows as records.StoreKeyUse has them."""
        waiting = self._waiting
        return [
            {
                "kind": kind,
                "prefix": prefix,
                "key": use.key,
                "earlier": use.earlier,
                "count": use.count,
                "operations": list(use.operations),
                "waiting": use is waiting,
                "others": use.others if use is waiting else [],
            }
            for (kind, prefix, _), use in list(self._uses.items())
        ]

    def _note(self, kind: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> _Use | None:
        # self, then a key or a list of keys.
        key = arguments[1] if len(arguments) > 1 else named.get("key", named.get("keys"))
        others: list[str] = []
        if isinstance(key, (list, tuple)):
            kept = (one for one in key[:-1] if isinstance(one, str) and len(one) <= _LONGEST)
            others = list(islice(kept, _OTHERS))
            key = key[-1] if key else None
        if not isinstance(key, str) or len(key) > _LONGEST:
            return None
        prefix = self.prefix_of(arguments[0])
        name = kind, prefix, _NUMBER.sub("#", key)
        use = self._uses.get(name)
        if use is None:
            if len(self._uses) >= _MOST:
                return None
            use = self._uses[name] = _Use()
        if kind == "check" and use.key == key:
            return use
        use.earlier, use.key, use.others = use.key, key, others
        use.count += 1
        use.operations.append(self._operations())
        return use

    def _maker(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def make_prefix_store(*args: Any, **kwargs: Any) -> None:
            original(*args, **kwargs)
            with contextlib.suppress(Exception):
                made, prefix, below = (*args, *kwargs.values())[:3]
                if isinstance(below, str):
                    prefix, below = below, prefix
                self._prefixes[made] = f"{self._prefixes.get(below, '')}{prefix}/"[:_LONGEST]

        return make_prefix_store

    def _opener(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def make_tcp_store(*args: Any, **kwargs: Any) -> None:
            if threading.current_thread() is not threading.main_thread():
                return original(*args, **kwargs)
            given = [*args[1:3], *kwargs.values()]
            host = kwargs.get("host_name", given[0] if given else "")
            port = kwargs.get("port", given[1] if len(given) > 1 else "")
            use = _Use()
            use.key, use.count = f"{host}:{port}"[:_LONGEST], 1
            self._uses["join", "", use.key] = self._waiting = use
            try:
                original(*args, **kwargs)
            finally:
                self._waiting = None
                self._uses.pop(("join", "", use.key), None)

        return make_tcp_store

    def _writer(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def write_key(*args: Any, **kwargs: Any) -> Any:
            keys = args[1] if len(args) > 1 else kwargs.get("keys")
            if isinstance(keys, (list, tuple)):
                for key in keys:
                    self._note("set", (args[0], key), {})
            else:
                self._note("set", args, kwargs)
            return original(*args, **kwargs)

        return write_key

    def _asker(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def check_key(*args: Any, **kwargs: Any) -> Any:
            self._note("check", args, kwargs)
            return original(*args, **kwargs)

        return check_key

    def _waiter(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def wait_for_key(*args: Any, **kwargs: Any) -> Any:
            use = self._note("wait", args, kwargs)
            if threading.current_thread() is not threading.main_thread():
                return original(*args, **kwargs)
            self._waiting = use
            try:
                return original(*args, **kwargs)
            finally:
                self._waiting = None

        return wait_for_key


class _Use:
    """Keys that differ by numbers alone, used in one way."""

    __slots__ = ("count", "earlier", "key", "operations", "others")

    def __init__(self) -> None:
        self.key = self.earlier = ""
        self.others: list[str] = []
        self.count = 0
        self.operations: deque[int] = deque(maxlen=_LATEST)
