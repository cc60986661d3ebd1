"""Kubernetes, as the API of the cluster answers that kubectl would ask."""

from __future__ import annotations

from hanglab.harness.capabilities.registry import Capability, checks
from hanglab.harness.errors import HanglabError
from hanglab.harness.kubernetes.connection import connect
from hanglab.harness.launchers.kubernetes.pods import left_pods


@checks("kubernetes")
def _kubernetes() -> Capability:
    try:
        cluster = connect()
        left_pods(cluster, True)
    except HanglabError as failure:
        return Capability("kubernetes", False, str(failure).rstrip("."), failure.advice)
    return Capability(
        "kubernetes", True, f"a cluster answers, with pods in namespace {cluster.namespace}"
    )
