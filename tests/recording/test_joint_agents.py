"""Agents of several nodes that ``hanglab record`` commands as one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from conditions import wait_for

from hanglab.harness.launchers.supervision.agent_process import Agent, AgentDied
from hanglab.harness.recording.joint_agents import NOT_SHARED, JointAgents
from hanglab.recorder.case import folders
from hanglab.recorder.case.reader import CaseReader
from hanglab.recorder.case.records import Clock


class PlayedAgent:
    """An agent that says what a test has it say."""

    def __init__(self) -> None:
        self.hear: Callable[[dict[str, Any]], None] | None = None
        self.orders: list[str] = []
        self.died = ""
        self.pids: dict[int, int] = {}
        self.processes: list[int] = []

    def order(self, line: dict[str, Any]) -> None:
        self.orders.append(line["command"])
        if line["command"] == "status":
            self.say("status", moved=False)
        elif line["command"] == "capture":
            self.say("captured", trigger={})
        elif line["command"] == "finish":
            self.say("finished", absent=[])

    def say(self, event: str, **content: Any) -> None:
        assert self.hear is not None
        self.hear({"event": event, **content})

    def poll(self) -> bool:
        if self.died:
            raise AgentDied(self.died)
        return False


class Played:
    """Two nodes, the second of them elsewhere, with a rank each."""

    def __init__(self, case: Path) -> None:
        self.own, self.other = PlayedAgent(), PlayedAgent()
        self.lost: list[tuple[str, str]] = []
        self.asked_to_end: list[Clock | None] = []
        self.agents = JointAgents(
            cast(Agent, self.own),
            "n1",
            case,
            1.0,
            lambda node, reason: self.lost.append((node, reason)),
            self.asked_to_end.append,
        )
        self.agents.add("n2", cast(Agent, self.other))
        for agent in (self.own, self.other):
            agent.say("alive", ranks=1)
        self.other.say("ready", host="n2.cluster")

    def rest(self) -> None:
        for agent in (self.own, self.other):
            agent.say("due", kind="no_progress", detail="", quiet_s=2.0)
        wait_for(self.agents.poll, "the capture")


@pytest.fixture
def played(tmp_path: Path) -> Played:
    (tmp_path / folders.HOSTS).mkdir()
    return Played(tmp_path)


def test_job_that_moves_again_is_watched_anew(played: Played, tmp_path: Path) -> None:
    assert played.own.orders == ["several"]
    played.own.say("due", kind="no_progress", detail="", quiet_s=2.0)
    assert not any(played.agents.poll() for _ in range(3))
    played.rest()
    job = CaseReader(tmp_path).job
    assert job is not None and job.trigger is not None and job.trigger.kind == "no_progress"
    played.other.say("resumed")
    assert not played.agents.poll()
    assert played.own.orders[-1] == played.other.orders[-1] == "forget"
    job = CaseReader(tmp_path).job
    assert job is not None and job.trigger is None
    played.rest()


def test_all_are_told_of_a_rank_that_failed(played: Played) -> None:
    played.other.say("due", kind="exit", detail="rank 1 ended with code 1", quiet_s=0.0)
    assert (played.own.orders[-1], "failure" in played.other.orders) == ("failure", False)
    assert not played.agents.poll()
    played.own.say("due", kind="exit", detail="rank 1 ended with code 1", quiet_s=0.3)
    wait_for(played.agents.poll, "the capture")
    assert not played.agents.stuck
    played.own.say("stuck")
    assert not played.agents.stuck
    played.other.say("alive", ranks=0)
    assert played.agents.stuck and not played.agents.ranks_elsewhere


def test_node_that_is_lost_is_told_once_and_not_waited_for(played: Played, tmp_path: Path) -> None:
    played.other.died = "its step has ended"
    played.agents.poll()
    played.agents.poll()
    assert played.lost == [("n2.cluster", "its step has ended")]
    assert not played.agents.ranks_elsewhere
    played.own.say("due", kind="no_progress", detail="", quiet_s=2.0)
    wait_for(played.agents.poll, "the capture")
    played.agents.finish(ended_by_recorder=True)
    (absence,) = CaseReader(tmp_path).absent
    assert (absence.what, absence.host) == ("agent", "n2.cluster")


def test_agents_that_are_all_gone_are_told_as_that(played: Played) -> None:
    played.own.died = played.other.died = "killed"
    with pytest.raises(AgentDied, match="on all nodes"):
        played.agents.poll()


def test_end_by_a_scheduler_is_not_taken_for_one_by_hanglab(played: Played) -> None:
    played.agents.ending()
    played.own.say("asked_to_end")
    played.agents.finish(ended_by_recorder=True)
    assert played.asked_to_end == [None]


def test_time_at_which_a_scheduler_asks_is_kept(played: Played, tmp_path: Path) -> None:
    played.other.say("asked_to_end")
    played.agents.finish(ended_by_recorder=False)
    (asked,) = played.asked_to_end
    job = CaseReader(tmp_path).job
    assert asked is not None and job is not None and job.interrupted is not None


def test_folder_that_is_not_shared_costs_that_node_alone(played: Played) -> None:
    played.other.say("not_shared")
    assert played.lost == [("n2.cluster", NOT_SHARED)]
    played.own.say("due", kind="no_progress", detail="", quiet_s=2.0)
    wait_for(played.agents.poll, "the capture")
