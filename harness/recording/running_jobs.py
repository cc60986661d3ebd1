"""``hanglab capture``: jobs that run already, recorded or not."""

from __future__ import annotations

import contextlib
import os
import pwd
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hanglab.harness.errors import HanglabError, UsageError
from hanglab.harness.launchers.supervision.agent_process import Agent
from hanglab.harness.recording.job_grouping import JobGrouping
from hanglab.harness.recording.session import dump_options
from hanglab.recorder.agent.capture_socket import request_capture
from hanglab.recorder.attach.tree import FoundRank, by_environment, find_ranks
from hanglab.recorder.system import procfs
from hanglab.recorder.system.socket_folders import Runtime

#: A job that computes all the time is watched for up to three times as long.
_MOST = 4.0
_ANSWER_S = 2.0
#: For the agent to come up on a busy machine.
_AGENT_S = 20.0
_CAPTURE_S = 15.0
_PACE_S = 0.05


class NoSuchProcess(UsageError, ProcessLookupError):
    """The process does not exist."""

    advice = "`ps -ef` shows what runs; give the launcher's or a rank's process id."


class NotYours(HanglabError, PermissionError):
    """The process belongs to somebody else."""


class NoRanks(HanglabError):
    """Nothing there is a rank of a job."""

    advice = (
        "Ranks are Python processes with RANK, SLURM_PROCID or OMPI_COMM_WORLD_RANK in their "
        "environment, or started by torch.multiprocessing.spawn; give the launcher's process id."
    )


def ranks_of(pid: int) -> list[FoundRank]:
    """The ranks of the job that a process belongs to, on this host.

    ``pid`` is a launcher, a rank, or anything above or below one.  Raises
    NoSuchProcess, NotYours, NoRanks.
    """
    found = _ranks_around(pid)
    if len(JobGrouping().group(found)) != 1 or _complete(found):
        return found
    # Those in other containers have nobody in common with these.
    known = {rank.pid for rank in found}
    others = [rank for rank in find_ranks(_all_mine()) if rank.pid not in known]
    return _group_of(found[0], [*found, *others]) or found


def ranks_at(pids: Sequence[int]) -> list[FoundRank]:
    """The ranks that these processes are, as far as they still run.

    Raises NoSuchProcess, NotYours, NoRanks where none does.
    """
    found: dict[int, FoundRank] = {}
    problem: HanglabError | None = None
    for pid in pids:
        if pid not in found:
            try:
                found.update((rank.pid, rank) for rank in _ranks_around(pid))
            except (NoSuchProcess, NoRanks) as error:
                problem = error
    ranks = [found[pid] for pid in pids if pid in found]
    if not ranks:
        raise problem or NoRanks("None of these processes is a rank.")
    return ranks


def _ranks_around(pid: int) -> list[FoundRank]:
    """Those below a process, or beside the rank that it belongs to."""
    check_process(pid)
    found = find_ranks([pid, *_below(pid)], spawned=True)
    if not any(rank.pid == pid for rank in found):
        if found:
            return found
        above = _rank_above(pid)
        if above is None:
            if recorded := _recorded_with(pid):
                return recorded
            raise NoRanks(f"Neither process {pid} nor any below it is a rank.")
        pid = above
    return _siblings(pid) or found


def all_ranks() -> list[list[FoundRank]]:
    """The ranks of every job on this host that this user may look at, by job.

    Raises NoRanks.
    """
    jobs = JobGrouping().group(find_ranks(_all_mine(), spawned=True))
    if not jobs:
        raise NoRanks("No rank of any job runs here, as far as this user may look.")
    return list(jobs.values())


def recorded_case(ranks: Sequence[FoundRank]) -> Path | None:
    """The Case into which these ranks are recorded already, where it can be written from here."""
    cases = {rank.case for rank in ranks}
    if len(cases) != 1 or not (case := cases.pop()):
        return None
    path = Path(case)
    return path if (path / "hosts").is_dir() and sees_the_same(ranks[0].pid, path) else None


def sees_the_same(pid: int, path: Path) -> bool:
    """True if a path is the same folder to a process, which may be in a container, as here."""
    try:
        return path.samefile(f"/proc/{pid}/root{path.absolute()}")
    except OSError:
        return False


def ranks_of_case(case: Path) -> list[FoundRank]:
    """The ranks of a Case that still run on this host.  Raises NoRanks."""
    from hanglab.harness.recording.archives import open_case
    from hanglab.recorder.case import evidence_files as files

    reader = open_case(case, damaged=True)
    found = []
    for rank in reader.ranks:
        if (process := rank.read(files.PROCESS)) is None or procfs.stat(process.pid) is None:
            continue
        environment = procfs.environment(process.pid)
        named = environment.get("HANGLAB_CASE", "")
        if named and os.path.realpath(named) == os.path.realpath(reader.path):
            found.append(
                FoundRank(
                    process.pid,
                    rank.rank,
                    process.world_size,
                    process.local_rank,
                    rank.attempt,
                    named,
                    environment.get("HANGLAB_RUNTIME", ""),
                )
            )
    if not found:
        raise NoRanks(
            f"No rank of {case} runs here any more.", f"`hanglab analyze {case}` reads the Case."
        )
    return found


def _recorded_with(pid: int) -> list[FoundRank]:
    """The ranks of the Case into which a process is recorded, whatever its environment lacks.

    A fork that became a rank by variables of its own shows the kernel its parent's.
    """
    case = procfs.environment(pid).get("HANGLAB_CASE", "")
    with contextlib.suppress(HanglabError, OSError):
        return ranks_of_case(Path(case)) if case else []
    return []


def capture_recorded(
    case: Path,
    ranks: Sequence[FoundRank],
    watch_s: float,
    told: Callable[[float, float], None],
) -> Path:
    """Have a recorded job captured into its own Case, by its agent or by a new one.

    Its agent decides by its own limit that a job at rest stands still; ``told`` gets the seconds of
    rest and that limit until then.
    """
    runtime = Path(ranks[0].runtime or case)
    words = "asked for by hanglab capture"
    if request_capture(runtime, words, _MOST * max(watch_s, 60.0), told):
        return case
    _watch(case, runtime, [], ranks, watch_s)
    return case


def capture_unrecorded(case: Path, ranks: Sequence[FoundRank], watch_s: float) -> Path:
    """Attach to ranks from outside and capture them into a new Case."""
    with Runtime() as runtime:
        _watch(case, runtime, ranks, ranks, watch_s)
    return case


def _watch(
    case: Path,
    runtime: Path,
    strangers: Sequence[FoundRank],
    ranks: Sequence[FoundRank],
    watch_s: float,
) -> None:
    """Watches until it shows whether the job moves, captures, and lets the Case be written."""
    sizes = [rank.world_size for rank in ranks if rank.world_size]
    with Runtime() as logs:
        agent = Agent(
            case,
            runtime,
            world_size=max(sizes) if sizes else len(ranks),
            hang_after_s=watch_s,
            log=logs / "agent.err",
            options=dump_options(procfs.environment(ranks[0].pid)),
        )
        with contextlib.closing(agent):
            for rank in strangers:
                agent.adopt(rank)
            begun = called = time.monotonic()
            while not agent.poll():
                time.sleep(_PACE_S)
                if not agent.pids and time.monotonic() - called < _AGENT_S:
                    begun = time.monotonic()
                past = time.monotonic() - begun
                if past < watch_s:
                    continue
                quiet_s = agent.quiet_s(_ANSWER_S)
                if past > _MOST * watch_s or quiet_s is None or quiet_s < watch_s / 2:
                    agent.capture("request", "asked for by hanglab capture")
                    agent.wait_captured(_CAPTURE_S)
                    break
            agent.finish(ended_by_recorder=False)


def check_process(pid: int) -> None:
    """Raises NoSuchProcess, or NotYours where its environment may not be read."""
    if procfs.has_ended(pid):
        raise NoSuchProcess(f"There is no process {pid}.")
    _check_owner(pid)


def _check_owner(pid: int) -> None:
    if is_mine(pid):
        return
    owner = procfs.owner(pid)
    if owner is None:
        raise NoSuchProcess(f"There is no process {pid}.")
    uid, _ = owner
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    stat = procfs.stat(pid)
    if stat is not None and stat.kernel:
        raise NoRanks(f"Process {pid} is a thread of the kernel.")
    remedy = "Run hanglab as root." if uid == 0 else f"Run hanglab as {name} or as root."
    if uid == os.geteuid() or os.geteuid() == 0:
        remedy = "The kernel refuses it even so: allow it ptrace (CAP_SYS_PTRACE)."
    raise NotYours(f"Process {pid} belongs to {name}, and its state may not be read.", remedy)


def is_mine(pid: int) -> bool:
    """True if its environment may be read, and so all else about it that matters."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            file.read(1)
    except OSError:
        return False
    return True


def _all_mine() -> list[int]:
    """Processes that this user may look into, parents before children."""
    stats = {one: procfs.stat(one) for one in procfs.everyone()}
    top = [one for one, stat in stats.items() if stat is not None and stat.ppid == 0]
    everyone = [one for root in top for one in (root, *procfs.descendants([root])[root])]
    return [pid for pid in everyone if is_mine(pid)]


def _below(pid: int) -> list[int]:
    return procfs.descendants([pid])[pid]


def _rank_above(pid: int) -> int | None:
    """The rank that a process, such as a loader's worker, was started by."""
    while (stat := procfs.stat(pid)) is not None and stat.ppid > 1:
        pid = stat.ppid
        if any(rank.pid == pid for rank in find_ranks([pid], spawned=True)):
            # A worker has its rank's environment: the outermost one is the rank.
            above = _rank_above(pid)
            return above if above is not None and _same_rank(above, pid) else pid
    return None


def _same_rank(one: int, other: int) -> bool:
    first, second = by_environment(one), by_environment(other)
    return first is not None and second is not None and first.rank == second.rank


def _siblings(pid: int) -> list[FoundRank]:
    """The ranks of the same job below the parent of a rank, that one included."""
    outer = _rank_above(pid)
    if outer is not None and _same_rank(outer, pid):
        pid = outer
    stat = procfs.stat(pid)
    if stat is None:
        return []
    around = [pid] if stat.ppid <= 1 else _below(stat.ppid)
    found = find_ranks([one for one in around if is_mine(one)], spawned=True)
    mine = next((rank for rank in found if rank.pid == pid), None)
    return _group_of(mine, found) if mine is not None else []


def _group_of(rank: FoundRank, among: Sequence[FoundRank]) -> list[FoundRank]:
    """Those of its job; none where it has ended."""
    groups = JobGrouping().group(among).values()
    return next((group for group in groups if rank in group), [])


def _complete(ranks: Sequence[FoundRank]) -> bool:
    """True if none says that its job has more ranks."""
    return max((rank.world_size or 0 for rank in ranks), default=0) <= len(ranks)
