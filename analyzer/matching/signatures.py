"""Signatures: what must be equal in the calls of all ranks under one sequence number.

Healthy shapes differ in many ways: a gather's root has outputs and the others
have none, an uneven all_gather has inputs of any size, all_to_all may move
anything anywhere.  A signature holds only what is equal in every healthy job,
and leaves out what a dump does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from hanglab.analyzer.code_owners import CodeMap
from hanglab.analyzer.flight_recorder.columns import Arguments, Frame, Operation
from hanglab.analyzer.matching.calls import Call, Difference
from hanglab.analyzer.matching.thresholds import REMEMBERED_SIGNATURES
from hanglab.recorder.case.operations import EqualSizes, op_of
from hanglab.recorder.case.progress_records import SplitLists

UInt64 = npt.NDArray[np.uint64]

CODE = CodeMap()


Numels = tuple[int, ...]


def numels(sizes: Sequence[Sequence[int]]) -> Numels:
    return tuple(prod(shape) for shape in sizes)


def comparable_sizes(op: str, arguments: Arguments) -> tuple[Numels, ...] | None:
    """Numbers of elements that are equal on all ranks; None where nothing can be compared."""
    inputs, outputs = numels(arguments.input_sizes), numels(arguments.output_sizes)
    if not inputs and not outputs:
        return None
    match op_of(op).equal_sizes:
        case EqualSizes.NONE:
            return None
        case EqualSizes.INPUTS:
            return (inputs,) if inputs else None
        case EqualSizes.OUTPUTS:
            return (outputs,) if outputs else None
        case EqualSizes.BOTH:
            return (inputs, outputs) if inputs and outputs else None
        case EqualSizes.INPUTS_ELSE_OUTPUTS:
            return (inputs or outputs,)


def comparable_dtypes(arguments: Arguments) -> tuple[str, ...] | None:
    found = set(arguments.input_dtypes) | set(arguments.output_dtypes)
    found.discard("")
    return tuple(sorted(found)) or None


def difference(a: Call, b: Call, *, sites: bool = True) -> Difference | None:
    """The gravest difference between two calls under one number; None if they go together."""
    if a.op != b.op:
        return Difference.OPERATION
    site_a, site_b = call_site(a.stack), call_site(b.stack)
    if sites and site_a and site_b and site_a != site_b:
        return Difference.CALL_SITE
    return argument_difference(a, b)


def _root(_: str, arguments: Arguments) -> int | None:
    return arguments.root


def _dtypes(_: str, arguments: Arguments) -> tuple[str, ...] | None:
    return comparable_dtypes(arguments)


def _reduce_op(_: str, arguments: Arguments) -> str | None:
    return arguments.reduce_op or None


#: What must be equal in the calls of one operation, gravest first; None where it is not known.
ARGUMENT_DIFFERENCES: Mapping[Difference, Callable[[str, Arguments], Hashable]] = {
    Difference.SIZE: comparable_sizes,
    Difference.DTYPE: _dtypes,
    Difference.ROOT: _root,
    Difference.REDUCE_OP: _reduce_op,
}


def argument_difference(a: Call, b: Call) -> Difference | None:
    for kind, value in ARGUMENT_DIFFERENCES.items():
        mine, others = value(a.op, a.arguments), value(b.op, b.arguments)
        if mine is not None and others is not None and mine != others:
            return kind
    return None


def call_site(stack: Sequence[Frame]) -> Frame | None:
    """The innermost frame of user code; None without one."""
    return CODE.innermost_user(stack)


def _hash(text: str) -> int:
    """A hash of 64 bits that is never 0 and is the same in every process."""
    digest = blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1


@lru_cache(maxsize=4096)
def operation_hash(op: str) -> int:
    """Number that stands for an operation's name in a table of signatures."""
    return _hash(op)


@lru_cache(maxsize=65536)
def _size_hash(op: str, arguments: Arguments) -> int:
    sizes = comparable_sizes(op, arguments)
    return 0 if sizes is None else _hash(str(sizes))


@lru_cache(maxsize=65536)
def _dtype_hash(arguments: Arguments) -> int:
    dtypes = comparable_dtypes(arguments)
    return 0 if dtypes is None else _hash(str(dtypes))


def _extra_hash(arguments: Arguments) -> int:
    if arguments.root is None and not arguments.reduce_op:
        return 0
    return _hash(f"{arguments.root} {arguments.reduce_op}")


def _site_hash(stack: tuple[Frame, ...]) -> int:
    frames = CODE.user_frames(stack) or list(stack)
    if not frames:
        return 0
    return _hash("|".join(f"{f.file}:{f.line}:{f.function}" for f in frames))


class _KnownSignatures:
    """Signatures by the identity of what they are of, which the dumps of one loader share.

    To hash a stack takes longer than all else that is done for one.
    """

    def __init__(self) -> None:
        #: What an identity belongs to is held, so that no other thing can have it.
        self._known: dict[tuple[int, int, int], tuple[Any, tuple[int, ...]]] = {}
        self._sites: dict[int, tuple[Any, int]] = {}

    def __call__(
        self, operation: Operation, arguments: Arguments, stack: tuple[Frame, ...]
    ) -> tuple[int, ...]:
        key = id(operation), id(arguments), id(stack)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= REMEMBERED_SIGNATURES:
                self._known.clear()
                self._sites.clear()
            row = (
                operation_hash(operation.op),
                _size_hash(operation.op, arguments),
                _dtype_hash(arguments),
                _extra_hash(arguments),
                self._site(stack),
            )
            known = self._known[key] = (operation, arguments, stack), row
        return known[1]

    def _site(self, stack: tuple[Frame, ...]) -> int:
        known = self._sites.get(id(stack))
        if known is None:
            known = self._sites[id(stack)] = stack, _site_hash(stack)
        return known[1]


_SIGNATURES = _KnownSignatures()

#: Columns of a table of signatures, gravest first.
OPERATION, SIZE, DTYPE, _, SITE = range(5)


def signature_table(
    operations: Sequence[Operation],
    arguments: Sequence[Arguments],
    stacks: Sequence[tuple[Frame, ...]],
    keys: Sequence[tuple[int, int, int]],
) -> UInt64:
    """Signatures of the given (operation, argument, stack) indices, of shape ``(len(keys), 5)``.

    Every column is a hash of 64 bits; 0 where it is not known or does not apply.
    """
    rows = [
        _SIGNATURES(operations[i], arguments[j], stacks[k] if k >= 0 else ()) for i, j, k in keys
    ]
    return np.array(rows, dtype=np.uint64).reshape(len(keys), 5)


def alike(a: tuple[int, ...] | None, b: tuple[int, ...] | None) -> bool:
    """True if two signatures are from one line and equal in whatever else both of them know.

    A rank that died in a call may have taken with it what is read of one only later.
    """
    if a is None or b is None or a[SITE] != b[SITE]:
        return False
    return all(x == y or not (x and y) for x, y in zip(a[:SITE], b[:SITE], strict=True))


def splits_of(arguments: Arguments) -> SplitLists | None:
    """Split lists of an all_to_all, where the boundary saw both of them."""
    lists = arguments.splits
    return lists if lists is not None and lists.sends and lists.receives else None
