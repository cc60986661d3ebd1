"""Arguments of process-group methods, by method and position."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from hanglab.recorder.case.layout import NONE
from hanglab.recorder.case.operations import Method
from hanglab.recorder.rank.error_guard import is_the_jobs


def root_of(method: Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Root, as a rank within the group, from the options or from the bare overload.

    Raises AttributeError where neither has it.
    """
    if len(args) > method.options:
        options = args[method.options]
    else:
        options = kwargs.get("opts", kwargs.get("root"))
    return options if type(options) is int else int(options.rootRank)


def splits_of(method: Method, args: tuple[Any, ...]) -> str:
    """``in:[1, 2] out:[2, 1]``; the lists are empty where the tensors are split evenly."""
    out, into = args[method.splits], args[method.splits + 1]
    return f"in:{[int(n) for n in into]} out:{[int(n) for n in out]}" if out or into else ""


def rest_of(method: Method) -> Callable[[Any, Any], Hashable] | None:
    """Values of a call besides its tensor, from its second and third argument.

    None where there is nothing.  Raises whatever odd arguments raise.
    """
    second_is_options = method.options == 1
    if method.rooted:

        def root(second: Any, third: Any) -> Hashable:
            options = second if second_is_options else third
            return options if type(options) is int else int(options.rootRank)

        return root
    if method.peer >= 0 or method.tag >= 0:
        return lambda second, third: (second, third)
    return None


class CallArguments(NamedTuple):
    """Properties of an operation from its call's arguments, as far as they can be read."""

    #: None where it is unknown.
    size: Any = None
    dtype: Any = None
    on_cpu: bool = True
    peer: int = NONE
    tag: int = NONE
    root: int = NONE
    splits: str = ""


def read(method: Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallArguments:
    """Odd arguments are unknown, and those after them; the call itself will judge them.

    Raises only what a signal handler of the job raises.
    """
    found: dict[str, Any] = {}
    if method.any_source:
        found["peer"] = -1
    try:
        if method.tensor >= 0:
            tensor = args[method.tensor]
            if type(tensor) is list:
                tensor = tensor[0]
            found["size"] = tensor.shape
            found["dtype"] = tensor.dtype
            found["on_cpu"] = tensor.is_cpu
        if method.peer >= 0:
            found["peer"] = args[method.peer]
        if method.tag >= 0:
            found["tag"] = args[method.tag]
        if method.rooted:
            found["root"] = root_of(method, args, kwargs)
        if method.splits >= 0:
            found["splits"] = splits_of(method, args)
    except Exception as error:
        if is_the_jobs(error):
            raise
    return CallArguments(**found)


def takes_a_timeout(wait: Callable[..., Any]) -> bool:
    """True if a method takes a timeout at the most, as torch's ``Work.wait`` has until now."""
    told = (wait.__doc__ or "").partition("\n")[0]
    # What pybind11 says of a method without overloads.
    if told.startswith("wait(self: "):
        return told.count(": ") == 1 or (told.count(": ") == 2 and ", timeout: " in told)
    code = getattr(wait, "__code__", None)
    if code is None or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        return False
    return code.co_varnames[1 : code.co_argcount] in ((), ("timeout",)) and (
        code.co_kwonlyargcount == 0
    )
