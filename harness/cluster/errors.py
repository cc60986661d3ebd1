"""The error of a cluster that cannot do what it is asked for."""

from __future__ import annotations

from hanglab.harness.errors import HanglabError


class ClusterError(HanglabError, RuntimeError):
    """No scheduler answers, it has no workers, or they have no hanglab."""

    advice = "Check the scheduler and its workers, or leave --on out."
