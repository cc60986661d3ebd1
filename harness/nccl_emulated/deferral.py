"""Computations on tensors that the device has not done with: launched, not carried out.

torch computes on the CPU when it is told to.  Where a tensor waits for the device, its results
must wait, too, while the host goes on: their memory is made at once, by the operator's own
shapes on torch's device ``meta``, and filled by the device in the order of the launches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map_only

from hanglab.harness.nccl_emulated.device import EmulatedDevice
from hanglab.harness.nccl_emulated.stream import current_stream

_VALUES_NEEDED = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
#: Their schemas call the result new, but it lies in the argument's memory.
_VIEWS = {"aten::_unsafe_view", "aten::lift_fresh", "aten::_reshape_alias", "aten::alias"}
_MASKS = (torch.bool, torch.uint8)
#: They change where a tensor lies, which the host must see at once.
_RELOCATING = {"aten::set_", "aten::resize_", "aten::resize_as_"}


def tensors_in(args: Iterable[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """All tensors of a call, those in lists as well."""
    found = []
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += [one for one in value if isinstance(one, torch.Tensor)]
    return found


def is_view(function: Any) -> bool:
    """True of an operator that only looks at its argument's memory in another way."""
    schema = function._schema
    if schema.name in _VIEWS:
        return True
    returns = schema.returns
    return bool(returns) and all(
        one.alias_info is not None and not one.alias_info.is_write for one in returns
    )


def needs_values(function: Any, args: tuple[Any, ...]) -> bool:
    """True of an operator whose result the host cannot describe without the numbers."""
    name = function._schema.name
    if name == "aten::index":
        # Only a mask makes the shape depend on values.
        return any(one is not None and one.dtype in _MASKS for one in args[1])
    return bool(_VALUES_NEEDED.intersection(function.tags)) or name in _RELOCATING


def wait_for_tensors(device: EmulatedDevice, tensors: Iterable[torch.Tensor]) -> None:
    """Blocks the host until the device has done with these tensors."""
    pending = device.pending
    if pending:
        found = [pending.get(t.untyped_storage()._cdata) for t in tensors]
        device.wait_for([one for one in found if one is not None])


def defer(
    device: EmulatedDevice, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Launch an operator; gives its results, which are filled later."""
    tensors = tensors_in(args, kwargs)
    writes = [
        (place, argument)
        for place, argument in enumerate(function._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    results, fresh = _results(function, args, kwargs, writes)
    if results is _UNKNOWN:
        wait_for_tensors(device, tensors)
        return function(*args, **kwargs)

    def run() -> None:
        got = function(*args, **kwargs)
        if fresh:
            made = [one for one in tree_flatten(got)[0] if isinstance(one, torch.Tensor)]
            for place, target in fresh:
                target.copy_(made[place])

    current_stream().compute(
        function._schema.name, run, [*tensors, *(target for _, target in fresh)]
    )
    return results


_UNKNOWN: Any = object()


def _results(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], writes: list[tuple[int, Any]]
) -> tuple[Any, list[tuple[int, torch.Tensor]]]:
    """(what the call returns, which of the returned tensors are new and to be filled)."""
    returns = function._schema.returns
    written: dict[frozenset[str], Any] = {}
    for place, argument in writes:
        given = args[place] if place < len(args) else kwargs.get(argument.name)
        written[frozenset(argument.alias_info.before_set)] = given
    if not returns:
        return None, []
    if all(one.alias_info is not None for one in returns):
        mutated = [written.get(frozenset(one.alias_info.before_set)) for one in returns]
        return (mutated[0] if len(mutated) == 1 else tuple(mutated)), []
    try:
        shapes = function(*_to_meta(args), **_to_meta(kwargs))
    except (NotImplementedError, RuntimeError):
        return _UNKNOWN, []
    fresh: list[tuple[int, torch.Tensor]] = []
    counter = iter(range(1 << 20))

    def allocate(shape: torch.Tensor) -> torch.Tensor:
        made = torch.empty_strided(shape.shape, shape.stride(), dtype=shape.dtype)
        fresh.append((next(counter), made))
        return made

    results = tree_map_only(torch.Tensor, allocate, shapes)
    if writes and isinstance(results, tuple):
        results = tuple(
            written.get(frozenset(one.alias_info.before_set), value)
            if one.alias_info is not None
            else value
            for one, value in zip(returns, results, strict=True)
        )
    return results, fresh


def _to_meta(values: Any) -> Any:
    def convert(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device="meta"
            )
        if isinstance(value, torch.device):
            return torch.device("meta")
        return value

    return tree_map_only((torch.Tensor, torch.device), convert, values)
