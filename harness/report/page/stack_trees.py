"""Stacks of all ranks merged into prefix trees, as LLNL's STAT does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hanglab.analyzer.code_owners import FrameLike, Owner
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.stack_position import main_thread
from hanglab.analyzer.flight_recorder.columns import Frame, RankDump
from hanglab.analyzer.matching.calls import Call
from hanglab.harness.report.page.records import RankClass, StackNode, StackTree
from hanglab.harness.report.rank_ranges import ranges
from hanglab.harness.report.timeline.building import dumps_of
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.records import StackSample

#: Frames of one stack that are merged; a recursion without end has a thousand.
DEEPEST = 120


@dataclass
class _FrameNode:
    """One frame, below those that called it."""

    frame: str
    user: bool = False
    ranks: set[int] = field(default_factory=set)
    earlier: set[int] = field(default_factory=set)
    ends: set[int] = field(default_factory=set)
    children: dict[str, _FrameNode] = field(default_factory=dict)


class _Tree:
    def __init__(self) -> None:
        self.root = _FrameNode("")

    def add(
        self, rank: int, frames: Sequence[FrameLike], view: RankView, *, now: bool, top: str = ""
    ) -> None:
        """Add a stack, innermost frame first; ``now`` if it was taken at the capture."""
        owners = [(frame, view.code.owner(frame.file)) for frame in frames]
        # hanglab's own frames are no part of the job.
        outermost = [
            (_label(frame), owner is Owner.USER)
            for frame, owner in reversed(owners[:DEEPEST])
            if owner is not Owner.RECORDER
        ]
        if top:
            outermost.insert(0, (top, False))
        node = self.root
        self._visit(node, rank, now)
        for label, user in outermost:
            node = node.children.setdefault(label, _FrameNode(label, user))
            self._visit(node, rank, now)
        if now:
            node.ends.add(rank)

    @staticmethod
    def _visit(node: _FrameNode, rank: int, now: bool) -> None:
        (node.ranks if now else node.earlier).add(rank)

    def folded(self) -> StackNode:
        return _folded(self.root)


def _folded(node: _FrameNode) -> StackNode:
    """The node and all below it as long as one rank after the other goes the same way."""
    frames, user = ([node.frame], [node.user]) if node.frame else ([], [])
    while len(node.children) == 1 and not node.ends:
        (child,) = node.children.values()
        if child.ranks != node.ranks or child.earlier != node.earlier:
            break
        node = child
        frames.append(node.frame)
        user.append(node.user)
    below = sorted(node.children.values(), key=lambda n: (-len(n.ranks), min(n.ranks, default=0)))
    return StackNode(
        frames=frames,
        user=user,
        ranks=ranges(node.ranks),
        count=len(node.ranks),
        earlier=ranges(node.earlier - node.ranks),
        ends=ranges(node.ends) if node.children else "",
        children=[_folded(child) for child in below],
    )


def _label(frame: FrameLike) -> str:
    place = "/".join(frame.file.rsplit("/", 2)[-2:])
    return f"{frame.function}  {place}:{frame.line}" if frame.line else f"{frame.function}  {place}"


def stack_trees(facts: CaseFacts, classes: Sequence[RankClass]) -> list[StackTree]:
    """Trees of main threads, of native frames, of other threads and of processes below the ranks.

    A bare folder of dumps has the stacks of the ranks' open or latest calls.
    """
    views = list(facts.ranks.values())
    found = [
        _main_threads(views),
        _native(views),
        _other_threads(views),
        _processes_below(views),
    ]
    trees = [tree for tree in found if tree is not None]
    calls = None if trees else _calls(facts, classes)
    return trees or ([calls] if calls is not None else [])


def _main_threads(views: Iterable[RankView]) -> StackTree | None:
    tree, samples = _Tree(), 0
    moved: set[int] = set()
    still: set[int] = set()
    for view in views:
        captured = view.captured_stack
        taken = view.rank_stacks
        samples = max(samples, len(taken))
        for sample in taken:
            thread = main_thread(sample)
            if thread is not None and thread.frames:
                tree.add(view.rank, thread.frames, view, now=sample is captured)
        if len(taken) > 1:
            places = {(p.user.file, p.user.line) if p.user else None for p in view.positions()}
            (moved if len(places) > 1 else still).add(view.rank)
    if not tree.root.children:
        return None
    return StackTree(
        title="Main threads",
        root=tree.folded(),
        samples=samples,
        moved=ranges(moved),
        still=ranges(still),
    )


def _native(views: Iterable[RankView]) -> StackTree | None:
    tree = _Tree()
    for view in views:
        samples = [s for s in view.read(files.NATIVE_STACKS) if s.kind == "rank" and s.threads]
        thread = main_thread(samples[-1]) if samples else None
        if thread is not None and thread.frames:
            tree.add(view.rank, thread.frames, view, now=True)
    return _tree("Main threads with native frames", tree)


def _other_threads(views: Iterable[RankView]) -> StackTree | None:
    tree = _Tree()
    for view in views:
        sample = view.captured_stack
        main = main_thread(sample) if sample is not None else None
        for thread in sample.threads if sample is not None else ():
            if thread is not main and thread.frames:
                name = f"thread {thread.name}" if thread.name else "thread without a name"
                tree.add(view.rank, thread.frames, view, now=True, top=name)
    return _tree("Other threads of the ranks", tree)


def _processes_below(views: Iterable[RankView]) -> StackTree | None:
    tree = _Tree()
    for view in views:
        below: list[StackSample] = view.worker_stacks()
        for sample in below:
            thread = main_thread(sample)
            if thread is not None and thread.frames:
                tree.add(view.rank, thread.frames, view, now=True, top=f"{sample.kind} process")
    return _tree("Processes below the ranks", tree)


def _calls(facts: CaseFacts, classes: Sequence[RankClass]) -> StackTree | None:
    """Stacks of calls.  Of large jobs not all were read: one rank stands for its class."""
    tree = _Tree()
    without = []
    for one in classes:
        calls = {rank: _latest_call(facts, rank) for rank in one.ranks}
        for rank, call in calls.items():
            if call is not None and call.stack:
                tree.add(rank, call.stack, facts.ranks[rank], now=True)
        if calls[one.representative] is not None:
            without.append(
                (one, [rank for rank, call in calls.items() if not (call and call.stack)])
            )
    dumps = dumps_of(facts, [one.representative for one, ranks in without if ranks])
    for one, ranks in without:
        call = _latest_call(facts, one.representative)
        dump = dumps.get(one.representative)
        stack = _stack_of(dump, call) if dump is not None and call is not None else ()
        for rank in ranks if stack else ():
            tree.add(rank, stack, facts.ranks[rank], now=True)
    return _tree("Stacks of the open, or else the latest, calls in the dumps", tree)


def _latest_call(facts: CaseFacts, rank: int) -> Call | None:
    calls = facts.graph.unfinished.get(rank)
    return calls[0] if calls else facts.graph.last_calls.get(rank)


def _stack_of(dump: RankDump, call: Call) -> tuple[Frame, ...]:
    """The stack that the dump has of a call."""
    entries = dump.entries
    if entries is None:
        return ()
    rows = entries.in_group(call.group.name)
    if call.seq is not None:
        rows &= (entries.seq == call.seq) & ~entries.is_p2p
    for row in np.flatnonzero(rows)[::-1].tolist():
        if entries.operation_at(row).op == call.op:
            return entries.stack_at(row)
    return ()


def _tree(title: str, tree: _Tree) -> StackTree | None:
    return StackTree(title=title, root=tree.folded()) if tree.root.children else None
