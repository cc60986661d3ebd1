"""Operations of process groups, one row each: names in buffers, and the methods that make them.

What renders and judges made-up dumps (``analyzer.program``) knows that by itself: a mistake
here would go unseen if it asked.
"""

from __future__ import annotations

import enum
from functools import cache
from typing import Final, NamedTuple

#: Keys of an all_to_all's entry, from format 2.11 on: elements that it sends to each rank of its
#: group, and that it takes from each (pytorch#195443).  No source with the keys was found: these
#: are torch's names of the two lists in ``all_to_all_single``.
SPLIT_KEYS: Final = ("input_split_sizes", "output_split_sizes")


class EqualSizes(enum.Enum):
    """Tensors that are of one size on all members in every healthy call."""

    #: The inputs, or the outputs where no inputs are told.
    INPUTS_ELSE_OUTPUTS = enum.auto()
    INPUTS = enum.auto()
    OUTPUTS = enum.auto()
    BOTH = enum.auto()
    NONE = enum.auto()


class Method(NamedTuple):
    """A method of a process group, and where its calls have what; without the group itself.

    torch calls them with positional arguments, and options last; the bindings' other
    overloads pass root and reduce operation directly.
    """

    name: str
    #: Position of the tensor whose shape stands for the operation, or of a list that begins with
    #: it; -1 if there is none.  An input if it has one size on all ranks, else the output.
    tensor: int
    #: Position of the options object, -1 if there is none.
    options: int = -1
    reduces: bool = False
    peer: int = -1
    tag: int = -1
    #: Position of the output's split list; that of the input follows.
    splits: int = -1
    #: True where nothing is returned and the call itself waits.
    waits: bool = False
    any_source: bool = False
    #: The tensor is all of the input, on every rank.
    whole_input: bool = False
    #: It has a root, as its operation.
    rooted: bool = False


class OpSpec(NamedTuple):
    """One operation.  The defaults are what is taken for granted of any."""

    #: As entries of Flight Recorder name it.
    name: str
    equal_sizes: EqualSizes = EqualSizes.INPUTS_ELSE_OUTPUTS
    #: It has a root, and may finish on one member although another has not entered it.
    rooted: bool = False
    #: Its root has the parts of all others to wait for, and they need not wait for it.
    collects: bool = False
    #: No member finishes it before all have entered.
    synchronizing: bool = False
    #: Its outputs are the inputs of all members.
    gathers: bool = False
    #: Its inputs are the outputs of all members.
    scatters: bool = False
    #: Every member may send each other one another amount.
    splits: bool = False
    #: The half of a message that it is: ``send``, ``recv``, or "" of a collective.
    half: str = ""
    #: Its entry closes a batch of coalesced operations.
    batch_end: bool = False
    #: Its tensors, if it has any, hold no data.
    dataless: bool = False
    #: Of several names for one operation, the one that Programs have; "" if it is its own.
    usual_name: str = ""
    #: Methods of a process group that gloo's entries give this name.
    methods: tuple[Method, ...] = ()

    @property
    def program_name(self) -> str:
        return self.usual_name or self.name

    @property
    def p2p(self) -> bool:
        return bool(self.half)

    @property
    def sends(self) -> bool:
        return self.half == "send"

    @property
    def other_half(self) -> str:
        """Operation that takes the message of a send, or sends that of a receive."""
        return "recv" if self.sends else "send"

    @property
    def rootless(self) -> bool:
        """True of a collective that is known to have no root."""
        return self.name in OPERATIONS and not (self.rooted or self.p2p or self.batch_end)


_INPUTS, _OUTPUTS, _BOTH = EqualSizes.INPUTS, EqualSizes.OUTPUTS, EqualSizes.BOTH
OPERATIONS: Final = {
    spec.name: spec
    for spec in (
        OpSpec(
            "all_reduce",
            synchronizing=True,
            methods=(
                Method("allreduce", 0, 1, reduces=True, whole_input=True),
                Method("allreduce_coalesced", 0, 1, reduces=True),
                # gloo reduces all of it and keeps a part.
                Method("reduce_scatter", 0, 2, reduces=True),
                Method("_reduce_scatter_base", 1, 2, reduces=True),
                Method("reduce_scatter_single", 1, 2, reduces=True),
                Method("reduce_scatter_tensor_coalesced", 1, 2, reduces=True),
                Method("reduce_scatter_single_coalesced", 1, 2, reduces=True),
            ),
        ),
        OpSpec("allreduce_coalesced", synchronizing=True),
        OpSpec("all_reduce_barrier", synchronizing=True, dataless=True, usual_name="barrier"),
        OpSpec("barrier", synchronizing=True, dataless=True, methods=(Method("barrier", -1, 0),)),
        OpSpec(
            "broadcast", rooted=True, methods=(Method("broadcast", 0, 1, whole_input=True),)
        ),
        OpSpec("_broadcast_oop", _OUTPUTS, rooted=True, usual_name="broadcast"),
        OpSpec(
            "reduce",
            rooted=True,
            collects=True,
            methods=(Method("reduce", 0, 1, reduces=True, whole_input=True),),
        ),
        OpSpec("_reduce_oop", _INPUTS, rooted=True, collects=True, usual_name="reduce"),
        OpSpec(
            "gather",
            _INPUTS,
            rooted=True,
            collects=True,
            gathers=True,
            methods=(Method("gather", 1, 2),),
        ),
        OpSpec(
            "scatter", _OUTPUTS, rooted=True, scatters=True, methods=(Method("scatter", 0, 2),)
        ),
        OpSpec(
            "all_gather",
            _OUTPUTS,
            synchronizing=True,
            gathers=True,
            methods=tuple(
                Method(name, 1, 2)
                for name in (
                    "allgather", "allgather_coalesced", "_allgather_base", "all_gather_single",
                    "allgather_into_tensor_coalesced", "all_gather_single_coalesced",
                )
            ),
        ),
        *(
            OpSpec(name, _BOTH, synchronizing=True, gathers=True, usual_name="all_gather")
            for name in ("_all_gather_base", "all_gather_single")
        ),
        OpSpec("all_gather_into_tensor", usual_name="all_gather"),
        OpSpec("allgather_into_tensor_coalesced", synchronizing=True),
        OpSpec("all_gather_v", _OUTPUTS),
        OpSpec("reduce_scatter", _INPUTS, synchronizing=True, scatters=True),
        *(
            OpSpec(name, _BOTH, synchronizing=True, scatters=True, usual_name="reduce_scatter")
            for name in ("_reduce_scatter_base", "reduce_scatter_single")
        ),
        OpSpec("reduce_scatter_tensor", usual_name="reduce_scatter"),
        OpSpec("reduce_scatter_tensor_coalesced", synchronizing=True),
        OpSpec("reduce_scatter_v", _INPUTS),
        OpSpec(
            "all_to_all",
            EqualSizes.NONE,
            splits=True,
            methods=(
                Method("alltoall", 1, 2),
                Method("alltoall_base", 1, 4, splits=2),
                Method("all_to_all_single", 1, 4, splits=2),
            ),
        ),
        OpSpec(
            "send",
            half="send",
            methods=(Method("send", 0, peer=1, tag=2, whole_input=True),),
        ),
        OpSpec(
            "recv",
            half="recv",
            methods=(
                Method("recv", 0, peer=1, tag=2, whole_input=True),
                Method("recv_anysource", 0, tag=1, any_source=True, whole_input=True),
            ),
        ),
        *(
            OpSpec(name, batch_end=True)
            for name in ("coalesced", "ALLGATHER_coalesced", "REDUCE_SCATTER_coalesced")
        ),
    )
}  # fmt: skip

#: Carried out by messages, of which gloo's counter counts each: no buffer has an entry of it.
MONITORED_BARRIER: Final = Method("monitored_barrier", -1, waits=True)
#: Calls of ``torch.cuda.CUDAGraph`` that the boundary records: a capture, from its beginning to its
#: end, and a replay.  Their ``group_seq`` is the number of the graph, from 1.
GRAPH_CAPTURE: Final = "graph_capture"
GRAPH_REPLAY: Final = "graph_replay"
METHODS: Final = {
    method.name: method._replace(rooted=spec.rooted)
    for spec in OPERATIONS.values()
    for method in spec.methods
} | {MONITORED_BARRIER.name: MONITORED_BARRIER}
_BY_METHOD: Final = {m.name: spec for spec in OPERATIONS.values() for m in spec.methods}


@cache
def op_of(name: str) -> OpSpec:
    """The operation that an entry names, with the defaults where it is not known."""
    known = OPERATIONS.get(name)
    if known is not None:
        return known
    if name.startswith(("all_to_all", "alltoall")):
        return OpSpec(name, EqualSizes.NONE, splits=True, usual_name="all_to_all")
    return OpSpec(name, half=next((half for half in ("send", "recv") if name.endswith(half)), ""))


def op_of_method(method: str) -> OpSpec | None:
    """The operation that gloo's entries call what a method of the process group does."""
    return _BY_METHOD.get(method)
