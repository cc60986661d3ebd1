"""The table of a Case's evidence files: one row for each.

Writer, reader, snapshots at the capture, redaction, the comparison with the manifest and
``docs/case-format.md`` all go by it.  A new kind of evidence is a row here, a call of
:func:`hanglab.recorder.case.writer.write` where it is gathered (inside ranks, where only
the standard library is at hand, of ``RankRecorder``'s own), and the heuristic that reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hanglab.recorder.case.file_kinds import (
    DeferredModule,
    EvidenceFile,
    FileSet,
    JsonDocument,
    JsonLines,
    JsonList,
    MappedFile,
    RawFile,
    Redaction,
    Scope,
    TextFile,
)

if TYPE_CHECKING:
    from hanglab.recorder.case import branch_trace, host_records, progress, records
else:
    # Ranks take names from here, and need no record.
    records = DeferredModule("hanglab.recorder.case.records")
    branch_trace = DeferredModule("hanglab.recorder.case.branch_trace")
    host_records = DeferredModule("hanglab.recorder.case.host_records")
    progress = DeferredModule("hanglab.recorder.case.progress")

# fmt: off
JOB: Final = JsonDocument(
    "job.json", Scope.JOB, "the job as a whole, why it was captured", lambda: records.JobRecord)
SCHEDULER: Final = JsonDocument(
    "scheduler.json", Scope.JOB, "what the cluster's scheduler says of the job, where it has one",
    lambda: records.SchedulerRecord)

HOST: Final = JsonDocument(
    "host.json", Scope.HOST, "the machine", lambda: records.HostRecord)
CONTAINER: Final = JsonDocument(
    "container.json", Scope.HOST, "what Docker says of the host, where it is a container",
    lambda: records.Container)
POD: Final = JsonDocument(
    "pod.json", Scope.HOST, "what Kubernetes says of the host, where it is a pod",
    lambda: records.PodRecord)
HOST_STDERR: Final = TextFile(
    "stderr.txt", Scope.HOST,
    "the last 64 KiB of the command's standard error, or of the file that several ranks have "
    "for theirs", redaction=Redaction.LOG)
TIMEOUT_DUMPS: Final = FileSet(
    "timeout_dumps", Scope.HOST, "dumps that torch wrote by itself, rank_<rank>")
SAMPLES: Final = JsonLines(
    "samples.jsonl", Scope.HOST, "the machine and its ranks from outside, over time",
    lambda: host_records.HostSample)
SOURCES: Final = JsonList(
    "sources.json", Scope.HOST, "source of the functions on its ranks' stacks and at their calls",
    lambda: records.SourceFunction, redaction=Redaction.LEFT_OUT, of_capture=True)
NCCL_RAS: Final = JsonDocument(
    "nccl_ras.json", Scope.HOST, "what NCCL's own service said of its communicators",
    lambda: dict[str, Any], redaction=Redaction.LEFT_OUT, of_capture=True)

PROCESS: Final = JsonDocument(
    "process.json", Scope.RANK, "the rank's process, as it described itself",
    lambda: records.RankProcess)
PROGRESS: Final = MappedFile(
    "progress.bin", Scope.RANK, "memory-mapped: operations, sections, steps, counters",
    lambda: progress.read_progress, redaction=Redaction.PROGRESS)
BRANCHES: Final = MappedFile(
    "branches.bin", Scope.RANK,
    "memory-mapped: the latest branches of the user's code that it took, on request",
    lambda: branch_trace.read_branches, redaction=Redaction.LEFT_OUT)
GROUPS: Final = JsonList(
    "groups.json", Scope.RANK, "its process groups with their members", lambda: records.GroupRecord)
FLIGHT_RECORDER: Final = RawFile(
    "flight_recorder.pickle", Scope.RANK, "torch's buffer, torch's own bytes",
    redaction=Redaction.FLIGHT_RECORDER, snapshot=True)
FLIGHT_RECORDER_STACKS: Final = RawFile(
    "flight_recorder_stacks.pickle", Scope.RANK, "the same with stacks",
    redaction=Redaction.FLIGHT_RECORDER, snapshot=True)
EXCEPTIONS: Final = JsonLines(
    "exceptions.jsonl", Scope.RANK, "exceptions that reached the top of a thread",
    lambda: records.Raised)
HANDLED: Final = JsonLines(
    "handled.jsonl", Scope.RANK, "exceptions that it printed or logged and survived",
    lambda: records.Raised)
PENDING: Final = JsonList(
    "pending.json", Scope.RANK, "exceptions that its threads were still handling",
    lambda: records.Raised, snapshot=True)
PROGRAM_ENDS: Final = JsonLines(
    "departures.jsonl", Scope.RANK,
    "what its Python called to end, and that it came to its end", lambda: records.ProgramEnd)
ELASTIC_ERROR: Final = TextFile(
    "elastic_error.json", Scope.RANK, "what torch's elastic `record` wrote of its exception",
    redaction=Redaction.LEFT_OUT)
STACKS: Final = JsonLines(
    "stacks.jsonl", Scope.RANK, "stacks of the rank and of the processes below it",
    lambda: records.StackSample, of_capture=True)
NATIVE_STACKS: Final = JsonLines(
    "native_stacks.jsonl", Scope.RANK, "the rank's stacks with native frames, on request",
    lambda: records.StackSample, redaction=Redaction.LEFT_OUT, of_capture=True)
PROCESSES: Final = JsonLines(
    "processes.jsonl", Scope.RANK, "/proc of the same processes",
    lambda: records.ProcessSample, of_capture=True)
FILE_LOCKS: Final = JsonLines(
    "file_locks.jsonl", Scope.RANK, "locks of files that it waits for and another rank holds",
    lambda: records.FileLockWait, of_capture=True)
DESCRIPTOR_WAITS: Final = JsonLines(
    "descriptor_waits.jsonl", Scope.RANK,
    "pipes and sockets that its main threads are blocked on, and who has the other ends",
    lambda: records.DescriptorWait, of_capture=True)
MOVEMENT: Final = JsonDocument(
    "movement.json", Scope.RANK, "what moved last, and how long ago",
    lambda: records.Movement, of_capture=True)
CHILDREN: Final = JsonLines(
    "children.jsonl", Scope.RANK, "processes that the rank started and that died before it",
    lambda: records.ChildExit)
CODE: Final = JsonList(
    "code.json", Scope.RANK, "extent and loops of the code on its stacks",
    lambda: records.CodeShape)
LOCALS: Final = JsonList(
    "locals.json", Scope.RANK, "variables that its functions decide by, on request",
    lambda: records.LocalValue, redaction=Redaction.LEFT_OUT, of_capture=True)
WAITS: Final = JsonList(
    "waits.json", Scope.RANK, "what its threads wait for, and whether for ever",
    lambda: records.ThreadWait, snapshot=True)
STORE_KEYS: Final = JsonList(
    "store_keys.json", Scope.RANK, "keys of stores that it has set, and waits or asked for",
    lambda: records.StoreKeyUse, snapshot=True)
POLLS: Final = JsonList(
    "polls.json", Scope.RANK, "files and keys of stores that it asks for again and again",
    lambda: records.Poll, snapshot=True)
STRAGGLER: Final = JsonLines(
    "straggler.jsonl", Scope.RANK, "windows and reports of its straggler detector",
    lambda: records.StragglerLine, redaction=Redaction.LEFT_OUT)
LINES: Final = JsonList(
    "lines.json", Scope.RANK, "where its main thread was seen, how often",
    lambda: records.LineCount)
EXIT: Final = JsonDocument(
    "exit.json", Scope.RANK, "how it ended", lambda: records.Exit)
STDERR: Final = TextFile(
    "stderr.txt", Scope.RANK, "the last 64 KiB of its standard error, if it is its own",
    redaction=Redaction.LOG)
CONNECTIONS: Final = JsonLines(
    "connections.jsonl", Scope.RANK, "its TCP connections from its own end, over time",
    lambda: host_records.ConnectionSample)
TRACES: Final = FileSet(
    "traces", Scope.RANK, "profiler traces taken of it, *.pt.trace.json", ".pt.trace.json")
# fmt: on


def evidence_files(scope: Scope | None = None) -> list[EvidenceFile[Any]]:
    """Rows of the table, in its order: all, or those of one scope."""
    rows = [value for value in globals().values() if isinstance(value, EvidenceFile)]
    return [row for row in rows if scope in (None, row.scope)]
