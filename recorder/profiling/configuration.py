"""Requests to a process, as the configuration text that Kineto reads.

``KEY=VALUE`` lines (kineto, libkineto/src/Config.cpp and ActivityProfilerController.cpp).
A key that Kineto does not know warns in the job's log, a bad integer loses the
request without a word, so every value is typed and bounded before it leaves.
"""

from __future__ import annotations

import re

import msgspec

from hanglab.recorder.errors import HanglabError

#: Longer traces fill disks and memory of the job.
MAX_DURATION_MS = 600_000
MAX_ITERATIONS = 100_000
MAX_WARMUP_MS = 600_000

#: Kineto puts a start that is not set two of its own turns after the request, and its warm-up.
_UNSET_START_S = 2.0

#: Keys that Dynolog's clients send, and what their values look like.
_INTEGER = re.compile(r"-?\d{1,18}")
_FLAG = re.compile(r"true|false|0|1")
_PATH = re.compile(r"[^\x00-\x1f\x7f]{1,4096}")
_NAME = re.compile(r"[A-Za-z0-9._:-]{0,256}")
_KNOWN: dict[str, re.Pattern[str]] = {
    "ACTIVITIES_LOG_FILE": _PATH,
    "REQUEST_TRACE_ID": _NAME,
    "REQUEST_GROUP_TRACE_ID": _NAME,
    "PROFILE_START_TIME": _INTEGER,
    "ACTIVITIES_DURATION_MSECS": _INTEGER,
    "ACTIVITIES_WARMUP_PERIOD_SECS": _INTEGER,
    "PROFILE_START_ITERATION": _INTEGER,
    "PROFILE_START_ITERATION_ROUNDUP": _INTEGER,
    "ACTIVITIES_ITERATIONS": _INTEGER,
    "ACTIVITIES_WARMUP_ITERATIONS": _INTEGER,
    "PROFILE_REPORT_INPUT_SHAPES": _FLAG,
    "PROFILE_WITH_STACK": _FLAG,
    "PROFILE_WITH_FLOPS": _FLAG,
    "PROFILE_WITH_MODULES": _FLAG,
    "PROFILE_PROFILE_MEMORY": _FLAG,
    "PROFILE_MEMORY": _FLAG,
    "ACTIVITY_TYPES": re.compile(r"[A-Za-z0-9_,]{1,512}"),
}


class BadConfiguration(HanglabError, ValueError):
    """A request that would be lost or do harm; its text says why."""

    advice = "Change what is asked for as the answer says."


class Detail(msgspec.Struct, frozen=True):
    """Details that a trace holds beside the operators themselves."""

    shapes: bool = False
    stacks: bool = False
    flops: bool = False
    modules: bool = False


class TraceWindow(msgspec.Struct, frozen=True):
    """The time or the iterations for which a trace is taken.

    ``iterations`` 0 means by time.  ``start_ms`` is wall time in milliseconds
    since the epoch, 0 for as soon as possible.
    """

    duration_ms: int = 500
    warmup_ms: int = 0
    start_ms: int = 0
    iterations: int = 0
    #: Start at this very iteration; 0 for none.
    at_iteration: int = 0
    #: Start at the next multiple of this.
    roundup: int = 1

    def check(self) -> None:
        """Raises BadConfiguration."""
        for value, low, high, name in (
            (self.duration_ms, 1, MAX_DURATION_MS, "the duration in milliseconds"),
            (self.warmup_ms, 0, MAX_WARMUP_MS, "the warm-up in milliseconds"),
            (self.start_ms, 0, 1 << 53, "the start time"),
            (self.iterations, 0, MAX_ITERATIONS, "the number of iterations"),
            (self.at_iteration, 0, 1 << 40, "the iteration to start at"),
            (self.roundup, 1, 1 << 30, "the round-up"),
        ):
            if not low <= value <= high:
                raise BadConfiguration(f"{name} must be from {low} to {high}, not {value}")

    @property
    def warmup_s(self) -> int:
        """Kineto counts warm-up in whole seconds."""
        return -(-self.warmup_ms // 1000)


def configuration(file: str, trace_id: str, window: TraceWindow, detail: Detail) -> str:
    """The text for one process.

    ``file``: the path as the process sees it; Kineto puts ``_<pid>`` before its
    ``.pt.trace.json``.  Raises BadConfiguration.
    """
    window.check()
    lines = {"ACTIVITIES_LOG_FILE": file, "REQUEST_TRACE_ID": trace_id}
    if window.iterations:
        lines["PROFILE_START_ITERATION"] = str(window.at_iteration)
        lines["PROFILE_START_ITERATION_ROUNDUP"] = str(window.roundup)
        lines["ACTIVITIES_ITERATIONS"] = str(window.iterations)
    else:
        lines["PROFILE_START_TIME"] = str(window.start_ms)
        lines["ACTIVITIES_DURATION_MSECS"] = str(window.duration_ms)
        lines["ACTIVITIES_WARMUP_PERIOD_SECS"] = str(window.warmup_s)
    for key, wanted in (
        ("PROFILE_REPORT_INPUT_SHAPES", detail.shapes),
        ("PROFILE_WITH_STACK", detail.stacks),
        ("PROFILE_WITH_FLOPS", detail.flops),
        ("PROFILE_WITH_MODULES", detail.modules),
    ):
        if wanted:
            lines[key] = "true"
    return check_text("".join(f"{key}={value}\n" for key, value in lines.items()))


def check_text(text: str) -> str:
    """A configuration that may be handed to a process.  Raises BadConfiguration.

    Memory profiling is refused: on CPU it leaves a spinning thread in the job
    and no file.
    """
    for line in text.splitlines():
        key, equals, value = line.strip().partition("=")
        if not key:
            continue
        pattern = _KNOWN.get(key)
        if not equals or pattern is None:
            raise BadConfiguration(f"{key[:80]!r} is no setting that may be passed on")
        if not pattern.fullmatch(value):
            raise BadConfiguration(f"{value[:80]!r} is no value of {key}")
        if key in ("PROFILE_MEMORY", "PROFILE_PROFILE_MEMORY") and value in ("true", "1"):
            raise BadConfiguration(
                "memory profiling is refused: without a GPU it leaves a spinning thread in the "
                "job and writes no file"
            )
    return text


def values_of(text: str) -> dict[str, str]:
    """The settings of a text as a mapping."""
    pairs = (line.strip().partition("=") for line in text.splitlines())
    return {key: value for key, equals, value in pairs if key and equals}


def number_of(values: dict[str, str], key: str, default: int = 0) -> int:
    """A setting of a checked text as a number."""
    return int(values.get(key) or default)


def lasts_s(text: str, now_s: float) -> float | None:
    """Seconds from now until the last event of a trace that a process is told of now.

    ``now_s`` is wall time.  None for one by iterations.
    """
    values = values_of(text)
    if number_of(values, "ACTIVITIES_ITERATIONS") > 0:
        return None
    start_ms = number_of(values, "PROFILE_START_TIME")
    if start_ms:
        begins_s = max(0.0, start_ms / 1e3 - now_s)
    else:
        begins_s = _UNSET_START_S + number_of(values, "ACTIVITIES_WARMUP_PERIOD_SECS", 5)
    return begins_s + number_of(values, "ACTIVITIES_DURATION_MSECS", 500) / 1e3


def trace_path(file: str, pid: int) -> str:
    """Path of a trace: Kineto puts ``_<pid>`` before the first ``.pt.trace.json`` or ``.json``."""
    for ending in (".pt.trace.json", ".json"):
        at = file.find(ending)
        if at >= 0:
            return f"{file[:at]}_{pid}{file[at:]}"
    return f"{file}_{pid}.json"
