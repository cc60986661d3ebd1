"""``host_lost`` and ``oom_killed``: ranks whose pods their cluster took away, as it says."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.lost_pods import LostPod
from hanglab.analyzer.facts.lost_pods import lost_pods as found_pods
from hanglab.analyzer.proposal import Proposal, detector, propose
from hanglab.analyzer.strengths import CONFIRMED
from hanglab.analyzer.verdict import Cause, Evidence
from hanglab.analyzer.wording import name_ranks

_WORDS = {
    "oom_killed": "was killed by the kernel at its limit of memory",
    "evicted": "was evicted from its node",
    "preempted": "was preempted for another of a higher priority",
    "node_lost": "was on a node that the cluster has lost",
}


@detector
def lost_pods(facts: CaseFacts) -> Iterator[Proposal]:
    """One proposal for each kind of ending: what peers do after it is its consequence."""
    kinds: dict[Cause, list[LostPod]] = {}
    for lost in found_pods(facts):
        cause = Cause.OOM_KILLED if lost.ending == "oom_killed" else Cause.HOST_LOST
        kinds.setdefault(cause, []).append(lost)
    for cause, pods in kinds.items():
        ranks = sorted({rank for pod in pods for rank in pod.ranks})
        first = pods[0]
        several = len(pods) > 1
        word = f"the pods of {name_ranks(ranks)} were taken away, the first" if several else "it"
        yield propose(
            facts,
            cause,
            ranks,
            failure_on_record=True,
            confidence=CONFIRMED,
            summary=f"{name_ranks(ranks).capitalize()} ended with "
            f"{'their' if len(ranks) > 1 else 'its'} pod: {word} {_WORDS[first.ending]}; the "
            f"others {'wait' if facts.stuck else 'failed'} for that.",
            evidence=[
                Evidence("pod", None, f"pod {pod.record.name} {_WORDS[pod.ending]}" + _more(pod))
                for pod in pods
            ],
        )


def _more(lost: LostPod) -> str:
    node = f" (node {lost.record.node})" if lost.record.node else ""
    return f"{node}: {lost.record.message[:200]}" if lost.record.message else node
