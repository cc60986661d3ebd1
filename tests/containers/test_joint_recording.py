"""When the agents of several nodes capture, and what becomes of those that do not answer."""

from __future__ import annotations

import signal
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from hanglab.harness.launchers.docker.node_facts import KeptFacts
from hanglab.harness.launchers.nodes.joint_recording import JointRecording
from hanglab.harness.launchers.supervision.agent_process import AgentDied
from hanglab.harness.launchers.supervision.channel import Message
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.case.reader import CaseReader
from hanglab.recorder.case.records import Container
from hanglab.recorder.case.writer import clock


class PlayedNodes:
    """Three nodes of a rank each, whose agents answer as a test has them do."""

    def __init__(self) -> None:
        self.orders: list[tuple[int, str]] = []
        self.alive = {0, 1, 2}
        self.paused: set[int] = set()
        self.recording: JointRecording | None = None
        self.facts = KeptFacts()

    def order(self, number: int, line: Message) -> bool:
        self.orders.append((number, line["command"]))
        assert self.recording is not None
        if number not in self.paused:
            answer = {"status": "status", "capture": "captured"}.get(line["command"])
            if answer:
                self.recording.take(number, {"event": answer})
        return True

    def living(self) -> Collection[int]:
        return self.alive

    def names(self) -> Mapping[int, str]:
        return {number: f"node{number}" for number in range(3)}

    def node_of(self, rank: int) -> int:
        return rank

    def is_paused(self, number: int) -> bool:
        return number in self.paused

    def keep_facts(self, case: Path) -> None:
        names = self.names()
        states = {n: "paused" if n in self.paused else "running" for n in names}
        self.facts.keep(
            case, {name: Container(clock(), f"c{n}", states[n]) for n, name in names.items()}
        )


@pytest.fixture
def nodes() -> PlayedNodes:
    return PlayedNodes()


@pytest.fixture
def recording(tmp_path: Path, nodes: PlayedNodes) -> JointRecording:
    nodes.recording = JointRecording(tmp_path, nodes, 3, 1.0)
    return nodes.recording


def due(kind: str = "no_progress", detail: str = "", quiet_s: float = 2.0) -> Message:
    return {"event": "due", "kind": kind, "detail": detail, "quiet_s": quiet_s}


def test_all_must_rest(nodes: PlayedNodes, recording: JointRecording, tmp_path: Path) -> None:
    recording.take(0, due(quiet_s=2.0))
    recording.take(1, due(quiet_s=1.5))
    for _ in range(3):
        assert not recording.poll()
    assert set(nodes.orders) == {(2, "status")}
    recording.take(0, {"event": "undue"})
    recording.take(2, due(quiet_s=1.7))
    assert not recording.poll()
    recording.take(0, due(quiet_s=1.8))
    assert recording.wait_captured(5.0)
    assert sorted(n for n, word in nodes.orders if word == "capture") == [0, 1, 2]
    assert recording.captured is not None
    assert (recording.captured["kind"], recording.captured["quiet_s"]) == ("no_progress", 1.5)
    recording.take(1, {"event": "finished", "absent": [{"what": "gpu", "reason": "no driver"}]})
    recording.finish(ended_by_recorder=True)
    case = CaseReader(tmp_path)
    assert case.job is not None and case.job.trigger is not None
    assert (case.job.world_size, case.job.ended_by_recorder) == (3, True)
    assert [(absence.what, absence.reason) for absence in case.absent] == [("gpu", "no driver")]


def test_nodes_whose_ranks_have_ended_are_not_asked(
    nodes: PlayedNodes, recording: JointRecording
) -> None:
    nodes.alive = {1}
    recording.take(1, due())
    assert recording.wait_captured(5.0)


def test_a_paused_node_is_not_waited_for(
    nodes: PlayedNodes, recording: JointRecording, tmp_path: Path
) -> None:
    nodes.paused = {2}
    recording.take(0, due())
    recording.take(1, due("timeout_dump", "torch wrote the dump of rank 1 by itself"))
    assert recording.wait_captured(5.0)
    assert recording.captured is not None and recording.captured["kind"] == "timeout_dump"
    assert sorted(n for n, word in nodes.orders if word == "capture") == [0, 1]
    nodes.paused = set()
    recording.finish(ended_by_recorder=True)
    case = CaseReader(tmp_path)
    (absence,) = case.absent
    assert (absence.host, absence.reason) == ("node2", "the node is paused")
    container = case.hosts["node2"].read(files.CONTAINER)
    assert container is not None and container.status == "paused"


def test_the_end_of_a_node_is_told_to_the_others(
    nodes: PlayedNodes, recording: JointRecording, tmp_path: Path
) -> None:
    folders.make_private(folders.rank_folder(tmp_path, "node1", 1))
    stderr = tmp_path / "rank1.err"
    stderr.write_text("last words\n")
    nodes.alive = {0, 2}
    recording.lose(1, "the container has ended")
    recording.exited(1, None, int(signal.SIGKILL), stderr, by_recorder=False)
    assert sorted(nodes.orders) == [(0, "failure"), (2, "failure")]
    recording.take(0, due("exit", "rank 1 was ended by signal 9"))
    recording.take(2, due("exit", "rank 1 was ended by signal 9"))
    assert recording.wait_captured(5.0)
    recording.finish(ended_by_recorder=True)
    (rank,) = CaseReader(tmp_path).ranks
    assert rank.read(files.EXIT) is not None
    assert (rank.read(files.EXIT).signal, rank.read(files.EXIT).by_recorder) == (
        signal.SIGKILL,
        False,
    )
    assert rank.read(files.STDERR) == "last words\n"


def test_an_agent_that_fails_is_an_error(recording: JointRecording) -> None:
    recording.take(1, {"event": "died", "code": 1})
    with pytest.raises(AgentDied, match="node 1 ended with 1"):
        recording.poll()


def test_a_capture_that_is_asked_for_needs_nobody_to_rest(
    nodes: PlayedNodes, recording: JointRecording
) -> None:
    recording.capture("deadline", "the job's 3 s were over")
    assert recording.wait_captured(5.0)
    assert recording.captured is not None and recording.captured["kind"] == "deadline"
