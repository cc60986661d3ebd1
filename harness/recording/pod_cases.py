"""Cases of a job's pods, captured in all of them at once and laid into one Case."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hanglab.harness.errors import HanglabError
from hanglab.harness.kubernetes.connection import KubernetesCluster
from hanglab.harness.kubernetes.job_pods import WORDS, JobPod, agents_by_node, pods_of
from hanglab.harness.kubernetes.pod_exec import PodCommandEnd, run_in_pod
from hanglab.harness.recording.packed_capture import MARK, PackedNote
from hanglab.recorder.archive.packing import UnsafeArchive, unpack
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.case.reader import CaseReader
from hanglab.recorder.case.records import Absence, Clock, JobRecord
from hanglab.recorder.case.writer import clock, write, write_manifest

#: Pods that are asked at the same time.
_AT_ONCE = 32
#: For a pod to capture and pack, beside what it watches.
_PATIENCE_S = 300.0
#: No Case of one pod comes near it.
_MOST_BYTES = 16 << 30


@dataclass
class PodCase:
    """One pod's Case, or the sentence that says why there is none."""

    pod: JobPod
    folder: Path | None = None
    lacking: str = ""
    #: By how much its clock is ahead of this one's, but for the time of a message.
    ahead_ns: int = 0


@dataclass
class Collected:
    """Pods of the job, those that gave a Case and those that did not."""

    pods: list[PodCase] = field(default_factory=list)

    @property
    def lacking(self) -> list[str]:
        return [one.lacking for one in self.pods if one.lacking]


def collect(
    cluster: KubernetesCluster, job: str, case: Path, watch_s: float, container: str | None = None
) -> Collected:
    """Captures in all running pods of a job; ``case`` gets what came, an empty folder before.

    Raises KubernetesError where nothing can be asked at all.  A pod that gives nothing is told
    of in the result, and in the Case.
    """
    pods = pods_of(cluster, job)
    agents: dict[str, JobPod] = {}
    if not container and not all(pod.agent or pod.recorded for pod in pods):
        agents = agents_by_node(cluster)
    collected = Collected()
    with tempfile.TemporaryDirectory(prefix="hanglab-pods-") as name:
        place = Path(name)

        def one(number: int, pod: JobPod) -> PodCase:
            if not pod.running:
                return PodCase(pod, lacking=_not_running(pod))
            return _capture(
                cluster, pod, place / str(number), watch_s, container, agents.get(pod.node)
            )

        with ThreadPoolExecutor(min(_AT_ONCE, len(pods)), "hanglab-pods") as pool:
            collected.pods = list(pool.map(one, range(len(pods)), pods))
        _unite(case, collected.pods)
    return collected


def _capture(
    cluster: KubernetesCluster,
    pod: JobPod,
    place: Path,
    watch_s: float,
    container: str | None,
    agent: JobPod | None,
) -> PodCase:
    words = ["hanglab", "capture", "--all", "--packed", "--watch", f"{watch_s:g}"]
    where, inside = pod.name, container or pod.container
    if container is None and agent is not None and not (pod.agent or pod.recorded):
        where, inside = agent.name, agent.container
        words += ["--pod", pod.uid]
    notes = _Notes()
    archive = place.with_suffix(".tar.gz")
    try:
        with archive.open("wb") as file:
            end = run_in_pod(
                cluster, where, inside, words, file, _MOST_BYTES,
                _PATIENCE_S + 4 * watch_s, notes.hear,
            )  # fmt: skip
        if end.code != 0:
            return PodCase(pod, lacking=_refused(pod, inside, end))
        unpack(archive, place)
        CaseReader(place)
    except UnsafeArchive as error:
        return PodCase(pod, lacking=f"Pod {pod.name} sent what is no Case: {error}.")
    except (HanglabError, OSError) as error:
        return PodCase(pod, lacking=f"Pod {pod.name} gave no Case: {error}")
    finally:
        with contextlib.suppress(OSError):
            archive.unlink()
    return PodCase(pod, place, ahead_ns=notes.ahead_ns)


class _Notes:
    """Reads the pod's clock off what it says before it sends."""

    def __init__(self) -> None:
        self.ahead_ns = 0
        self._rest = b""

    def hear(self, data: bytes) -> None:
        now = time.time_ns()
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(MARK):
                with contextlib.suppress(msgspec.MsgspecError):
                    note = msgspec.json.decode(line.removeprefix(MARK), type=PackedNote)
                    self.ahead_ns = note.wall_ns - now


def _not_running(pod: JobPod) -> str:
    ending = pod.record.ending
    if ending is None:
        return f"Pod {pod.name} is not running: {pod.record.phase or 'nothing is known of it'}."
    more = f" ({pod.record.message})" if pod.record.message else ""
    return f"Pod {pod.name} {WORDS[ending]}{more}, so nothing can be read out of it."


def _refused(pod: JobPod, container: str, end: PodCommandEnd) -> str:
    said = [line for line in end.stderr.splitlines() if line.startswith("hanglab: ")]
    if said:
        return f"Pod {pod.name} gave no Case: {said[-1].removeprefix('hanglab: ')}"
    if end.code in (None, 126, 127):
        return f"Pod {pod.name} has no hanglab in its container {container}: {end.reason}."
    return f"Pod {pod.name} gave no Case: hanglab ended with code {end.code} there."


def _unite(case: Path, pods: Iterable[PodCase]) -> None:
    """Lays the pods' hosts side by side, and says what is missing."""
    absent: list[Absence] = []
    jobs: list[tuple[JobRecord, int]] = []
    ahead: dict[str, int] = {}
    for one in pods:
        host = folders.host_folder(case, one.pod.name)
        if one.folder is None:
            absent.append(Absence("pod", one.lacking, host.name))
        else:
            reader = CaseReader(one.folder)
            if reader.job is not None:
                jobs.append((reader.job, one.ahead_ns))
            if reader.manifest is not None:
                absent += reader.manifest.absent
            for name, found in reader.hosts.items():
                target = host if len(reader.hosts) == 1 else folders.host_folder(case, name)
                folders.make_private(target.parent)
                if target.exists():
                    absent.append(Absence("host", "two pods have a host of this name", name))
                    continue
                shutil.move(str(found.folder), target)
                ahead[target.name] = one.ahead_ns
        write(host, files.POD, one.pod.record)
    write(case, files.JOB, _job(jobs, ahead))
    write_manifest(case, "hanglab", absent)


def _job(jobs: list[tuple[JobRecord, int]], ahead: dict[str, int]) -> JobRecord:
    """The job as a whole, on the clock of this machine."""

    def here(at: Clock, ahead_ns: int) -> Clock:
        return Clock(at.wall_ns - ahead_ns, at.mono_ns)

    if not jobs:
        return JobRecord(None, clock(), clocks_ahead_ns=ahead)
    started = min((here(job.started, a) for job, a in jobs), key=lambda at: at.wall_ns)
    triggers = [(job.trigger, a) for job, a in jobs if job.trigger is not None]
    # The hang is as old as the pod says that has rested for the shortest time.
    hung = [(t, a) for t, a in triggers if t.kind != "request"] or triggers
    trigger = None
    if hung:
        first, a = min(hung, key=lambda one: one[0].at.wall_ns - one[1])
        trigger = msgspec.structs.replace(first, at=here(first.at, a))
    return JobRecord(
        world_size=max((job.world_size or 0 for job, _ in jobs)) or None,
        started=started,
        hang_after_s=max((job.hang_after_s or 0.0 for job, _ in jobs)) or None,
        trigger=trigger,
        ended=None,
        ended_by_recorder=any(job.ended_by_recorder for job, _ in jobs),
        clocks_ahead_ns=ahead,
    )
