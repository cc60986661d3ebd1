"""Which argument of which process-group method holds what.

torch calls these methods with positional arguments, and options last; the
bindings' other overloads pass root and reduce operation directly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Method(NamedTuple):
    """How to read a call of one method; ``args`` come without the group itself."""

    #: The tensor whose shape stands for the operation, or None.
    tensor: Callable[[tuple[Any, ...]], Any] | None
    #: Position of the options object, -1 if there is none.
    options: int = -1
    rooted: bool = False
    reduces: bool = False
    peer: int = -1
    tag: int = -1
    #: Position of the output's split list; that of the input follows.
    splits: int = -1
    #: True where nothing is returned and the call itself waits.
    waits: bool = False
    any_source: bool = False


def _first(args: tuple[Any, ...]) -> Any:
    return args[0]


def _first_of_first(args: tuple[Any, ...]) -> Any:
    """The overloads with a bare tensor give it in place of the list."""
    tensors = args[0]
    return tensors[0] if type(tensors) is list or type(tensors) is tuple else tensors


def _second(args: tuple[Any, ...]) -> Any:
    return args[1]


def _first_of_second(args: tuple[Any, ...]) -> Any:
    tensors = args[1]
    return tensors[0] if type(tensors) is list or type(tensors) is tuple else tensors


#: By name.  Where a method has an input of the same size on every rank, that is
#: the tensor; else the output.
METHODS: dict[str, Method] = {
    "allreduce": Method(_first_of_first, 1, reduces=True),
    "allreduce_coalesced": Method(_first_of_first, 1, reduces=True),
    "broadcast": Method(_first_of_first, 1, rooted=True),
    "reduce": Method(_first_of_first, 1, rooted=True, reduces=True),
    "allgather": Method(_first_of_second, 2),
    "allgather_coalesced": Method(_first_of_second, 2),
    "_allgather_base": Method(_second, 2),
    "all_gather_single": Method(_second, 2),
    "allgather_into_tensor_coalesced": Method(_first_of_second, 2),
    "all_gather_single_coalesced": Method(_first_of_second, 2),
    "gather": Method(_first_of_second, 2, rooted=True),
    "scatter": Method(_first_of_first, 2, rooted=True),
    "reduce_scatter": Method(_first_of_first, 2, reduces=True),
    "_reduce_scatter_base": Method(_second, 2, reduces=True),
    "reduce_scatter_single": Method(_second, 2, reduces=True),
    "reduce_scatter_tensor_coalesced": Method(_first_of_second, 2, reduces=True),
    "reduce_scatter_single_coalesced": Method(_first_of_second, 2, reduces=True),
    "alltoall": Method(_first_of_second, 2),
    "alltoall_base": Method(_second, 4, splits=2),
    "all_to_all_single": Method(_second, 4, splits=2),
    "barrier": Method(None, 0),
    "monitored_barrier": Method(None, waits=True),
    "send": Method(_first_of_first, peer=1, tag=2),
    "recv": Method(_first_of_first, peer=1, tag=2),
    "recv_anysource": Method(_first_of_first, tag=1, any_source=True),
}


def root_of(method: Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """Root, as a rank within the group, from the options or from the bare overload."""
    if len(args) > method.options:
        options = args[method.options]
    else:
        options = kwargs.get("opts", kwargs.get("root"))
        if options is None:
            return None
    return options if type(options) is int else int(options.rootRank)


def splits_of(method: Method, args: tuple[Any, ...]) -> str:
    """``in:[1, 2] out:[2, 1]``; the lists are empty where the tensors are split evenly."""
    out, into = args[method.splits], args[method.splits + 1]
    return f"in:{[int(n) for n in into]} out:{[int(n) for n in out]}" if out or into else ""
