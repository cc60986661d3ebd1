"""A trace file that Kineto has written: read it, check it, and say in it whose it is.

Run as a program in a process of its own, ``python -m hanglab.recorder.profiling.traces``,
so that a large file holds up nobody: one JSON document on standard input
(:class:`Check`), one on standard output (:class:`Checked`).
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import msgspec

#: Kineto's file is known to stand in memory a few times over.
MAX_BYTES = 2 << 30
#: The window is met if events come this close to it, in milliseconds.
TOLERANCE_MS = 250.0

#: How each event begins in Kineto's own layout.
_EVENT = re.compile(r"\{\s*\"ph\"")


class Check(msgspec.Struct):
    """One file to be checked."""

    path: str
    #: Where the finished trace goes.
    target: str
    rank: int | None = None
    world_size: int | None = None
    host: str = ""
    backend: str = ""
    #: The window that was asked for, wall time in milliseconds; None where it was iterations.
    start_ms: float | None = None
    end_ms: float | None = None


class Checked(msgspec.Struct):
    """Result of the check of a file."""

    ok: bool
    reason: str = ""
    events: int = 0
    #: Events that were no valid JSON and were left out.
    dropped: int = 0
    #: Wall time of the first and of the last event, in milliseconds.
    first_ms: float | None = None
    last_ms: float | None = None
    size: int = 0


class BadTrace(ValueError):
    """The file is no trace; its text says why."""


def read_trace(data: bytes) -> tuple[dict[str, Any], int]:
    """The document, and the number of events that could not be read.

    Stacks that were taken while modules were imported give invalid JSON; all
    other events are kept.  Raises BadTrace.
    """
    if not data.strip():
        raise BadTrace("it is empty")
    try:
        document = msgspec.json.decode(data)
        dropped = 0
    except (msgspec.MsgspecError, RecursionError):
        document, dropped = _read_damaged(data.decode("utf-8", "replace"))
    if not isinstance(document, dict) or not isinstance(document.get("traceEvents"), list):
        raise BadTrace("it has no traceEvents")
    return document, dropped


def _read_damaged(text: str) -> tuple[dict[str, Any], int]:
    decoder = json.JSONDecoder(strict=False)
    try:
        document = decoder.decode(text)
        return (document if isinstance(document, dict) else {}), 0
    except (ValueError, RecursionError):
        pass
    mark = re.search(r"\"traceEvents\"\s*:\s*\[", text)
    if mark is None:
        raise BadTrace("it is no JSON, and no trace events can be made out in it")
    try:
        document = decoder.decode(text[: mark.start()].rstrip().rstrip(",") + "}")
    except (ValueError, RecursionError):
        document = {}
    events: list[Any] = []
    dropped = 0
    at = mark.end()
    while (begin := _EVENT.search(text, at)) is not None:
        try:
            event, at = decoder.raw_decode(text, begin.start())
            events.append(event)
        except (ValueError, RecursionError):
            dropped += 1
            at = begin.end()
    document["traceEvents"] = events
    return document, dropped


def span_ms(document: dict[str, Any]) -> tuple[int, float | None, float | None]:
    """Number of timed events, and the wall times at which they begin and end, in milliseconds.

    ``ts`` counts microseconds from ``baseTimeNanoseconds``.
    """
    base_ms = float(document.get("baseTimeNanoseconds") or 0) / 1e6
    first = last = None
    count = 0
    for event in document["traceEvents"]:
        if not isinstance(event, dict) or event.get("ph") not in ("X", "i"):
            continue
        if event.get("cat") in (None, "Trace"):
            # Kineto's own marks around the recording.
            continue
        try:
            begin = float(event["ts"])
            end = begin + float(event.get("dur") or 0)
        except (KeyError, TypeError, ValueError):
            continue
        count += 1
        first = begin if first is None else min(first, begin)
        last = end if last is None else max(last, end)
    if first is None or last is None:
        return count, None, None
    return count, base_ms + first / 1e3, base_ms + last / 1e3


def finish(check: Check) -> Checked:
    """Check one file and write it to its target, with the rank that it belongs to.

    Holistic Trace Analysis finds ranks by ``distributedInfo``.  The original
    goes once the target stands.
    """
    path = Path(check.path)
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            return Checked(False, f"it has {size} bytes, more than are read here", size=size)
        document, dropped = read_trace(path.read_bytes())
    except BadTrace as error:
        return Checked(False, str(error))
    except OSError as error:
        return Checked(False, f"it cannot be read: {error.strerror}")
    events, first, last = span_ms(document)
    if check.rank is not None:
        info = document.get("distributedInfo")
        info = dict(info) if isinstance(info, dict) else {}
        info.update({"rank": check.rank, "world_size": check.world_size or 1})
        if check.backend:
            info.setdefault("backend", check.backend)
        document["distributedInfo"] = info
    document["hanglab"] = {"host": check.host}
    try:
        encoded = encode_trace(document)
        _write(Path(check.target), encoded)
        if path != Path(check.target):
            path.unlink()
    except OSError as error:
        return Checked(False, f"it cannot be written: {error.strerror}", events, dropped)
    checked = Checked(True, "", events, dropped, first, last, len(encoded))
    if events == 0 or first is None or last is None:
        checked.ok, checked.reason = False, "it has no events"
    elif check.start_ms is not None and check.end_ms is not None:
        late = first > check.end_ms + TOLERANCE_MS
        early = last < check.start_ms - TOLERANCE_MS
        if late or early:
            checked.ok = False
            checked.reason = (
                f"its events lie {'after' if late else 'before'} the requested window, by "
                f"{(first - check.end_ms if late else check.start_ms - last):.0f} ms"
            )
    return checked


def encode_trace(document: dict[str, Any]) -> bytes:
    """The document with its rank at the beginning, and an event a line.

    Holistic Trace Analysis reads line by line until ``"rank": N``, with a space.
    """
    first = ("distributedInfo",)
    keys = [key for key in first if key in document]
    keys += [key for key in document if key not in (*first, "traceEvents")]
    head = "".join(f"{json.dumps(key)}: {json.dumps(document[key])},\n" for key in keys)
    events = b",\n".join(msgspec.json.encode(event) for event in document["traceEvents"])
    return b"{\n" + head.encode() + b'"traceEvents": [\n' + events + b"\n]}\n"


def _write(target: Path, data: bytes) -> None:
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        os.replace(temporary, target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def main() -> None:
    check = msgspec.json.decode(sys.stdin.buffer.read(), type=Check)
    sys.stdout.buffer.write(msgspec.json.encode(finish(check)))


if __name__ == "__main__":
    main()
