"""The way to a cluster: where its API is, and as whom."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from hanglab.harness.kubernetes.errors import explained, missing_client

#: Seconds to connect, and for an answer.
TIMEOUT = (5, 30)
_IN_CLUSTER_NAMESPACE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


@dataclass(frozen=True)
class KubernetesCluster:
    """A cluster, as its client is configured; safe to share among threads."""

    configuration: Any
    namespace: str

    def core(self) -> Any:
        """The API of pods and services."""
        from kubernetes import client

        return client.CoreV1Api(client.ApiClient(self.configuration))


def connect(context: str | None = None, namespace: str | None = None) -> KubernetesCluster:
    """As kubectl finds it, else as a pod does.  Raises KubernetesError and MissingExtra."""
    try:
        from kubernetes import client, config
    except ImportError:
        raise missing_client() from None

    configuration = client.Configuration()
    # A cluster that does not answer is to be told of, and not to be asked again and again.
    configuration.retries = False
    own = "default"
    with explained("Looking for a cluster"):
        try:
            file = os.environ.get("KUBECONFIG")  # The client has read it when it was imported.
            config.load_kube_config(file, context, configuration)
            contexts, active = config.list_kube_config_contexts(file)
            chosen = next((one for one in contexts if one["name"] == context), active)
            own = chosen["context"].get("namespace") or own
        except config.ConfigException:
            if context is not None:
                raise
            config.load_incluster_config(client_configuration=configuration)
            with open(_IN_CLUSTER_NAMESPACE) as mounted:
                own = mounted.read().strip() or own
    return KubernetesCluster(configuration, namespace or own)
