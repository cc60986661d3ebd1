"""Causes, categories and the Verdict: the stable words that the analyzer answers with."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from hanglab.analyzer.catalogue import Category as Category
from hanglab.analyzer.catalogue import Cause as Cause
from hanglab.analyzer.catalogue import Status as Status
from hanglab.recorder.case.undecodable_text import encode_json

SCHEMA: Literal["hanglab.verdict/1"] = "hanglab.verdict/1"


class CollectiveRef(msgspec.Struct, frozen=True):
    """The operation that a finding is about; ``seq`` is None for point-to-point without one."""

    group: str
    group_id: str
    ranks: list[int]
    seq: int | None
    op: str


class Location(msgspec.Struct, frozen=True):
    """A line of the user's own code, and the rank that stood there."""

    file: str
    line: int
    function: str
    rank: int


class Evidence(msgspec.Struct, frozen=True):
    """One observation.  ``source`` is a kind of evidence, such as ``flight_recorder``."""

    source: str
    rank: int | None
    detail: str


class Effect(msgspec.Struct, frozen=True):
    """Loss of a slow job: where, how much a step, and which share of it."""

    section: str | None
    ms_per_step: float
    share_of_step: float


class DecisionWay(msgspec.Struct, frozen=True):
    """Ranks that went one way on from a statement, and which."""

    ranks: list[int]
    way: str


class DecisionValue(msgspec.Struct, frozen=True):
    """A variable of the statement that parted ranks, as one rank had it at the capture."""

    rank: int
    name: str
    value: str


class Decision(msgspec.Struct, frozen=True):
    """The statement at which the ways of ranks parted, and who went which way."""

    file: str
    line: int
    function: str
    text: str
    ways: list[DecisionWay]
    #: Of ranks that still stood in the function, where values were recorded.
    values: list[DecisionValue] = []


class Alternative(msgspec.Struct, frozen=True):
    cause: Cause
    culprits: list[int]
    confidence: float


class Finding(msgspec.Struct, kw_only=True):
    """One independent fault."""

    status: Status
    category: Category | None = None
    cause: Cause | None = None
    culprits: list[int] = []
    victims: list[int] = []
    collective: CollectiveRef | None = None
    location: Location | None = None
    decision: Decision | None = None
    confidence: float = 0.0
    summary: str = ""
    evidence: list[Evidence] = []
    advice: str = ""
    effect: Effect | None = None


class Unusable(msgspec.Struct, frozen=True):
    file: str
    reason: str


class Inputs(msgspec.Struct, kw_only=True):
    """Inputs that the verdict rests on, and what would settle it where it is inconclusive.

    Files of one attempt of one job are judged.  Where others lie beside them, ``world`` gives
    the names of those that were judged, with ``#`` for the rank, and ``set_aside`` the others.
    """

    ranks: int = 0
    missing_ranks: list[int] = []
    unusable: list[Unusable] = []
    world: str | None = None
    set_aside: list[Unusable] = []
    would_decide: list[str] = []


class Verdict(msgspec.Struct, kw_only=True):
    """The analyzer's conclusion; its JSON form is ``hanglab.verdict/1``."""

    schema: Literal["hanglab.verdict/1"] = SCHEMA
    status: Status
    category: Category | None = None
    cause: Cause | None = None
    culprits: list[int] = []
    victims: list[int] = []
    collective: CollectiveRef | None = None
    location: Location | None = None
    decision: Decision | None = None
    confidence: float = 0.0
    summary: str = ""
    evidence: list[Evidence] = []
    advice: str = ""
    effect: Effect | None = None
    alternatives: list[Alternative] = []
    findings: list[Finding] = []
    inputs: Inputs = msgspec.field(default_factory=Inputs)

    def to_json(self) -> bytes:
        return encode_json(self)


def json_schema() -> dict[str, Any]:
    """JSON Schema of a verdict; a cause is any string, as a later version may know more of them."""
    schema = msgspec.json.schema(Verdict)
    words = f"{Cause.__doc__} Listed in analyzer/catalogue.py."
    schema["$defs"]["Cause"] = {"title": "Cause", "description": words, "type": "string"}
    return schema


if __name__ == "__main__":
    print(msgspec.json.format(msgspec.json.encode(json_schema()), indent=2).decode())
