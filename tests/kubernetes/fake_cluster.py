"""A stand-in for an API server: no Kubernetes, and not to be taken for one.

It speaks the API's paths over TLS, asks for a token, and runs commands in pods by the protocol
v4.channel.k8s.io over websockets.  Its pods are processes of this machine in namespaces of their
own (processes, mounts, host name), which takes root.  Those that are made by the API have this
machine's files, and what they write is theirs alone; their user and their limits are not kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

TOKEN = "a-token"
BIN = Path(sys.executable).parent
NAMESPACE = "ml"


#: Words: the pod's name, its mounts, its command.
_OWN_ROOT = """
set -e
mount --make-rprivate /
mount -t tmpfs none /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work none /mnt/root
mount --rbind /dev /mnt/root/dev
mount -t proc none /mnt/root/proc
for at in $1; do
    mkdir -p "/mnt/root/$at"
    mount -t tmpfs none "/mnt/root/$at"
done
hostname "$0"
shift
exec chroot /mnt/root "$@"
"""


@dataclass
class FakePod:
    """A pod; ``process`` is None where it has none."""

    body: dict[str, Any]
    process: subprocess.Popen[bytes] | None = None
    own_root: bool = False
    started: bool = False

    @property
    def told(self) -> dict[str, Any]:
        """What the API says of it now."""
        if self.process is None or not self.own_root:
            return self.body
        code = self.process.poll()
        if code is not None:
            status = {"phase": "Succeeded" if code == 0 else "Failed"}
            return {**self.body, "status": status}
        if not self.started:
            init = self.init
            self.started = init is not None and os.readlink(f"/proc/{init}/root") != "/"
        return self.body if self.started else {**self.body, "status": {"phase": "Pending"}}

    @property
    def init(self) -> int | None:
        """The first process of its namespace, as this machine numbers it."""
        if self.process is None:
            return None
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[0]) if children else None


@dataclass
class FakeCluster:
    """Pods by name, and what the API refuses.  ``exec_status`` answers every exec if it is set."""

    url: str = ""
    kubeconfig: Path = Path()
    pods: dict[str, FakePod] = field(default_factory=dict)
    list_status: int = 200
    exec_status: int = 200
    create_status: int = 200
    #: State of pods that are made by the API, in place of running.
    made_status: Mapping[str, Any] | None = None
    #: Sent in place of what a command writes, by pod.
    archives: dict[str, bytes] = field(default_factory=dict)
    #: Breaks off after so many bytes.
    breaks_after: int | None = None

    def add(
        self,
        name: str,
        command: Sequence[str] = (),
        *,
        labels: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        status: Mapping[str, Any] | None = None,
        container: str = "trainer",
        node: str = "node-a",
    ) -> FakePod:
        """A pod that runs ``command``, or one that has none."""
        process = None
        if command:
            words = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
            words += ["--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name, *command]
            path = f"{BIN}:{os.environ['PATH']}"
            process = subprocess.Popen(
                words, env={**os.environ, "PATH": path, **(environment or {})},
                stdout=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name, "namespace": NAMESPACE, "uid": str(uuid.uuid4()),
                "labels": dict(labels or {"hanglab.job": "train"}),
            },
            "spec": {
                "nodeName": node,
                "containers": [{"name": container, "image": "a", "command": list(command)}],
            },
            "status": dict(status or {"phase": "Running"}),
        }  # fmt: skip
        self.pods[name] = FakePod(body, process)
        return self.pods[name]

    def _make(self, body: dict[str, Any]) -> FakePod:
        """A pod with a root of its own."""
        name, (container,) = body["metadata"]["name"], body["spec"]["containers"]
        process = None
        if self.made_status is None:
            # Below /tmp there may be the very hanglab that is tested.
            paths = [one["mountPath"].lstrip("/") for one in container["volumeMounts"]]
            mounts = " ".join(path for path in paths if path != "tmp")
            words = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--uts"]
            process = subprocess.Popen(
                [*words, "sh", "-c", _OWN_ROOT, name, mounts, *container["command"]],
                env={
                    "PATH": f"{BIN}:{os.environ['PATH']}",
                    **{one["name"]: one["value"] for one in container["env"]},
                },
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        status = self.made_status or {"phase": "Running", "podIP": "127.0.0.1"}
        body = {**body, "status": dict(status)}
        body["metadata"] = {**body["metadata"], "namespace": NAMESPACE, "uid": str(uuid.uuid4())}
        body["spec"] = {**body["spec"], "nodeName": "node-a"}
        self.pods[name] = FakePod(body, process, own_root=True)
        return self.pods[name]

    def remove(self, name: str) -> None:
        pod = self.pods.pop(name)
        if pod.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pod.process.pid, signal.SIGKILL)
            pod.process.wait(60)

    # What the API answers.

    async def _list(self, request: web.Request) -> web.Response:
        _check(request, self.list_status)
        selector = dict(one.split("=", 1) for one in request.query["labelSelector"].split(","))
        found = [
            pod.told
            for pod in list(self.pods.values())
            if selector.items() <= pod.body["metadata"]["labels"].items()
        ]
        return web.json_response(
            {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": found}
        )

    async def _create(self, request: web.Request) -> web.Response:
        _check(request, self.create_status)
        return web.json_response(self._make(await request.json()).body, status=201)

    async def _delete(self, request: web.Request) -> web.Response:
        _check(request, 200)
        name = request.match_info["pod"]
        if name not in self.pods:
            raise _status(404, "NotFound")
        body = self.pods[name].body
        self.remove(name)
        return web.json_response(body)

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        _check(request, self.exec_status)
        pod = self.pods.get(request.match_info["pod"])
        if pod is None:
            raise _status(404, "NotFound")
        socket = web.WebSocketResponse(protocols=["v4.channel.k8s.io"])
        await socket.prepare(request)
        words = request.query.getall("command")
        name = pod.body["metadata"]["name"]
        if name in self.archives:
            await socket.send_bytes(b"\x01" + self.archives[name])
            await socket.send_bytes(b"\x03" + json.dumps({"status": "Success"}).encode())
        else:
            await self._run(socket, pod, words, "stdin" in request.query)
        await socket.close()
        return socket

    async def _run(
        self, socket: web.WebSocketResponse, pod: FakePod, words: list[str], stdin: bool
    ) -> None:
        init = pod.init
        assert init is not None
        environment = dict(
            one.split("=", 1)
            for one in Path(f"/proc/{init}/environ").read_bytes().decode().split("\0")
            if "=" in one
        )
        process = await asyncio.create_subprocess_exec(
            "nsenter", "--target", str(init), "--pid", "--mount", "--uts", "--root", "--", *words,
            stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment,
        )  # fmt: skip
        hearing = asyncio.ensure_future(_hear(socket, process)) if stdin else None
        sent = 0

        async def copy(stream: asyncio.StreamReader, channel: bytes) -> None:
            nonlocal sent
            while data := await stream.read(1 << 15):
                # A command of which nobody hears any more goes on.
                with contextlib.suppress(ConnectionError):
                    await socket.send_bytes(channel + data)
                sent += len(data) if channel == b"\x01" else 0
                if self.breaks_after is not None and sent > self.breaks_after:
                    raise _BrokenOff

        assert process.stdout is not None and process.stderr is not None
        try:
            await asyncio.gather(copy(process.stdout, b"\x01"), copy(process.stderr, b"\x02"))
        except _BrokenOff:
            process.kill()
            return
        with contextlib.suppress(ConnectionError):
            await socket.send_bytes(b"\x03" + json.dumps(_ending(await process.wait())).encode())
        if hearing is not None:
            hearing.cancel()


class _BrokenOff(Exception):
    """The way to the client is cut, as a test asks for it."""


async def _hear(socket: web.WebSocketResponse, process: asyncio.subprocess.Process) -> None:
    """Hands on what the client sends; its end is the end of the command's input."""
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError):
        async for message in socket:
            if message.data[:1] == b"\x00":
                process.stdin.write(message.data[1:])
                await process.stdin.drain()
    process.stdin.close()


def _check(request: web.Request, status: int) -> None:
    if request.headers.get("authorization") != f"Bearer {TOKEN}":
        raise _status(401, "Unauthorized")
    if status != 200:
        raise _status(status, "Forbidden")


def _status(code: int, reason: str) -> web.HTTPException:
    kinds = {401: web.HTTPUnauthorized, 403: web.HTTPForbidden, 404: web.HTTPNotFound}
    body = {"kind": "Status", "status": "Failure", "reason": reason, "code": code}
    return kinds[code](text=json.dumps(body), content_type="application/json")


def _ending(code: int) -> dict[str, Any]:
    """The status that the kubelet sends of a command."""
    if code == 0:
        return {"status": "Success"}
    if code == 127:
        message = 'exec: "hanglab": executable file not found in $PATH'
        return {"status": "Failure", "reason": "InternalError", "message": message}
    return {
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: {code}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


@contextmanager
def fake_cluster(folder: Path) -> Iterator[FakeCluster]:
    """A server on loopback with a certificate of its own, and a kubeconfig for it."""
    cluster = FakeCluster()
    key, certificate = _certificate(folder)
    started = threading.Event()
    loop = asyncio.new_event_loop()

    def serve() -> None:
        asyncio.set_event_loop(loop)
        app = web.Application(client_max_size=16 << 20)
        pods = "/api/v1/namespaces/{namespace}/pods"
        app.router.add_get(pods, cluster._list)
        app.router.add_post(pods, cluster._create)
        app.router.add_delete(pods + "/{pod}", cluster._delete)
        app.router.add_get(pods + "/{pod}/exec", cluster._exec)
        runner = web.AppRunner(app)
        loop.run_until_complete(runner.setup())
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        loop.run_until_complete(site.start())
        cluster.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        started.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert started.wait(60)
    cluster.kubeconfig = folder / "kubeconfig"
    write_kubeconfig(cluster.kubeconfig, cluster.url, certificate)
    try:
        yield cluster
    finally:
        for name in list(cluster.pods):
            cluster.remove(name)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)


def write_kubeconfig(path: Path, url: str, certificate: Path, token: str = TOKEN) -> None:
    """A kubeconfig with one cluster, user and context."""
    server = {"server": url, "certificate-authority": str(certificate)}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "fake", "cluster": server}],
        "users": [{"name": "somebody", "user": {"token": token}}],
        "contexts": [
            {
                "name": "fake",
                "context": {"cluster": "fake", "user": "somebody", "namespace": NAMESPACE},
            }
        ],
        "current-context": "fake",
    }
    path.write_text(yaml.safe_dump(content))


def _certificate(folder: Path) -> tuple[Path, Path]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "fake cluster")])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "key.pem", folder / "certificate.pem"
    files[0].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    files[1].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return files
