"""Data of a page: what it draws, and what people can take out of it as JSON.

The element ``hanglab-data`` of a page holds a :class:`PageData`.  Ranks are global ranks, written
as ranges (``0, 2-63``) where there may be many.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from hanglab.analyzer.verdict import Unusable, Verdict
from hanglab.harness.report.explanation.parts import Explanation

SCHEMA: Literal["hanglab.page/1"] = "hanglab.page/1"


class RankClass(msgspec.Struct, kw_only=True):
    """Ranks of the same stack, open operation, state and part in the verdict."""

    ranks: list[int]
    shown: str
    #: The rank that stands for them.
    representative: int
    role: str
    doing: str
    pid: int | None = None
    host: str = ""
    state: str = ""


class TimelineRow(msgspec.Struct, kw_only=True):
    """One rank's row; ``ranks`` says for whom else it stands."""

    rank: int
    ranks: str
    role: str
    host: str = ""
    pid: int | None = None


class TimelineActivity(msgspec.Struct, kw_only=True):
    """Kind, name and place of spans."""

    kind: str
    name: str
    group: str = ""
    place: str = ""


class TimelineMoment(msgspec.Struct, kw_only=True):
    at_us: int
    kind: str
    text: str
    rank: int | None = None
    host: str = ""


class TimelineData(msgspec.Struct, kw_only=True):
    """Spans as columns of one length, in microseconds since ``begin_wall_ns``.

    ``length`` is -1 where an end was not recorded; spans in ``open`` had not ended at ``end_us``,
    or when their rank did.
    """

    begin_wall_ns: int
    end_us: int
    rows: list[TimelineRow]
    activities: list[TimelineActivity]
    row: list[int] = []
    activity: list[int] = []
    begin: list[int] = []
    length: list[int] = []
    #: Sequence number of a collective, -1 without one.
    seq: list[int] = []
    open: list[int] = []
    moments: list[TimelineMoment] = []
    #: Spans that are older than the first one shown, and ranks that have no row of their own.
    older: int = 0
    ranks_without_row: int = 0


class StackNode(msgspec.Struct, kw_only=True):
    """Frames that the same ranks have on their stacks, outermost first, and how they go on."""

    frames: list[str]
    #: Ranks that had these frames at the capture, and that had them only in earlier samples.
    ranks: str
    count: int
    earlier: str = ""
    #: Ranks whose stack ends here.
    ends: str = ""
    #: The frames are the user's own.
    user: list[bool] = []
    children: list[StackNode] = []


class StackTree(msgspec.Struct, kw_only=True):
    """Stacks of all ranks, merged; in ``moved`` are ranks whose user code changed its line."""

    title: str
    root: StackNode
    samples: int = 1
    moved: str = ""
    still: str = ""


class WaitNode(msgspec.Struct, kw_only=True):
    """Ranks that wait alike; ``x`` and ``y`` are where to draw them."""

    ranks: str
    count: int
    kind: Literal["root", "knot", "waits"]
    text: str
    x: float = 0.0
    y: float = 0.0


class WaitEdge(msgspec.Struct, kw_only=True):
    """Nodes of which the first waits for the second, and in what."""

    waiter: int
    awaited: int
    text: str
    #: The verdict says so, and the wait itself was not seen.
    concluded: bool = False


class WaitData(msgspec.Struct, kw_only=True):
    nodes: list[WaitNode] = []
    edges: list[WaitEdge] = []
    notes: list[str] = []


class SideCell(msgspec.Struct, kw_only=True):
    text: str
    place: str = ""
    state: str = ""
    differs: bool = False


class SideRow(msgspec.Struct, kw_only=True):
    seq: int | None
    group: str
    difference: str
    cells: list[SideCell]


class SideBySide(msgspec.Struct, kw_only=True):
    """Operations around the first place at which ranks differ; a column stands for equal ranks."""

    title: str
    columns: list[str] = []
    rows: list[SideRow] = []
    notes: list[str] = []


class Line(msgspec.Struct, kw_only=True):
    """One line of a chart."""

    name: str
    x: list[float]
    y: list[float | None]


class Chart(msgspec.Struct, kw_only=True):
    """One chart over seconds of the job."""

    title: str
    unit: str
    lines: list[Line]


class HostCharts(msgspec.Struct, kw_only=True):
    host: str
    ranks: str
    #: Where seconds of its charts begin, on the job's clock.
    begin_wall_ns: int = 0
    charts: list[Chart] = []


class ScoreTable(msgspec.Struct, kw_only=True):
    """Own work of ranks by section: milliseconds an entry, and the score against the fastest."""

    sections: list[str]
    ranks: list[int]
    medians: list[list[float | None]]
    scores: list[list[float | None]]
    over_time: Chart
    notes: list[str] = []


class Fact(msgspec.Struct, kw_only=True):
    name: str
    value: str


class PageData(msgspec.Struct, kw_only=True):
    """All that a page shows of one job."""

    schema: Literal["hanglab.page/1"] = SCHEMA
    title: str
    version: str
    verdict: Verdict
    #: The verdict in words and parts.
    explanation: Explanation
    job: list[Fact] = []
    classes: list[RankClass] = []
    timeline: TimelineData | None = None
    stacks: list[StackTree] = []
    waits: WaitData = msgspec.field(default_factory=WaitData)
    side_by_side: SideBySide | None = None
    scores: ScoreTable | None = None
    hosts: list[HostCharts] = []
    missing: list[Unusable] = []
    would_decide: list[str] = []
