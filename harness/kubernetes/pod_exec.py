"""Commands in pods, their output streamed into a file."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any
from urllib.parse import quote

from hanglab.harness.kubernetes.connection import KubernetesCluster
from hanglab.harness.kubernetes.errors import NoCluster, refusal

#: Of what a command says on standard error, the last.
_SAID = 4096
#: Channels of the protocol, the first byte of each frame.
IN, OUT, ERR, END = 0, 1, 2, 3
_CONNECT_S = 30.0


@dataclass(frozen=True)
class PodCommandEnd:
    """End of a command.  ``code`` is None where it was not run, or its end not told."""

    code: int | None
    stderr: str
    reason: str


def run_in_pod(
    cluster: KubernetesCluster,
    pod: str,
    container: str,
    command: Sequence[str],
    out: IO[bytes],
    most_bytes: int,
    timeout_s: float,
    heard: Callable[[bytes], None] = lambda data: None,
) -> PodCommandEnd:
    """Runs it, by the API's protocol v4.channel.k8s.io; ``heard`` gets standard error as it comes.

    Raises KubernetesError where the API refuses, breaks off, or says too much.
    """
    import websocket

    doing = f"Running a command in pod {pod}"
    said = end = b""
    until = time.monotonic() + timeout_s
    taken = 0
    socket = open_exec(cluster, pod, container, command)
    try:
        while (left := until - time.monotonic()) > 0:
            socket.settimeout(max(left, 0.1))
            kind, frame = socket.recv_data_frame(True)
            if kind == websocket.ABNF.OPCODE_CLOSE:
                return _ended(said, end)
            if kind not in (websocket.ABNF.OPCODE_BINARY, websocket.ABNF.OPCODE_TEXT):
                continue
            channel, data = frame.data[:1], frame.data[1:]
            if channel == bytes([OUT]):
                taken += len(data)
                if taken > most_bytes:
                    raise NoCluster(f"{doing} gave more than {most_bytes} bytes.")
                out.write(data)
            elif channel == bytes([ERR]):
                heard(data)
                said = (said + data)[-_SAID:]
            elif channel == bytes([END]):
                end = (end + data)[-_SAID:]
    except websocket.WebSocketTimeoutException:
        pass
    except websocket.WebSocketConnectionClosedException as error:
        if end:
            return _ended(said, end)
        raise NoCluster(f"{doing} broke off before its end.") from error
    except (websocket.WebSocketException, OSError) as error:
        raise NoCluster(f"{doing} broke off: {error}.") from error
    finally:
        socket.close(timeout=1)
    raise NoCluster(f"{doing} came to no end within {timeout_s:g} s.")


def open_exec(
    cluster: KubernetesCluster,
    pod: str,
    container: str,
    command: Sequence[str],
    *,
    stdin: bool = False,
) -> Any:
    """The websocket of a command in a pod.  Raises KubernetesError where the API refuses."""
    import websocket
    from kubernetes.stream import ws_client

    path = f"/api/v1/namespaces/{quote(cluster.namespace)}/pods/{quote(pod)}/exec"
    query = [("command", list(command)), ("container", container)]
    query += [(name, "true") for name in ("stdout", "stderr", *(("stdin",) if stdin else ()))]
    headers = {"sec-websocket-protocol": ws_client.V4_CHANNEL_PROTOCOL}
    for setting in cluster.configuration.auth_settings().values():
        if setting["in"] == "header" and setting["value"]:
            headers[setting["key"].lower()] = setting["value"]
    url = ws_client.get_websocket_url(cluster.configuration.host + path, query)
    doing = f"Running a command in pod {pod}"
    try:
        return ws_client.create_websocket(cluster.configuration, url, headers)
    except websocket.WebSocketBadStatusException as error:
        raise refusal(doing, error.status_code, "as the API says") from error
    except (websocket.WebSocketException, OSError) as error:
        raise NoCluster(f"{doing} found no cluster that answers: {error}.") from error


def _ended(said: bytes, end: bytes) -> PodCommandEnd:
    """The end that the API's status tells."""
    text = said.decode("utf-8", "replace")
    try:
        status = json.loads(end)
        if status["status"] == "Success":
            return PodCommandEnd(0, text, "")
        causes = (status.get("details") or {}).get("causes") or []
        codes = [one["message"] for one in causes if one.get("reason") == "ExitCode"]
        reason = str(status.get("message", ""))
        return PodCommandEnd(int(codes[0]) if codes else None, text, reason)
    except (ValueError, KeyError, TypeError, AttributeError):
        return PodCommandEnd(None, text, "its end was not told")
