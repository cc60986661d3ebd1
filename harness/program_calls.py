"""Python texts of the calls that make a Program's operations, for scripts that are written."""

from __future__ import annotations

from typing import Final

#: By operation.  What begins with a comma is left out where a call goes without.
_TEXTS: Final = {
    "all_reduce": "dist.all_reduce({own}{reduction}{group}{async_op})",
    "broadcast": "dist.broadcast({own}, src={root}{group}{async_op})",
    "reduce": "dist.reduce({own}, dst={root}{reduction}{group}{async_op})",
    "all_gather": "dist.all_gather({parts}, {own}{group}{async_op})",
    "reduce_scatter": "dist.reduce_scatter_tensor({own}, {whole}{reduction}{group}{async_op})",
    "gather": "dist.gather({own}, {gathered}, dst={root}{group}{async_op})",
    "scatter": "dist.scatter({own}, {scattered}, src={root}{group}{async_op})",
    "all_to_all": "dist.all_to_all_single({received}, {sent}{splits}{group}{async_op})",
    "barrier": "dist.barrier({group}{async_op})",
    "send": "dist.{posted}send({own}, {peer}{group})",
    "recv": "dist.{posted}recv({own}{source}{group})",
}
#: What has no call of its own is one for every member all the same.
OTHER: Final = "all_reduce"
ROOTED: Final = frozenset(op for op, text in _TEXTS.items() if "{root}" in text)
REDUCING: Final = frozenset(op for op, text in _TEXTS.items() if "{reduction}" in text)


def called_operation(op: str) -> str:
    """The operation whose call stands for ``op``."""
    return op if op in _TEXTS else OTHER


def call_text(op: str, *, posted: bool, **parts: str) -> str:
    """The call of an operation; ``posted``: it returns at once.

    ``parts``: ``own``, a rank's tensor; ``whole``, as large as those of all; ``parts``, a list of
    theirs; ``gathered`` and ``scattered``, that list at the root; ``received``, ``sent`` and
    ``splits`` of an exchange; ``root``, ``peer`` and ``source``; ``reduction`` and ``group``.
    """
    told = {"async_op": ", async_op=True" if posted else "", "posted": "i" if posted else ""}
    return _TEXTS[op].format(**told, **parts).replace("(, ", "(")
