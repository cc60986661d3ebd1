"""Errors of clusters, one sentence each and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hanglab.harness.errors import HanglabError, MissingExtra


class KubernetesError(HanglabError):
    """The cluster cannot be reached, or refuses."""


class NoCluster(KubernetesError):
    """Nothing says which cluster it is, or nobody answers there."""

    advice = (
        "`kubectl cluster-info` shows whether it answers; KUBECONFIG or --context names another."
    )


class BadCredentials(KubernetesError):
    """The cluster does not know who asks."""

    advice = "Log in again; `kubectl auth whoami` shows as whom the cluster sees you."


class RightsLacking(KubernetesError):
    """The cluster knows who asks, and does not allow it."""

    advice = (
        "A capture needs `get` and `list` of pods, and `create` of pods/exec; "
        "`kubectl auth can-i create pods/exec` asks for one of them."
    )


class NoSuchJob(KubernetesError):
    """No pod belongs to a job of that name."""

    advice = "`kubectl get pods --show-labels` shows them; --namespace names another namespace."


class NothingCollected(KubernetesError):
    """No pod of the job gave a Case."""

    advice = (
        "`hanglab manifest` writes jobs with the recorder in their pods; its DaemonSet captures "
        "jobs without."
    )


def missing_client() -> MissingExtra:
    return MissingExtra(
        "Clusters need the Python package `kubernetes`.", "pip install 'hanglab[kubernetes]'"
    )


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Turns what the client raises into a KubernetesError; ``doing`` begins its sentence."""
    import urllib3.exceptions
    from kubernetes.client.exceptions import ApiException
    from kubernetes.config.config_exception import ConfigException

    try:
        yield
    except ApiException as error:
        raise refusal(doing, int(error.status or 0), str(error.reason or error)) from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        why = str(error).rpartition(": ")[2].rstrip(".")
        raise NoCluster(f"{doing} found no cluster that answers: {why}.") from error
    except ConfigException as error:
        raise NoCluster(f"{doing} failed: {error}") from error


def refusal(doing: str, status: int, reason: str) -> KubernetesError:
    """The error that an answer of the API is."""
    if status == 401:
        return BadCredentials(f"{doing} is refused: the cluster takes these credentials for none.")
    if status == 403:
        return RightsLacking(f"{doing} is refused: you may not.")
    return KubernetesError(
        f"{doing} failed: {status} {reason}.", "`kubectl get events` may say more."
    )
