"""Errors of pods that are to be a job's nodes, one sentence each and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hanglab.harness.errors import HanglabError
from hanglab.harness.launchers.protocol import LaunchError


class PodsNotStarted(LaunchError):
    """The cluster does not start the pods, or they end before hanglab is in them."""

    advice = (
        "`kubectl get events` says more; HANGLAB_IMAGE names the image of the pods, and "
        "HANGLAB_KUBERNETES_WAIT how many seconds they may wait for a node (600)."
    )


class PodFailed(LaunchError):
    """hanglab's own process in a pod did not come up."""

    advice = "The image (HANGLAB_IMAGE) needs a hanglab of this version; `make image` builds one."


@contextmanager
def launching() -> Iterator[None]:
    """Lets what a cluster refuses be what a launcher may raise."""
    try:
        yield
    except LaunchError:
        raise
    except HanglabError as error:
        raise LaunchError(str(error), error.advice) from error
