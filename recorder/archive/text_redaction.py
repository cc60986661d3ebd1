"""Free texts reduced to what everybody's programs say.

Messages and standard error hold paths, addresses and values.  Only words that
the errors of Python, torch, gloo, NCCL and Linux are made of stay, with small
numbers; a line without any of their phrases goes.
"""

from __future__ import annotations

import re

from hanglab.recorder.archive.pseudonyms import Pseudonyms

#: Phrases that an explanation may hang on.  A line is kept if it holds one.
PHRASES = (
    r"Connection closed by peer", r"Connection reset by peer", r"Connection refused",
    r"Broken pipe", r"Timed out waiting", r"Application timeout", r"[Ww]ait timeout",
    r"Socket closed", r"gloo[/\\]", r"preamble\.length", r"NCCL (?:communicator|error)",
    r"ncclRemoteError", r"ncclSystemError", r"ncclInternalError", r"ncclUnhandledCudaError",
    r"remote process exited", r"failed to recv", r"recvValue failed", r"sendBytes failed",
    r"recvBytes failed", r"DistNetworkError", r"DistBackendError", r"DistStoreError",
    r"ended, so its group", r"watchdog", r"collective operation timeout", r"Pipe: ",
    r"insufficient shared memory", r"unable to write to file", r"unable to allocate shared memory",
    r"/dev/shm", r"No space left on device", r"Disk quota exceeded", r"\[Errno \d+\]",
    r"DataLoader worker", r"is killed by signal", r"exited unexpectedly", r"exited with",
    r"CUDA out of memory", r"HIP out of memory", r"OutOfMemoryError", r"CUDA error",
    r"Too many open files", r"can't start new thread", r"Resource temporarily unavailable",
    r"Cannot allocate memory", r"Out of memory", r"[Kk]illed process \d+", r"oom-kill",
    r"Address already in use", r"EADDRINUSE", r"waiting for clients", r"[Rr]endezvous",
    r"could not resolve", r"Failed to resolve", r"Temporary failure in name resolution",
    r"Name or service not known", r"The server socket has failed", r"client socket has",
    r"Segmentation fault", r"Fatal Python error", r"Aborted", r"Bus error", r"Illegal instruction",
    r"Traceback \(most recent call last\)", r"Current thread 0x", r"terminate called",
    r"what\(\): ", r"Assertion", r"Read-only file system", r"Input/output error",
    r"Permission denied", r"No such file or directory", r"Stale file handle",
    r"Unable to find address", r"unexpected (?:EOF|end)", r"Process \d+ terminated",
    r"PytorchStreamWriter failed", r"iostream error", r"unexpected pos \d+ vs \d+",
    r"file write failed", r"disk I/O error", r"disk is full", r"write failed", r"short write",
    r"out of shared memory", r"</?torch_\d+_", r"received 0 items of ancdata",
    r"while trying to connect", r"clients joined", r"[Tt]hread creation failed",
    r"received signal", r"Xid", r"NVRM", r"process exited", r"(?:was )?ended(?: with| by)",
    r"an illegal memory access was encountered", r"an illegal instruction was encountered",
    r"unspecified launch failure", r"misaligned address", r"invalid program counter",
    r"operation not supported on global/shared address space", r"device-side assert triggered",
    r"the launch timed out and was terminated", r"uncorrectable ECC error encountered",
    r"uncorrectable NVLink error", r"hardware stack error", r"GPU has fallen off the bus",
    r"GPU is lost", r"Invalid access of peer GPU memory over nvlink", r"Triton Error",
    r"HIP error", r"Cuda failure", r"ncclInvalidUsage", r"ncclInvalidArgument",
    r"Got completion from peer", r"Got async event", r"local catastrophic error",
    r"double free or corruption", r"(?:free|malloc|realloc|munmap_chunk)\(\): (?:invalid|corrupt)",
    r"corrupted size", r"stack smashing detected", r"std::bad_alloc", r"Pair is not connected",
    r"state_ >= CONNECTED", r"monitoredBarrier", r"Monitored Barrier", r"connectFullMesh",
    r"CheckpointException ranks:dict_keys", r"Detected mismatch between collectives on ranks",
    r"DDP expects same model across all ranks, but Rank \d+ has \d+ params, "
    r"while rank \d+ has inconsistent \d+ params",
    r"\[\d+\]: params\[\d+\] in this process with sizes \[[\d, ]*\] appears not to match sizes "
    r"of the same param",
    r"posix_fallocate failed", r"Failed to CUDA \w+alloc", r"shared memory object",
    r"Unable to determine the device handle for GPU",
)  # fmt: skip
_PHRASE = re.compile("|".join(PHRASES))

#: Words around the phrases that say nothing of the job.
_EXTRA = """
a an and as at be been before but by call called cannot code did does error errors failed failure
file for from has have if in is it its line looks most no not of on only or out peer port process
processes py rank ranks recent received see shm signal size store system than that the their then
there this thread timeout to too torch tried trying unable up value was were while with within
SIGKILL SIGTERM SIGSEGV SIGABRT SIGINT SIGBUS SIGILL SIGFPE SIGHUP EOF TCPStore ProcessGroupGloo
ProcessGroupNCCL gloo nccl NCCL transport tcp pair cc ms s op all_reduce broadcast barrier recv
send reduce gather scatter allreduce allgather tensor tensors shape dtype shapes mismatch expected
got bytes device memory worker workers DataLoader pid pids killed exited unexpectedly dev unknown
none None nothing moved wrote dump itself hanglab sent could read written had its torch wrote
Errno limit higher open files bus out-of-memory RAM manager shared
WARN posix_fallocate alloc calloc dict_keys with Rank RANK Ranks
ms pass prev vs hca vendor opcode len status CUDA HIP
""".split()
_WORDS = frozenset(_EXTRA) | frozenset(
    word
    for phrase in PHRASES
    for word in re.findall(r"[A-Za-z][A-Za-z']+", re.sub(r"\\[a-z]|\[[^\]]*\]|\(\?:", " ", phrase))
)
_TOKEN = re.compile(
    r"(?P<address>\d+\.\d+\.\d+\.\d+|[0-9a-fA-F]*::[0-9a-fA-F:]*)"
    r"|(?P<shm>/dev/shm|/torch_)"
    r"|(?P<word>[A-Za-z_][\w']*(?:[/\\.][\w'./\\-]+)?|/[\w'./\\@-]*|~[\w/.-]*)"
    r"|(?P<number>\d+[\w.-]*)"
    r"|(?P<other>[^\w]|.)",
    re.DOTALL,
)
#: Words with a slash or a point in them that belong to libraries.
_PUBLIC_PATHS = frozenset({"preamble.length", "gloo/transport", "NET/IB"})
#: What libraries say of sizes that do not match: kept with its numbers, which tell them apart.
_VERBATIM = re.compile(
    r"(?:op\.)?preamble\.length <= op\.nbytes\. \d+ vs \d+"
    r"|is running collective: CollectiveFingerPrint\(SequenceNumber=\d+, OpType=\w+"
    r"(?:, TensorShape=\[[\d, ]*\], TensorDtypes=\w+)?"
)
_PUNCTUATION = frozenset(" \t\n()[]{}:;,.!?'\"=<>-+*/|#&%")
_FRAME = re.compile(
    r'^(?P<before>\s*)File "(?P<file>[^"]+)", line (?P<line>\d+)(?:,? in (?P<function>.+))?$'
)
#: What torch.distributed.checkpoint writes above another rank's traceback has its number behind.
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):(?: \(RANK \d+\))?")
_PREFIX = re.compile(r"^\[[^\]]*?rank(?P<rank>\d+)\]:\s?")
_RAISED = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?P<rest>: .*)?$", re.DOTALL)
_BUILTIN = re.compile(r"[A-Z]\w*(Error|Exception|Warning|Interrupt|Exit|Iteration)")
#: Exceptions of the interpreter and of torch, whose names are public.
_PUBLIC_ROOTS = ("torch.", "builtins.", "subprocess.", "multiprocessing.", "queue.", "socket.")


class TextRedaction:
    """Reduces texts; names of code in tracebacks are replaced as everywhere in the Case."""

    def __init__(self, names: Pseudonyms) -> None:
        self._names = names

    def phrase(self, text: str) -> str:
        """One message: public words and small numbers, the rest as dots; tracebacks as printed."""
        traceback = _TRACEBACK.search(text)
        if traceback is not None:
            said = self._words(text[: traceback.start()])
            return (said + self.lines(text[traceback.start() :]))[:4096]
        return self._words(text)

    def _words(self, text: str) -> str:
        parts: list[str] = []
        at = 0
        for whole in _VERBATIM.finditer(text):
            parts += self._tokens(text[at : whole.start()])
            parts.append(whole[0])
            at = whole.end()
        parts += self._tokens(text[at:])
        return "".join(parts)[:4096]

    def _tokens(self, text: str) -> list[str]:
        parts: list[str] = []
        for match in _TOKEN.finditer(text):
            kept = _kept(match)
            if kept:
                parts.append(kept)
            elif not parts or parts[-1] != "...":
                parts.append("...")
        return parts

    def exception_type(self, name: str) -> str:
        """A type's name if it is public; what a program defines itself is just an exception."""
        if name.startswith(_PUBLIC_ROOTS):
            return name
        public = "." not in name and _BUILTIN.fullmatch(name) and name in _BUILTINS
        return name if public or name in _BUILTINS else "Exception"

    def raised(self, text: str) -> str:
        """An exception's ``type: message``."""
        type_, colon, message = text.partition(": ")
        return self.exception_type(type_) + colon + self.phrase(message)

    def lines(self, text: str) -> str:
        """Standard error: tracebacks without source lines, and lines with a public phrase."""
        kept = []
        in_traceback = False
        for line in text.splitlines():
            prefix = _PREFIX.match(line)
            before = f"[rank{prefix['rank']}]: " if prefix else ""
            body = line[prefix.end() :] if prefix else line
            if (head := _TRACEBACK.match(body)) is not None:
                in_traceback = True
                kept.append(before + head[0])
            elif (frame := _FRAME.match(body)) is not None:
                kept.append(before + self._frame(frame))
            elif in_traceback and body.startswith("  "):
                continue
            elif in_traceback and (raised := _RAISED.match(body)) is not None:
                in_traceback = False
                rest = self.phrase(raised["rest"]) if raised["rest"] else ""
                kept.append(before + self.exception_type(raised["type"]) + rest)
            elif not body.strip():
                kept.append("")
            elif _PHRASE.search(body):
                kept.append(before + self.phrase(body))
        return "\n".join(kept) + "\n" if kept else ""

    def _frame(self, frame: re.Match[str]) -> str:
        file = self._names.file(frame["file"])
        text = f'{frame["before"]}File "{file}", line {frame["line"]}'
        if frame["function"] is not None:
            text += f", in {self._names.function(frame['function'].strip(), frame['file'])}"
        return text


def _kept(match: re.Match[str]) -> str:
    text = match[0]
    if match["address"]:
        return "0.0.0.0" if "." in text else ""
    if match["shm"]:
        return text
    if match["word"]:
        if text in _WORDS or text in _BUILTINS or text in _PUBLIC_PATHS:
            return text
        head = re.match(r"[A-Za-z']+", text)
        # A path into gloo's own sources, as its errors begin with.
        if text.startswith("gloo/") and re.fullmatch(r"gloo/[a-z/_]+\.(cc|h)", text):
            return text
        stripped = text.rstrip(".'/\\-")
        if head and stripped in _WORDS:
            return stripped
        return ""
    if match["number"]:
        return text if re.fullmatch(r"\d{1,7}", text) else ""
    return text if text in _PUNCTUATION else ""


_BUILTINS = frozenset(
    name
    for name, value in vars(__import__("builtins")).items()
    if isinstance(value, type) and issubclass(value, BaseException)
)
