"""Nodes besides the host of ``hanglab record``, as far as Slurm has ranks of the command there."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from hanglab.harness.launchers.protocol import LaunchError
from hanglab.harness.launchers.slurm.commands import said_by_step
from hanglab.harness.launchers.supervision.agent_process import Agent
from hanglab.harness.recording.joint_agents import NOT_SHARED, JointAgents
from hanglab.harness.recording.slurm_job import RecordedSlurmJob

#: For agents to tell that ranks have ended, and for Slurm to end those that have not.
_TOLD_S = 2.0
_END_S = 5.0


class OtherNodes:
    """Has an agent on every node on which ranks are, and has Slurm end ranks there."""

    def __init__(
        self,
        case: Path,
        host: str,
        command: int,
        hang_after_s: float,
        runtime: Path,
        options: Sequence[str],
    ) -> None:
        """``host`` is this host's folder in the Case, ``command`` a process id.

        ``options`` are those of every agent; what agents say of errors is kept in ``runtime``.
        """
        self._case = case
        self._host = host
        self._hang_after_s = hang_after_s
        self._runtime = runtime
        self._options = options
        self._job = RecordedSlurmJob(case, host, command)

    def look(self, agent: Agent | JointAgents) -> Agent | JointAgents:
        """The agent to ask from now on, with one more for each node that has come."""
        nodes = self._job.look()
        if self._job.number is None or agent.captured is not None:
            return agent
        if isinstance(agent, Agent):
            agent = JointAgents(
                agent,
                self._host,
                self._case,
                self._hang_after_s,
                self._tell_of_loss,
                self._job.keep_facts,
            )
        for node in nodes:
            try:
                started = self._job.start_agent(
                    node, self._hang_after_s, self._log(node), self._options
                )
            except (OSError, LaunchError) as error:
                self._tell_of_loss(node, str(error))
            else:
                agent.add(node, started)
        return agent

    def end_ranks(self, agents: JointAgents) -> None:
        """End ranks on other nodes that the command could not end.  Raises AgentDied."""
        if agents.wait_ended(_TOLD_S):
            return
        with contextlib.suppress(LaunchError):  # they have just ended
            self._job.end_steps()
        if not agents.wait_ended(_END_S):
            _say("ranks on other nodes are left: `squeue --steps` shows them")

    def _tell_of_loss(self, node: str, reason: str) -> None:
        if reason == NOT_SHARED:
            _say(
                f"node {node} does not see {self._case}, so its ranks are not recorded; have --out "
                "name a folder that all nodes share"
            )
            return
        with contextlib.suppress(OSError):
            words = said_by_step(self._log(node).read_bytes())
            reason += f" ({words})" if words else ""
        _say(f"no recorder's agent on {node}: {reason}; the job goes on without it")

    def _log(self, node: str) -> Path:
        return self._runtime / f"agent-{node}.err"


def attempt_options() -> list[str]:
    """Options of an agent for a job that Slurm has begun anew: what ran before stays as it is."""
    return ["--first-attempt", os.environ.get("SLURM_RESTART_COUNT") or "0"]


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        print(f"hanglab: {text}", file=sys.stderr, flush=True)
