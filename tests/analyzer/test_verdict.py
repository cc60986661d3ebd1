"""The verdict's words and its schema are contracts: users' dashboards read them."""

from __future__ import annotations

import json
import subprocess
import sys
from enum import EnumMeta
from pathlib import Path

import jsonschema
import msgspec
import pytest

from hanglab.analyzer.verdict import (
    Alternative,
    Category,
    Cause,
    CollectiveRef,
    Decision,
    DecisionWay,
    Effect,
    Evidence,
    Finding,
    Inputs,
    Location,
    Status,
    Unusable,
    Verdict,
    json_schema,
)

SCHEMA = Path(__file__).parents[2] / "docs" / "verdict.schema.json"

#: As it was when it was published first.
FIRST = Path(__file__).parents[1] / "data" / "verdict.schema.first.json"

#: The keys that the design fixes, in their order.
KEYS = (
    "schema status category cause culprits victims collective location decision confidence "
    "summary evidence advice effect alternatives findings inputs"
).split()

FULL = Verdict(
    status=Status.HUNG,
    category=Category.SYNCHRONIZATION,
    cause=Cause.SKIPPED_COLLECTIVE,
    culprits=[1],
    victims=[0, 2],
    collective=CollectiveRef("default_pg", "0", [0, 1, 2], 12, "all_reduce"),
    location=Location("train.py", 18, "train_step", 1),
    decision=Decision(
        "train.py", 17, "train_step", "if ready:", [DecisionWay([1], "passed over the branch")]
    ),
    confidence=0.98,
    summary="Rank 1 skipped an all_reduce.",
    evidence=[Evidence("flight_recorder", 1, "...")],
    advice="Look.",
    effect=Effect("forward", 8.2, 0.31),
    alternatives=[Alternative(Cause.MISSING_RANK, [2], 0.1)],
    findings=[Finding(status=Status.HUNG, cause=Cause.SKIPPED_COLLECTIVE)],
    inputs=Inputs(ranks=3, unusable=[Unusable("a", "b")], would_decide=["rank 5's dump"]),
)


def test_schema_on_disk_is_the_schema_of_the_code() -> None:
    assert json.loads(SCHEMA.read_text()) == json_schema(), (
        "regenerate it with: python -m hanglab.analyzer.verdict > docs/verdict.schema.json"
    )


def test_verdicts_have_exactly_the_fixed_keys_and_satisfy_the_schema() -> None:
    for verdict in (FULL, Verdict(status=Status.HEALTHY)):
        document = json.loads(verdict.to_json())
        assert list(document) == KEYS
        jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert json.loads(Verdict(status=Status.HEALTHY).to_json())["cause"] is None


def test_the_schema_allows_causes_that_a_later_version_adds() -> None:
    """Whoever keeps a copy of the schema goes on reading verdicts; a status is of a closed set."""
    document = json.loads(FULL.to_json())
    schema = json.loads(SCHEMA.read_text())
    jsonschema.validate({**document, "cause": "cause_of_a_later_version"}, schema)
    for wrong in ({"cause": 3}, {"status": "status_of_a_later_version"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**document, **wrong}, schema)


def test_nothing_went_since_the_first_schema() -> None:
    """Who wrote a reader for it reads verdicts of today, and verdicts of then are read here."""
    first, now = (json.loads(file.read_text()) for file in (FIRST, SCHEMA))
    kept = 0
    for name, record in first["$defs"].items():
        for key, told in record.get("properties", {}).items():
            today = now["$defs"][name]["properties"][key]
            assert {**today, "description": ""} == {**told, "description": ""}, (name, key)
            kept += 1
        if told := set(record.get("enum", ())):
            allowed = set(now["$defs"][name].get("enum", told))
            assert told <= allowed, name
        assert set(now["$defs"][name].get("required", ())) <= set(record.get("required", ()))
    assert kept > 40
    document = json.loads(FULL.to_json())
    jsonschema.validate(document, first)
    of_then = {key: value for key, value in document.items() if key != "decision"}
    for finding in of_then["findings"]:
        del finding["decision"]
    jsonschema.validate(of_then, now)
    read = msgspec.json.decode(json.dumps(of_then), type=Verdict)
    assert (read.cause, read.culprits, read.decision) == (FULL.cause, FULL.culprits, None)


def test_findings_carry_the_keys_from_status_to_effect() -> None:
    finding = json.loads(FULL.to_json())["findings"][0]
    assert list(finding) == KEYS[1 : KEYS.index("effect") + 1]


def test_every_cause_has_a_category_and_advice() -> None:

    assert {cause.category for cause in Cause} == set(Category)
    assert Cause.HOST_SYNC.category is Category.SOFTWARE
    assert Cause.GPU_OOM.category is Category.RESOURCE
    for cause in Cause:
        assert cause.advice


@pytest.mark.skipif(
    not hasattr(EnumMeta, "__getattr__"),
    reason="needs a Python before 3.12, whose enums look their members up in Python",
)
def test_two_threads_may_check_their_first_proposals_at_once() -> None:
    """msgspec learns of a record when it is first used, and crashes where another thread does."""
    program = """
import enum, threading, time
from hanglab.analyzer.proposal import Proposal
from hanglab.analyzer.verdict import Cause, Finding, Status

ask = enum.EnumMeta.__getattr__
def ask_slowly(kind, name):
    time.sleep(0.003)  # as long as another thread has the interpreter
    return ask(kind, name)
enum.EnumMeta.__getattr__ = ask_slowly

cause = Cause.CRASH
finding = Finding(status=Status.FAILED, category=cause.category, cause=cause, culprits=[1])
proposal = Proposal(finding)
problems, together = [], threading.Barrier(4)
def check():
    together.wait()
    problems.append(proposal.problem(range(4)))
threads = [threading.Thread(target=check) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert problems == [""] * 4, problems
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert ended.returncode == 0, ended.stderr
