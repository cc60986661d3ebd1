"""A real Slurm on this machine alone: a controller and two nodes, which end with their owner.

``python -m tools.slurm_cluster -- COMMAND...`` starts it, runs the command with SLURM_CONF set, and
stops it.  Needs what Debian calls ``slurm-wlm`` and ``munge``.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

NODES = ("n1", "n2")
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sinfo", "scancel", "squeue")
#: For the daemons to come up, and for jobs to end, on a busy machine.
_READY_S = 120.0
_END_S = 30.0

#: Every node is this host by a name and a port of its own.  ``urgent`` takes nodes from ``main``.
_CONFIGURATION = """
ClusterName=hanglab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
SlurmdParameters=config_overrides
ReturnToService=2
KillWait={kill_wait}
OverTimeLimit=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=16 RealMemory=1000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=16 RealMemory=1000
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=n1,n2 MaxTime=INFINITE State=UP PriorityTier=10
PartitionName=closed Nodes=n1,n2 MaxTime=INFINITE State=DOWN PriorityTier=1
"""


class ClusterFailed(RuntimeError):
    """Slurm cannot be had here; the text says why."""


def missing() -> str:
    """The reason that none can be started here; "" where one can."""
    path = _path()
    absent = [name for name in _PROGRAMS if shutil.which(name, path=path) is None]
    if absent:
        return f"{absent[0]} is not installed (apt-get install slurm-wlm munge, as .ci/run does)"
    return ""


class SlurmCluster:
    """One that runs from entering to leaving; ``environment`` leads Slurm's commands to it."""

    def __init__(self, folder: Path, kill_wait_s: int = 5) -> None:
        """``folder`` is an empty one of its own.  A job told to end gets so many seconds."""
        self._folder = folder
        self._kill_wait_s = kill_wait_s
        self._ending = ExitStack()
        self.configuration = folder / "slurm.conf"
        #: A folder of which the second node sees one of its own, where that can be had.
        self.unshared: Path | None = None
        self.environment = {
            **os.environ, "SLURM_CONF": str(self.configuration), "PATH": _path(),
        }  # fmt: skip

    def __enter__(self) -> SlurmCluster:
        """Raises ClusterFailed."""
        if reason := missing():
            raise ClusterFailed(reason)
        try:
            self._start()
        except BaseException:
            self._ending.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(subprocess.SubprocessError):
            self.run("scancel", "--full", "--user", getpass.getuser())
            until = time.monotonic() + _END_S
            while self.run("squeue", "--noheader").strip() and time.monotonic() < until:
                time.sleep(0.1)
        self._ending.close()

    def run(self, *command: str) -> str:
        """Output of one of Slurm's commands.  Raises CalledProcessError, TimeoutExpired."""
        return subprocess.run(
            command, env=self.environment, check=True, capture_output=True, text=True, timeout=60
        ).stdout

    def _start(self) -> None:
        self._folder.chmod(0o755)  # munge looks for strangers' rights all the way up
        for name in ("munge", "state", *(f"spool.{node}" for node in NODES)):
            (self._folder / name).mkdir(mode=0o755)
        controller, first, second = _free_ports(3)
        self.configuration.write_text(
            _CONFIGURATION.format(
                host=socket.gethostname(),
                user=getpass.getuser(),
                folder=self._folder,
                kill_wait=self._kill_wait_s,
                controller=controller,
                first=first,
                second=second,
            )
        )
        self._start_munge()
        self._daemon("slurmctld", "-D", "-c")
        for node in NODES:
            own_view = self._second_view() if node == NODES[1] else []
            self._daemon(*own_view, "slurmd", "-D", "-c", "-N", node)
        until = time.monotonic() + _READY_S
        while not self._ready():
            if time.monotonic() > until:
                raise ClusterFailed(f"Slurm was not ready in {_READY_S:g} s:\n{self._words()}")
            time.sleep(0.05)

    def _start_munge(self) -> None:
        munge = self._folder / "munge"
        (munge / "key").write_bytes(os.urandom(1024))
        (munge / "key").chmod(0o400)
        names = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log"}
        options = [f"--{name}={munge / file}" for name, file in names.items()]
        self._daemon("munged", "--foreground", "--force", f"--seed-file={munge / 'seed'}", *options)
        until = time.monotonic() + _READY_S
        while not (munge / "socket").exists():
            if time.monotonic() > until:
                raise ClusterFailed(f"munged was not ready in {_READY_S:g} s:\n{self._words()}")
            time.sleep(0.02)

    def _second_view(self) -> list[str]:
        """Words before a command to which ``unshared`` is another folder."""
        unshared = self._folder / "unshared"
        unshared.mkdir()
        words = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"']
        words.append(str(unshared))
        try:
            subprocess.run([*words, "true"], check=True, capture_output=True, timeout=60)
        except (OSError, subprocess.SubprocessError):
            return []
        self.unshared = unshared
        return words

    def _daemon(self, *command: str) -> None:
        """Starts what the kernel ends should this process be killed."""
        words = list(command)
        if setpriv := shutil.which("setpriv"):
            words = [setpriv, "--pdeathsig", "TERM", *words]
        with (self._folder / "daemons.log").open("ab") as log:
            process = subprocess.Popen(
                words, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self._ending.callback(_end, process)

    def _ready(self) -> bool:
        try:
            states = self.run("sinfo", "--noheader", "--partition=main", "--Node", "--format=%t")
        except subprocess.SubprocessError:
            return False
        return states.split() == ["idle"] * len(NODES)

    def _words(self) -> str:
        return (self._folder / "daemons.log").read_text(errors="replace")[-2000:]


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        ports = []
        for _ in range(count):
            probe = held.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            ports.append(int(probe.getsockname()[1]))
        return ports


def main() -> int:
    words = sys.argv[2:] if sys.argv[1:2] == ["--"] else sys.argv[1:]
    if not words:
        print(__doc__, file=sys.stderr)
        return 64
    folder = Path(tempfile.mkdtemp(prefix="hl-slurm-"))
    try:
        with SlurmCluster(folder) as cluster:
            return subprocess.run(words, env=cluster.environment, check=False).returncode
    except ClusterFailed as error:
        print(f"No Slurm: {error}.", file=sys.stderr)
        return 4
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
