"""Pods that their cluster has taken away, and the ranks that were in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.records import PodEnding, PodRecord


@dataclass(frozen=True)
class LostPod:
    """A pod that ended otherwise than by its program.

    ``ranks`` are those that are known to have been in it, or in it and others of its ending.
    """

    record: PodRecord
    ending: PodEnding
    ranks: tuple[int, ...]


def lost_pods(facts: CaseFacts) -> Iterator[LostPod]:
    """Pods whose ending says by itself why their ranks are gone.

    A pod that has left nothing does not say which ranks it had.  Those without evidence were in
    such pods where all pods without ranks have ended alike, and not where one of them may still
    run, or has ended by its program.
    """
    pods = {name: host.read(files.POD) for name, host in facts.hosts.items()}
    by_host: dict[str, list[int]] = {name: [] for name in pods}
    for rank, view in facts.ranks.items():
        by_host.setdefault(view.host, []).append(rank)
    without = [pod for name, pod in pods.items() if pod is not None and not by_host[name]]
    alike = len({pod.ending for pod in without}) == 1
    missing = tuple(facts.inputs.missing_ranks) if alike else ()
    for name, pod in sorted(pods.items()):
        if pod is None or pod.ending in (None, "succeeded", "failed", "deadline"):
            continue
        # A rank that lives is no victim of what its cluster is about to do.
        ended = tuple(rank for rank in by_host[name] if facts.ranks[rank].failed)
        ranks = ended if by_host[name] else missing
        if ranks:
            yield LostPod(pod, pod.ending, ranks)
