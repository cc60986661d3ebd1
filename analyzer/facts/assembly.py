"""From a Case, or a bare folder of dumps, to evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from hanglab.analyzer.errors import InputError
from hanglab.analyzer.facts.boundary import join
from hanglab.analyzer.facts.buffers import best_buffers, drop_own_frames
from hanglab.analyzer.facts.case_facts import CaseFacts, EarlierException, RankView
from hanglab.analyzer.facts.folder_logs import add_logs, from_logs
from hanglab.analyzer.facts.host import HostView
from hanglab.analyzer.facts.host_waits import host_waits
from hanglab.analyzer.facts.job_clock import ahead_of_job, on_job_clock
from hanglab.analyzer.facts.scheduler import asked_to_end, by_scheduler
from hanglab.analyzer.facts.stderr_per_rank import separate_stderr
from hanglab.analyzer.facts.thresholds import CHECKED_BYTES
from hanglab.analyzer.facts.trace_stacks import stack_of_trace
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.flight_recorder.discovery import cases_below
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.graph.dump_folder import WorldGraph, wait_for_graphs_of_folder
from hanglab.analyzer.verdict import Inputs, Unusable
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.integrity import differences
from hanglab.recorder.case.reader import CaseReader, NotACase, RankCase
from hanglab.recorder.case.records import (
    Clock,
    Exit,
    JobRecord,
    ProgramEnd,
    Raised,
    SchedulerRecord,
    StackFrame,
    StackSample,
)

Happened = TypeVar("Happened", Raised, ProgramEnd)


def _bare_names(samples: list[StackSample]) -> list[StackSample]:
    """Functions by their own name, as Flight Recorder and tracebacks have them.

    From Python 3.11 on py-spy gives qualified names.
    """
    for sample in samples:
        for thread in sample.threads:
            thread.frames = [
                StackFrame(frame.function.rpartition(".")[2], frame.file, frame.line)
                if "." in frame.function
                else frame
                for frame in thread.frames
            ]
    return samples


def _stacks(rank: RankCase) -> list[StackSample]:
    """Samples of its stacks; where nobody could take one, what a trace of it shows."""
    stacks = _bare_names(rank.read(files.STACKS))
    process = rank.read(files.PROCESS)
    if process is None or any(sample.kind == "rank" for sample in stacks):
        return stacks
    for data in rank.read(files.TRACES):
        stack = stack_of_trace(data, process.pid, process.python, rank.read(files.CODE))
        if stack is not None:
            return [*stacks, stack]
    return stacks


def _until(raised: list[Happened], last: Clock | None) -> list[Happened]:
    """Events before the capture: later ones may be its doing, or that of the job's end."""
    if last is None:
        return raised
    return [one for one in raised if one.at.wall_ns <= last.wall_ns]


def _noted_end(rank: RankCase) -> Exit | None:
    """The end that was seen, else the one that the rank announced by ``os._exit``.

    That is noted as it is called, and nothing can keep a process from its end then.
    """
    end = rank.read(files.EXIT)
    if end is not None and not end.vanished:
        return end
    last = rank.read(files.PROGRAM_ENDS)[-1:]
    return next((Exit(one.at, one.code) for one in last if one.how == "os._exit"), end)


def _exit(
    rank: RankCase, end: Exit | None, job: JobRecord | None, scheduler: SchedulerRecord | None
) -> Exit | None:
    """The rank's end, unless it still lived at the capture and failed after it.

    Whose main thread had raised an error by then was on its way out.  How it ends once it has
    been interrupted says nothing of the job, well or not; nor does an end that the cluster's
    scheduler gave it.
    """
    if end is not None and by_scheduler(end, scheduler):
        return msgspec.structs.replace(end, by_recorder=True)
    trigger = job.trigger if job is not None else None
    if end is None or trigger is None or end.at.wall_ns <= trigger.at.wall_ns:
        return end
    raised = _until(
        on_job_clock(rank.read(files.EXCEPTIONS), ahead_of_job(job, rank.host)), trigger.at
    )
    if any(one.main for one in raised):
        return end
    processes = rank.read(files.PROCESSES)
    lived = any(s.kind == "rank" and s.capture and s.state not in "ZX" for s in processes)
    interrupted = _interrupted(job)
    let_be = interrupted is None or end.at.wall_ns <= interrupted.wall_ns
    well = not end.code and end.signal is None and not end.vanished and let_be
    return None if lived and not well else end


def _interrupted(job: JobRecord | None) -> Clock | None:
    """Time at which somebody asked the job to end."""
    if job is None or job.trigger is None or job.trigger.kind != "interrupt":
        return job.interrupted if job is not None else None
    return job.trigger.at


def _state(rank: RankCase, job: JobRecord | None, ended_well: bool) -> RankCase:
    """The rank as it was at the capture; as it was in the end where that says all.

    A job that came to its end all the same had not hung.  One that somebody interrupted
    did not come to its end, whatever its exit codes.
    """
    trigger = job.trigger if job is not None else None
    if trigger is None or (ended_well and _interrupted(job) is None):
        return rank
    return rank.as_captured


def _job(reader: CaseReader) -> JobRecord | None:
    """The job's record, without the capture of an attempt that is over.

    A launcher that starts ranks anew does so once those of the failed attempt are gone.
    """
    job = reader.job
    if job is None or job.trigger is None:
        return job
    started = [
        process.started.wall_ns - ahead_of_job(job, rank.host)
        for rank in reader.ranks
        if rank.attempt > 0 and (process := rank.read(files.PROCESS)) is not None
    ]
    over = bool(started) and min(started) > job.trigger.at.wall_ns
    return msgspec.structs.replace(job, trigger=None) if over else job


def _ended_well(ranks: Sequence[RankCase]) -> bool:
    ends = [rank.read(files.EXIT) for rank in ranks]
    return all(end is not None and end.code == 0 and not end.by_recorder for end in ends)


def _view(rank: RankCase, job: JobRecord | None, scheduler: SchedulerRecord | None) -> RankView:
    captured = job.trigger.at if job is not None and job.trigger is not None else None
    moments = [one for one in (captured, asked_to_end(scheduler)) if one is not None]
    last = min(moments, key=lambda at: at.wall_ns, default=None)
    ahead = ahead_of_job(job, rank.host)
    end = _noted_end(rank)
    ends = on_job_clock([end] if end is not None else [], ahead)
    return RankView(
        rank=rank.rank,
        host=rank.host,
        clock_ahead_ns=ahead,
        process=rank.read(files.PROCESS),
        progress=rank.read(files.PROGRESS),
        groups=rank.read(files.GROUPS),
        stacks=_stacks(rank),
        processes=rank.read(files.PROCESSES),
        movement=rank.read(files.MOVEMENT),
        exit=_exit(rank, ends[0] if ends else None, job, scheduler),
        exceptions=_until(on_job_clock(rank.read(files.EXCEPTIONS), ahead), last),
        handled=_until(on_job_clock(rank.read(files.HANDLED), ahead), last),
        pending=rank.read(files.PENDING),
        program_ends=_until(on_job_clock(rank.read(files.PROGRAM_ENDS), ahead), last),
        children=on_job_clock(rank.read(files.CHILDREN), ahead),
        waits=rank.read(files.WAITS),
        stderr=rank.read(files.STDERR),
        shapes=rank.read(files.CODE),
        lines=rank.read(files.LINES),
        connections=rank.read(files.CONNECTIONS),
        case=rank,
    )


def _raised_before(reader: CaseReader, job: JobRecord | None) -> list[EarlierException]:
    """Exceptions of main threads in the attempts before the latest, in their order."""
    latest = {rank.rank: rank.attempt for rank in reader.ranks}
    found = [
        EarlierException(rank.rank, rank.attempt, raised)
        for rank in reader.all_attempts
        if rank.attempt < latest[rank.rank]
        for raised in on_job_clock(rank.read(files.EXCEPTIONS), ahead_of_job(job, rank.host))
        if raised.main
    ]
    return sorted(found, key=lambda one: one.raised.at.wall_ns)


def _hosts(reader: CaseReader) -> dict[str, HostView]:
    return {
        name: HostView(
            name, host.samples, host.read(files.NCCL_RAS), host.read(files.CONTAINER), host
        )
        for name, host in reader.hosts.items()
    }


def _inputs(present: Sequence[int], expected: Sequence[int], unusable: list[Unusable]) -> Inputs:
    return Inputs(
        ranks=len(present),
        missing_ranks=sorted(set(expected) - set(present)),
        unusable=unusable,
    )


def from_case(path: Path, taken: Mapping[int, bytes] | None = None) -> CaseFacts:
    """Evidence of a Case.  Raises InputError where it cannot be read.

    ``taken`` are buffers of ranks that run, taken beside it.
    """
    try:
        reader = CaseReader(path)
    except NotACase as error:
        raise InputError(str(error), error.advice) from error
    unusable: list[Unusable] = []
    views: dict[int, RankView] = {}
    dumps: list[RankDump] = []
    ended_well = _ended_well(reader.ranks)
    job = _job(reader)
    scheduler = reader.read(files.SCHEDULER)
    ranks = [_state(rank, job, ended_well) for rank in reader.ranks]
    buffers = best_buffers(ranks, unusable, taken or {})
    for rank in ranks:
        view = views[rank.rank] = _view(rank, job, scheduler)
        dump = buffers.get(rank.rank)
        view.has_dump = dump is not None
        joined = join(rank.rank, dump, view.progress, view.groups, str(rank.folder))
        if joined is not None:
            drop_own_frames(joined, view.code)
            dumps.append(joined)
    stderr = {name: host.read(files.HOST_STDERR) for name, host in reader.hosts.items()}
    raised_before = _raised_before(reader, job)
    separate_stderr(views.values(), stderr, raised_before)
    hosts = _hosts(reader)
    size = reader.world_size
    expected = range(size) if size else sorted(views)
    unusable += [Unusable(file=str(file), reason=reason) for file, reason in reader.problems]
    unusable += [
        Unusable(file=str(path / name), reason=f"{reason} since it was recorded")
        for name, reason in differences(reader, CHECKED_BYTES)
        if reader.path / name not in dict(reader.problems)
    ]
    facts = CaseFacts(
        graph=build_wait_for_graph(dumps, expected=list(expected)),
        ranks=views,
        job=job,
        scheduler=scheduler,
        raised_before=raised_before,
        hosts=hosts,
        dumps={dump.rank: dump for dump in dumps},
        case=True,
        inputs=_inputs(list(views), list(expected), unusable),
        problems=reader.problems,
    )
    facts.graph.host_waits = {rank: wait.on for rank, wait in host_waits(facts).items()}
    return facts


def from_folder(path: Path) -> list[CaseFacts]:
    """Evidence of a bare folder of dumps and logs, of each job whose dumps it holds.

    Raises InputError without any.
    """
    worlds = wait_for_graphs_of_folder(path)
    found = [_from_world(world) for world in worlds if world.graph.ranks]
    add_logs(path, found)
    if not found:
        alone = from_logs(path, worlds[0].unusable)
        if alone is None:
            raise InputError(*_nothing_usable(path, worlds[0].unusable))
        found.append(alone)
    return found


def _from_world(world: WorldGraph) -> CaseFacts:
    graph = world.graph
    inputs = _inputs(graph.ranks, graph.expected, list(world.unusable))
    inputs.world = world.name or None
    inputs.set_aside = world.set_aside
    return CaseFacts(
        graph=graph,
        ranks={rank: RankView(rank=rank, has_dump=True) for rank in graph.ranks},
        restarted=world.restarted,
        inputs=inputs,
    )


def _nothing_usable(path: Path, unusable: Sequence[Unusable]) -> tuple[str, str]:
    if not unusable:
        return (
            f"{path} holds no Flight Recorder dump and is no Case.",
            "Give a Case folder, or the folder into which every rank wrote its dump "
            "(TORCH_FR_DUMP_TEMP_FILE names it).",
        )
    first = unusable[0]
    # Of very many files not all are listed, and the last line stands for the others.
    files = f"{len(unusable)} files" if unusable[-1].file else "files"
    return (
        f"None of the {files} in {path} is usable; {Path(first.file).name}: {first.reason}.",
        "Collect the dumps again, one file per rank, as torch wrote them.",
    )


def gather(path: Path) -> CaseFacts:
    """Evidence of the largest job in ``path``.  Raises InputError with what to do."""
    return gather_worlds(path)[0]


def gather_worlds(path: Path) -> list[CaseFacts]:
    """Evidence of whatever ``path`` is: of a Case, or of each job whose dumps lie there.

    At least one, the largest first.  Raises InputError with what to do.
    """
    try:
        exists, is_folder = path.exists(), path.is_dir()
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}.", "Check its owner and permissions."
        ) from error
    if not exists:
        raise InputError(f"{path} does not exist.", "Check the path.")
    if not is_folder:
        raise InputError(
            f"{path} is a file, not a folder.",
            "Give the folder that holds the dumps of all ranks, or a Case.",
        )
    try:
        names = {entry.name for entry in path.iterdir()}
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}.", "Check its owner and permissions."
        ) from error
    if names & {"manifest.json", "hosts"}:
        return [from_case(path)]
    if "case" in names and (path / "case" / "hosts").is_dir():
        # the folder of a run: the Case lies inside
        return [from_case(path / "case")]
    cases = cases_below(path)
    if cases:
        holds = "a Case" if len(cases) == 1 else f"{len(cases)} Cases"
        raise InputError(
            f"{path} holds {holds} and is none itself.",
            f"Give one, such as {cases[0]}, or a folder with dumps alone.",
        )
    return from_folder(path)
