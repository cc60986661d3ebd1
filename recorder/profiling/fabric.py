"""Datagrams between a PyTorch process and the daemon that hands it profiling requests.

A datagram is a header, ``size_t size; char type[32];``, and ``size`` bytes of
payload, in native byte order (kineto, libkineto/src/IpcFabricConfigClient.h and
dynolog, dynolog/src/ipcfabric).  Only layouts here: no socket, no state.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

#: The daemon's name, in the abstract namespace and as a file in a socket directory.
DAEMON = "dynolog"
#: Bits of a request's ``type``: what the process would accept now.
EVENTS = 1
ACTIVITIES = 2
#: More than any real request: a process has itself and 10 ancestors to name.
MAX_DATAGRAM = 64 * 1024
_MAX_PIDS = 1024

_HEADER = struct.Struct("@N32s")
_REQUEST = struct.Struct("@iiq")
_CONTEXT = struct.Struct("@iiq")
_COUNT = struct.Struct("@i")


class BadFrame(ValueError):
    """A datagram that is none of the known ones; its text says why."""


@dataclass(frozen=True)
class FabricRequest:
    """``req`` from a process: "I am here; is there anything to do?" """

    #: ACTIVITIES is set while no trace runs in the process.
    accepts: int
    #: SLURM_JOB_ID, else 0.
    job_id: int
    #: The process first, then its ancestors, in its own pid namespace.
    pids: tuple[int, ...]

    @property
    def idle(self) -> bool:
        return bool(self.accepts & ACTIVITIES)


@dataclass(frozen=True)
class Context:
    """``ctxt`` from a process: it uses a GPU.  Answered with a count."""

    gpu: int
    pid: int
    job_id: int


def decode(data: bytes) -> FabricRequest | Context:
    """Decode a process's message.  Raises BadFrame."""
    if len(data) < _HEADER.size:
        raise BadFrame(f"{len(data)} bytes are too few for a header")
    size, kind = _HEADER.unpack_from(data)
    payload = data[_HEADER.size :]
    if size != len(payload):
        raise BadFrame(f"the header promises {size} bytes, {len(payload)} came")
    name = kind.split(b"\0", 1)[0]
    if name == b"req":
        return _decode_request(payload)
    if name == b"ctxt":
        if len(payload) != _CONTEXT.size:
            raise BadFrame(f"a context of {len(payload)} bytes")
        return Context(*_CONTEXT.unpack(payload))
    raise BadFrame(f"unknown type {name[:32]!r}")


def _decode_request(payload: bytes) -> FabricRequest:
    if len(payload) < _REQUEST.size:
        raise BadFrame(f"a request of {len(payload)} bytes")
    accepts, count, job_id = _REQUEST.unpack_from(payload)
    if not 0 < count <= _MAX_PIDS or len(payload) != _REQUEST.size + count * 4:
        raise BadFrame(f"a request of {len(payload)} bytes cannot hold {count} process ids")
    pids = struct.unpack_from(f"@{count}i", payload, _REQUEST.size)
    if pids[0] <= 0:
        raise BadFrame(f"process id {pids[0]}")
    return FabricRequest(accepts, job_id, pids)


def encode_request(request: FabricRequest) -> bytes:
    """The datagram that a process sends."""
    payload = _REQUEST.pack(request.accepts, len(request.pids), request.job_id)
    return _frame(b"req", payload + struct.pack(f"@{len(request.pids)}i", *request.pids))


def encode_context(context: Context) -> bytes:
    """The datagram that a process with a GPU sends once."""
    return _frame(b"ctxt", _CONTEXT.pack(context.gpu, context.pid, context.job_id))


def encode_configuration(text: str) -> bytes:
    """The daemon's answer to a request; an empty text means that there is nothing to do."""
    return _frame(b"req", text.encode())


def encode_count(count: int) -> bytes:
    """The daemon's answer to a context: the number of processes on that GPU."""
    return _frame(b"ctxt", _COUNT.pack(count))


def decode_answer(data: bytes) -> str:
    """The configuration in the daemon's answer.  Raises BadFrame."""
    if len(data) < _HEADER.size:
        raise BadFrame(f"{len(data)} bytes are too few for a header")
    size, _ = _HEADER.unpack_from(data)
    payload = data[_HEADER.size :]
    if size != len(payload):
        raise BadFrame(f"the header promises {size} bytes, {len(payload)} came")
    return payload.decode("utf-8", "replace")


def _frame(kind: bytes, payload: bytes) -> bytes:
    return _HEADER.pack(len(payload), kind) + payload
