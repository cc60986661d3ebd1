"""Timing every call of a function or method that somebody else calls."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

_NOT_THERE = object()


@dataclass(frozen=True)
class CallableId:
    """Names a callable: the object, class or module that holds it, and its attribute's name.

    ``arg_filter_fn``, ``extra_args_fn`` and ``ignored_args`` are taken for the sake
    of code that passes them to NVIDIA's detector, which makes no use of them either.
    """

    obj: object
    name: str
    arg_filter_fn: Callable[[inspect.BoundArguments], bool] | None = None
    extra_args_fn: Callable[[inspect.BoundArguments], dict[str, Any]] | None = None
    ignored_args: tuple[str, ...] | None = None

    def __str__(self) -> str:
        """Name of the section that its calls make: ``Model.forward`` of an object,
        ``package.module.Model.forward`` of a class."""
        owner = self.obj
        if inspect.ismodule(owner):
            return f"{owner.__name__}.{self.name}"
        if inspect.isclass(owner):
            return f"{owner.__module__}.{owner.__qualname__.rpartition('.')[2]}.{self.name}"
        return f"{type(owner).__name__}.{self.name}"


class WrappedCallable:
    """One callable whose calls are entries of a section, until it is restored."""

    def __init__(
        self, callable_id: CallableId, enter: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """Raises AttributeError where there is no such callable."""
        self.callable_id = callable_id
        self._active = True
        owner, name = callable_id.obj, callable_id.name
        #: The entry of the owner's own __dict__, if it has one: it may inherit the callable.
        self._original = (
            vars(owner).get(name, _NOT_THERE) if hasattr(owner, "__dict__") else (_NOT_THERE)
        )
        self._ours = self._wrapper(getattr(owner, name), enter)
        setattr(owner, name, self._ours)

    def _wrapper(
        self, bound: Callable[..., Any], enter: Callable[[], AbstractContextManager[None]]
    ) -> Any:
        # What is called on a class must stay the kind of method that it was.
        raw: Any = self._original
        kind: Any = type(raw) if isinstance(raw, staticmethod | classmethod) else None
        function: Callable[..., Any] = raw.__func__ if kind else bound

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if not self._active:  # somebody kept the wrapper
                return function(*args, **kwargs)
            with enter():
                return function(*args, **kwargs)

        return kind(wrapper) if kind else wrapper

    def in_place(self) -> bool:
        """True if a call of the attribute still comes through here."""
        owner, name = self.callable_id.obj, self.callable_id.name
        found = getattr(owner, name, None)
        ours = getattr(self._ours, "__func__", self._ours)
        while found is not None:
            if getattr(found, "__func__", found) is ours:
                return True
            found = getattr(found, "__wrapped__", None)
        return False

    def restore(self) -> None:
        """Put the original back, unless somebody has put something else there since."""
        self._active = False
        owner, name = self.callable_id.obj, self.callable_id.name
        if vars(owner).get(name) is not self._ours:
            return
        if self._original is _NOT_THERE:
            delattr(owner, name)
        else:
            setattr(owner, name, self._original)
