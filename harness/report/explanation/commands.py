"""Do now: commands ready to be copied, with the real processes, hosts and folders."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hanglab.analyzer.plain_text import shown
from hanglab.harness.report.explanation.cause_texts import text_of
from hanglab.harness.report.explanation.parts import ProcessPlace, ShellLine
from hanglab.harness.report.explanation.subject import Subject
from hanglab.harness.storage.origins import origin
from hanglab.recorder.case import evidence_files as files

#: Commands, and culprits for which they are written out.
MOST_COMMANDS = 5
MAKES_A_PAGE = "hanglab report"
MOST_RANKS = 2


@dataclass(frozen=True)
class CommandSubject:
    """The subject of a command: a culprit's process, and the folder that was examined."""

    process: ProcessPlace
    case: Path | None
    stderr: Path | None
    #: What ended it; None where none is known.
    signal: int | None = None

    @property
    def pid(self) -> str | None:
        """None for a process that cannot be asked any more."""
        if self.process.gone or self.process.pid is None:
            return None
        return str(self.process.pid)


def commands(subject: Subject) -> tuple[ShellLine, ...]:
    """The commands of the verdict's cause that can be run: those of processes while they live."""
    verdict = subject.verdict
    cause = verdict.cause.value if verdict.cause is not None else None
    found: dict[str, ShellLine] = {}
    several = len(subject.hosts) > 1
    for rank in subject.culprits[:MOST_RANKS] or (subject.waiting or (0,))[:1]:
        process = subject.process(rank)
        target = CommandSubject(
            process, subject.folder, _stderr(subject, rank), _signal(subject, rank)
        )
        for name in text_of(cause).commands:
            command = COMMANDS[name](target)
            if command is not None:
                host = "" if name in _HERE or not several else process.host
                found.setdefault(
                    command.line + host, ShellLine(command.line, command.purpose, host)
                )
    if not found and subject.folder is not None and cause is not None:
        line = f"{MAKES_A_PAGE} {_path(subject.folder)}"
        return (ShellLine(line, "stacks, calls and hosts of all ranks, on one page"),)
    return tuple(list(found.values())[:MOST_COMMANDS])


def _stderr(subject: Subject, rank: int) -> Path | None:
    view = subject.view(rank)
    if view is None or view.case is None or not view.stderr or origin(view.case.folder):
        return None
    own = view.case.folder / files.STDERR.name
    # Several ranks of a host may write to one file, which lies beside their folders.
    shared = view.case.folder.parents[1] / files.HOST_STDERR.name
    return own if own.is_file() or not shared.is_file() else shared


def _signal(subject: Subject, rank: int) -> int | None:
    view = subject.view(rank)
    return view.exit.signal if view is not None and view.exit is not None else None


def _path(path: Path) -> str:
    return shlex.quote(shown(origin(path) or str(path), 4096))


def _of_process(line: str, purpose: str) -> Callable[[CommandSubject], ShellLine | None]:
    """A command that asks the culprit's living process."""

    def make(target: CommandSubject) -> ShellLine | None:
        pid = target.pid
        return ShellLine(line.replace("PID", pid), purpose) if pid is not None else None

    return make


def _of_host(line: str, purpose: str) -> Callable[[CommandSubject], ShellLine | None]:
    return lambda _: ShellLine(line, purpose)


def _of_folder(line: str, purpose: str) -> Callable[[CommandSubject], ShellLine | None]:
    """A command on the folder that was examined."""

    def make(target: CommandSubject) -> ShellLine | None:
        return ShellLine(f"{line} {_path(target.case)}", purpose) if target.case else None

    return make


def _tail(target: CommandSubject) -> ShellLine | None:
    if target.stderr is None:
        return None
    return ShellLine(f"tail -n 40 {_path(target.stderr)}", "the end of what it printed")


def _core_dump(target: CommandSubject) -> ShellLine | None:
    if target.signal not in _DUMPING_CORE:
        return None
    return ShellLine("coredumpctl list --no-pager | tail -n 5", "whether there is a core dump")


#: Signals whose default action dumps core (signal(7)).
_DUMPING_CORE = frozenset(
    {
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGQUIT,
        signal.SIGSEGV,
        signal.SIGSYS,
        signal.SIGTRAP,
        signal.SIGXCPU,
        signal.SIGXFSZ,
    }
)
_HERE = frozenset({"entries", "stragglers", "stderr"})
COMMANDS: dict[str, Callable[[CommandSubject], ShellLine | None]] = {
    "stack": _of_process("py-spy dump --pid PID", "where it is now"),
    "native_stack": _of_process("py-spy dump --native --pid PID", "where it is, C code included"),
    "flame": _of_process(
        "py-spy record --duration 30 --output rank.svg --pid PID", "where its time goes"
    ),
    "threads": _of_process("top -b -n 1 -H -p PID", "which of its threads use a processor"),
    "state": _of_process(
        "ps -o pid,stat,wchan:30,etime,args -p PID", "whether it sleeps, and in what"
    ),
    "kernel_stack": _of_process("sudo cat /proc/PID/stack", "where it waits in the kernel"),
    "children": _of_process("ps -o pid,stat,wchan:30,args --ppid PID", "its child processes"),
    "workers": _of_process(
        "pgrep -P PID | xargs -r -n 1 py-spy dump --pid", "where its loader's workers are"
    ),
    "tracer": _of_process("grep -E 'State|TracerPid' /proc/PID/status", "who stopped it"),
    "continue": _of_process("kill -CONT PID", "let it go on"),
    "descriptors": _of_process("ls -l /proc/PID/fd", "which files and sockets are open"),
    "limits": _of_process("cat /proc/PID/limits", "what it may have"),
    "environment": _of_process(
        "tr '\\0' '\\n' < /proc/PID/environ | grep -E '^(MASTER|RANK|WORLD|LOCAL|GLOO|NCCL)'",
        "what it was told of the job",
    ),
    "affinity": _of_process("taskset -cp PID", "the processors that it may run on"),
    "sockets": _of_process(
        "ss -tinp | grep -A 1 pid=PID,", "its connections, and what they resend"
    ),
    "mounts": _of_host("findmnt -D", "which file system does not answer"),
    "cpu_quota": _of_process(
        "cat /sys/fs/cgroup$(cut -d: -f3 /proc/PID/cgroup | tail -n 1)/cpu.{max,stat}",
        "its quota, and how often it was used up",
    ),
    "memory_limit": _of_process(
        "cat /sys/fs/cgroup$(cut -d: -f3 /proc/PID/cgroup | tail -n 1)/memory.{max,current,events}",
        "its limit, and how often it was met",
    ),
    "task_limit": _of_process(
        "cat /sys/fs/cgroup$(cut -d: -f3 /proc/PID/cgroup | tail -n 1)/pids.{max,current}",
        "how many processes and threads it may have",
    ),
    "oom_log": _of_host(
        "dmesg -T | grep -iE 'out of memory|oom-kill|killed process'", "what was killed"
    ),
    "kernel_log": _of_host("dmesg -T | tail -n 50", "what the kernel says"),
    "core_dump": _core_dump,
    "blocked_tasks": _of_host(
        "dmesg -T | grep -iE 'blocked for more than|not responding'",
        "which file system or disk is meant",
    ),
    "shared_memory": _of_host("df -h /dev/shm; ls -lhS /dev/shm | head", "who fills shared memory"),
    "disks": _of_host("df -h", "which disk is full"),
    "inodes": _of_host("df -i", "whether inodes have run out"),
    "routes": _of_host(
        "ip -s link; ip route; iptables -L -n -v | head -n 40", "what drops packets"
    ),
    "link": _of_host("ip -s link; tc -s qdisc", "errors and shaping of the link"),
    "listeners": _of_host("ss -ltnp", "who listens at which port"),
    "pressure": _of_host("head -v -n 2 /proc/pressure/*; uptime", "how busy the host is"),
    "xid": _of_host("dmesg -T | grep -i xid", "errors of the GPU"),
    "gpu_state": _of_host("nvidia-smi -q -d ECC,PAGE_RETIREMENT,ROW_REMAPPER", "its memory errors"),
    "gpu_clocks": _of_host(
        "nvidia-smi -q -d PERFORMANCE,CLOCK,TEMPERATURE,POWER", "why its clock is low"
    ),
    "gpu_memory": _of_host(
        "nvidia-smi --query-compute-apps=pid,used_memory --format=csv", "who uses its memory"
    ),
    "fabric": _of_host(
        "ibstat; nvidia-smi nvlink --errorcounters", "ports and links that are down"
    ),
    "nccl_debug": _of_host(
        "export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,ENV",
        "have the next run tell what it uses",
    ),
    "stderr": _tail,
    "entries": _of_folder("hanglab entries --unfinished --stacks", "the open calls of all ranks"),
    "stragglers": _of_folder("hanglab stragglers", "every rank's own time, section by section"),
}
