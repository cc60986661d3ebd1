"""One name for two uses: ``Detector.method()`` and ``detector.method()``.

Code written for NVIDIA's detector calls everything on the class.  Such calls go
to one detector that the process shares; an object has its own.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class on_class_too(Generic[P, R]):
    """A method that, asked for on the class, is that of ``owner.shared()``."""

    def __init__(self, method: Callable[Concatenate[Any, P], R]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, instance: Any, owner: Any) -> Callable[P, R]:
        # Sections are entered through here at every step of the job.
        return MethodType(self._method, instance or owner._shared or owner.shared())


class value_on_class_too(Generic[R]):
    """A property of the class and of its instances: it is read, not called."""

    def __init__(self, read: Callable[[Any], R]) -> None:
        self._read = read
        self.__doc__ = read.__doc__

    def __get__(self, instance: Any, owner: Any) -> R:
        return self._read(owner.shared() if instance is None else instance)
