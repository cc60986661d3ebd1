"""What this machine can run: one registry for ``needs``, ``doctor`` and whoever skips."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Capability:
    """``reason`` says what was found, ``remedy`` what would help where it is missing."""

    name: str
    available: bool
    reason: str
    remedy: str = ""


Probe = Callable[[], Capability]
_PROBES: dict[str, Probe] = {}


def _probe(name: str) -> Callable[[Probe], Probe]:
    def register(probe: Probe) -> Probe:
        _PROBES[name] = probe
        return probe

    return register


def names() -> tuple[str, ...]:
    """All capabilities that a scenario may need."""
    return tuple(_PROBES)


@functools.cache
def capability(name: str) -> Capability:
    """Looks, once per process.  Raises KeyError for an unknown name."""
    return _PROBES[name]()


def all_capabilities() -> list[Capability]:
    return [capability(name) for name in _PROBES]


def _torch_file(pattern: str) -> bool:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    return any(Path(spec.origin).parent.joinpath("lib").glob(pattern))


@_probe("torch")
def _torch() -> Capability:
    """Told without importing it, which takes seconds."""
    import importlib.metadata

    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return Capability("torch", False, "not installed", "pip install 'hanglab[run]'")
    return Capability("torch", True, f"torch {version}")


#: From here on Kineto starts its on-demand side in processes without a GPU, too.
_KINETO_RELEASE = (2, 7)


@_probe("on_demand_traces")
def _on_demand_traces() -> Capability:
    """Whether `hanglab profile` can reach processes of the installed torch."""
    torch = capability("torch")
    name = "on_demand_traces"
    if not torch.available:
        return Capability(name, False, "torch is not installed", torch.remedy)
    return judge_kineto(torch.reason.removeprefix("torch "))


def judge_kineto(version: str) -> Capability:
    """By the version of torch alone; one that cannot be read counts as able."""
    name = "on_demand_traces"
    parts = version.split(".")
    if all(part.isdecimal() for part in parts[:2]) and len(parts) >= 2:
        release = int(parts[0]), int(parts[1])
        if release < _KINETO_RELEASE:
            reason = f"Kineto of torch {version} does not take requests on every machine"
            return Capability(name, False, reason, "pip install 'torch>=2.7'")
    return Capability(name, True, f"Kineto of torch {version}")


@_probe("gloo")
def _gloo() -> Capability:
    if not capability("torch").available:
        return Capability("gloo", False, "torch is not installed", "pip install 'hanglab[run]'")
    if not sys.platform.startswith("linux"):
        return Capability("gloo", False, f"hanglab runs jobs on Linux, not {sys.platform}")
    return Capability("gloo", True, "part of torch")


@_probe("gpu")
def _gpu() -> Capability:
    tool = shutil.which("nvidia-smi")
    remedy = "run on a machine with an NVIDIA GPU and its driver"
    if tool is None:
        return Capability("gpu", False, "no nvidia-smi on the path", remedy)
    try:
        listed = subprocess.run(
            [tool, "-L"], check=False, capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        return Capability("gpu", False, f"nvidia-smi does not answer: {failure}", remedy)
    gpus = [line for line in listed.stdout.splitlines() if line.startswith("GPU ")]
    if listed.returncode or not gpus:
        said = (listed.stdout + listed.stderr).strip().splitlines()
        return Capability("gpu", False, said[0] if said else "nvidia-smi lists none", remedy)
    return Capability(
        "gpu", True, f"{len(gpus)} x {gpus[0].split(':', 1)[1].split('(')[0].strip()}"
    )


@_probe("nccl")
def _nccl() -> Capability:
    if not capability("gpu").available:
        return Capability("nccl", False, "no GPU", capability("gpu").remedy)
    if not _torch_file("libtorch_cuda*"):
        return Capability("nccl", False, "torch is a CPU build", "install a CUDA build of torch")
    return Capability("nccl", True, "torch is a CUDA build")


@_probe("docker")
def _docker() -> Capability:
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    remedy = "start Docker, and let this user talk to it"
    if not host.startswith("unix://"):
        return Capability("docker", True, f"DOCKER_HOST is {host}")
    path = host.removeprefix("unix://")
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(3)
            probe.connect(path)
            probe.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            answer = probe.recv(64)
    except OSError as failure:
        return Capability("docker", False, f"{path}: {failure.strerror or failure}", remedy)
    if b" 200 " not in answer:
        return Capability("docker", False, f"{path} does not answer like Docker", remedy)
    return Capability("docker", True, f"answers at {path}")


@_probe("root")
def _root() -> Capability:
    if os.geteuid() == 0:
        return Capability("root", True, "running as root")
    return Capability("root", False, f"running as user {os.geteuid()}", "run as root")


@_probe("ptrace")
def _ptrace() -> Capability:
    """Whether one process may look into another that is not its child, as py-spy does."""
    remedy = "sysctl kernel.yama.ptrace_scope=0, or docker run --cap-add SYS_PTRACE"
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    try:
        level = int(scope.read_text())
    except (OSError, ValueError):
        level = 0
    if level >= 3 or (level and not _has_cap_sys_ptrace()):
        return Capability(
            "ptrace",
            False,
            f"kernel.yama.ptrace_scope is {level}: stacks come from inside",
            remedy,
        )
    if not _reads_a_child():
        return Capability("ptrace", False, "the kernel refuses process_vm_readv", remedy)
    return Capability("ptrace", True, "py-spy can read stacks from outside")


def _has_cap_sys_ptrace() -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> 19 & 1)
    return False


def _reads_a_child() -> bool:
    """Reads eight bytes of a child's memory; a seccomp filter may forbid it."""

    class Span(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

    child = subprocess.Popen([sys.executable, "-S", "-E", "-c", "input()"], stdin=subprocess.PIPE)
    try:
        start = Path(f"/proc/{child.pid}/maps").read_text().split("-", 1)[0]
        buffer = ctypes.create_string_buffer(8)
        here = Span(ctypes.addressof(buffer), 8)
        there = Span(int(start, 16), 8)
        libc = ctypes.CDLL(None, use_errno=True)
        read: int = libc.process_vm_readv(
            child.pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0
        )
        return read == 8
    except (OSError, ValueError, AttributeError):
        return False
    finally:
        child.kill()
        child.wait()
        if child.stdin is not None:
            child.stdin.close()


@_probe("shm")
def _shm() -> Capability:
    """Loader workers hand batches over in /dev/shm; Docker gives it 64 MiB."""
    try:
        room = os.statvfs("/dev/shm")
    except OSError as failure:
        return Capability("shm", False, f"/dev/shm: {failure.strerror}", "mount a tmpfs there")
    mebibytes = room.f_bavail * room.f_frsize >> 20
    if mebibytes < 32:
        return Capability(
            "shm",
            False,
            f"/dev/shm has {mebibytes} MiB free",
            "docker run --shm-size=1g",
        )
    return Capability("shm", True, f"/dev/shm has {mebibytes} MiB free")


def _cgroup(controller: str) -> Capability:
    from hanglab.harness.cgroups import NoGroup, make

    name = f"cgroup_{controller}"
    try:
        made = make(controller)
    except NoGroup as failure:
        remedy = "run as root on a host (in a container: --privileged) that has the controller"
        return Capability(name, False, str(failure), remedy)
    made.remove()
    return Capability(name, True, f"version {made.version} at {made.folder.parent}")


@_probe("cgroup_cpu")
def _cgroup_cpu() -> Capability:
    return _cgroup("cpu")


@_probe("cgroup_memory")
def _cgroup_memory() -> Capability:
    return _cgroup("memory")


@_probe("cgroup_pids")
def _cgroup_pids() -> Capability:
    return _cgroup("pids")


def _tried(name: str, program: str, said: str, remedy: str) -> Capability:
    """Whether a program works in a process of its own, whose mounts end with it."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            ran = subprocess.run(
                [sys.executable, "-c", program],
                check=False,
                capture_output=True,
                text=True,
                timeout=30,
                env={**os.environ, "TMPDIR": folder},
            )
    except (OSError, subprocess.TimeoutExpired) as failure:
        return Capability(name, False, str(failure), remedy)
    if ran.returncode:
        lines = ran.stderr.strip().splitlines()
        return Capability(name, False, lines[-1] if lines else f"code {ran.returncode}", remedy)
    return Capability(name, True, said)


@_probe("private_mounts")
def _private_mounts() -> Capability:
    """Whether a rank can mount a disk that only it sees."""
    program = (
        "import os\nfrom hanglab.harness.mounts import mount_disk\n"
        "folder = mount_disk(1)\nassert os.statvfs(folder).f_blocks * 4096 <= 1 << 20"
    )
    return _tried(
        "private_mounts",
        program,
        "a process can mount for itself alone",
        "run as root (in a container: --cap-add SYS_ADMIN)",
    )


@_probe("private_storage")
def _private_storage() -> Capability:
    """Whether a rank can mount a file system that it serves itself."""
    program = (
        "from hanglab.harness.storage import Storage\n"
        "assert len(Storage(4096).file.read_bytes()) == 4096"
    )
    return _tried(
        "private_storage",
        program,
        "a process can serve a file system for itself alone",
        "run as root where /dev/fuse is (in a container: --device /dev/fuse --cap-add SYS_ADMIN)",
    )
