"""Samples of real processes: limits, disks, sockets, and threads that the kernel keeps."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from conditions import wait_for

from hanglab.harness.capabilities import capability
from hanglab.recorder.agent.host import nccl_ras
from hanglab.recorder.agent.host import sampler as sampling
from hanglab.recorder.agent.host.sampler import HostSampler
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.host_records import Connection, ConnectionSample
from hanglab.recorder.case.reader import CaseReader
from hanglab.recorder.case.records import Clock, Python, RankProcess
from hanglab.recorder.system import sockets
from hanglab.recorder.system.file_systems import FileSystems, MountedFolder
from hanglab.recorder.system.process_limits import load_of
from hanglab.recorder.system.tcp_info import in_namespace_of


class Rank:
    """What the sampler asks of a rank."""

    attempt = 0

    def __init__(self, rank: int, pid: int, host: Path) -> None:
        self.rank = rank
        self.pid = pid
        self.folder = host / "ranks" / f"{rank}.0"
        self.process = RankProcess(pid, rank, None, Clock(0, 0), Python("3"))


@contextmanager
def program(text: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process that has said that it is ready."""
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_a_process_is_told_with_what_it_uses_of_its_limits() -> None:
    text = (
        "import resource, os, time\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "files = [open(os.devnull) for _ in range(50)]\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)"
    )
    with program(text) as process:
        load = load_of(3, 0, process.pid, sleeping=True)
        assert load is not None
        assert load.fd_limit == 64 and load.fds is not None and 50 <= load.fds <= 64
        assert load.processes_limit == resource.getrlimit(resource.RLIMIT_NPROC)[0]
        assert load.state in "RS" and load.threads == 1 and load.cpus
        assert load.run_s is not None and load.run_s > 0
        # It sleeps of its own will: no file keeps it.
        assert load.sleeping == []
    assert load_of(3, 0, process.pid, sleeping=True) is None


def test_a_read_that_does_not_come_back_names_the_call_and_the_file(tmp_path: Path) -> None:
    able = capability("private_storage")
    if not able.available:
        pytest.skip(able.reason)
    text = (
        f"import tempfile; tempfile.tempdir = {str(tmp_path)!r}\n"
        "from hanglab.harness.system.stalling_file import Storage\n"
        "storage = Storage(1 << 20)\n"
        "assert len(storage.file.read_bytes()) == 1 << 20\n"
        "storage.go_away()\n"
        "print('ready', flush=True)\n"
        "storage.file.read_bytes()"
    )
    with program(text) as process:
        wait_for(lambda: _sleeping(process.pid))
        thread = _sleeping(process.pid)[0]
        assert thread.tid == process.pid
        assert thread.target.endswith("/data") and thread.syscall in ("openat", "open", "read")
        rooms = FileSystems()
        began = time.monotonic()
        # The path is remembered from the system call's file only where it is open; its
        # folder is asked for through the process's own namespace.
        rooms._temporary[process.pid] = os.path.dirname(thread.target)
        wait_for(lambda: any(s.unanswered_s > 0.2 for s in rooms.spaces({0: process.pid})))
        spaces = rooms.spaces({0: process.pid})
        silent = [s for s in spaces if s.unanswered_s]
        assert [s.filesystem for s in silent] == ["fuse"]
        assert silent[0].path == os.path.dirname(thread.target)
        assert any(s.size_bytes for s in spaces), "a dead disk hides no other"
        assert time.monotonic() - began < 30, "nobody waited for it to answer"
        namespace = os.readlink(f"/proc/{process.pid}/ns/mnt")
        for other in (thread.target, f"{thread.target}.2", f"{thread.target}.3"):
            rooms._seen[process.pid]["file", MountedFolder(namespace, other)] = None
        rooms.spaces({0: process.pid})
        asking = [t.name for t in threading.enumerate() if t.name == "hanglab-room"]
        assert len(asking) == 2, "one for what does not answer, one for all else"
    assert process.returncode == -9


def test_a_path_that_lies_across_two_pages_is_told_whole(tmp_path: Path) -> None:
    fifo = tmp_path / "a" / "fifo"
    fifo.parent.mkdir()
    os.mkfifo(fifo)
    text = (
        "import ctypes, mmap, os\n"
        "pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)\n"
        f"path = {os.fsencode(fifo)!r} + bytes(1)\n"
        "at = mmap.PAGESIZE - len(path) // 2\n"
        "pages[at:at + len(path)] = path\n"
        "address = ctypes.addressof(ctypes.c_char.from_buffer(pages)) + at\n"
        "print('ready', flush=True)\n"
        "ctypes.CDLL(None).open(ctypes.c_void_p(address), os.O_RDONLY)"
    )
    with program(text) as process:
        wait_for(lambda: _sleeping(process.pid))
        assert [thread.target for thread in _sleeping(process.pid)] == [str(fifo)]


def _sleeping(pid: int) -> list[object]:
    load = load_of(0, 0, pid, sleeping=True)
    return [t for t in (load.sleeping if load else []) if t.target]


def test_the_room_is_that_of_the_rank_s_own_mounts(tmp_path: Path) -> None:
    able = capability("private_mounts")
    if not able.available:
        pytest.skip(able.reason)
    text = (
        "import os, time\n"
        "from hanglab.harness.system.mounts import mount_disk\n"
        f"folder = mount_disk(4, {str(tmp_path)!r})\n"
        "os.chdir(folder)\n"
        "open('full', 'wb').write(bytes(3 << 20))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)"
    )
    with program(text) as process:
        spaces = FileSystems().spaces({1: process.pid, 0: os.getpid()})
        mine = [s for s in spaces if s.path == str(tmp_path)]
        assert [(s.uses, s.ranks, s.filesystem) for s in mine] == [(["cwd"], [1], "tmpfs")]
        assert mine[0].size_bytes == 4 << 20 and mine[0].free_bytes == 1 << 20
        assert not (tmp_path / "full").exists(), "the mount is to be seen from nowhere else"


def test_both_ends_of_a_connection_with_what_was_not_read() -> None:
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen()
        client = stack.enter_context(socket.create_connection(server.getsockname()))
        far, _ = server.accept()
        stack.enter_context(far)
        client.sendall(b"x" * 5000)
        pid = os.getpid()
        address = f"127.0.0.1:{client.getsockname()[1]}"
        wait_for(
            lambda: sockets.from_proc(pid)[os.fstat(far.fileno()).st_ino].receive_queue == 5000
        )
        found, problems = sockets.sample([pid], capture=True)
        assert problems == [] and found[pid].source == "sock_diag"
        ends = {(c.local, c.state): c for c in found[pid].connections}
        mine = ends[address, "ESTABLISHED"]
        assert mine.sent_bytes == 5001 and mine.rtt_ms is not None and not mine.retransmitting
        other = next(c for c in found[pid].connections if c.remote == address)
        assert other.receive_queue == 5000 and other.received_bytes == 5000
        plain = sockets.from_proc(pid)
        row = plain[os.fstat(far.fileno()).st_ino]
        assert (row.local, row.remote, row.state) == (other.local, other.remote, "ESTABLISHED")
        assert row.rtt_ms is None


def carrying(second: float, sent: int | None) -> ConnectionSample:
    one = Connection("10.0.0.1:1", "10.0.0.2:2", "ESTABLISHED", sent_bytes=sent, received_bytes=0)
    return ConnectionSample(Clock(int(second * 1e9), int(second * 1e9)), [one])


@pytest.mark.parametrize(
    ("sent", "left"),
    [
        ([0, 10, 20, 30, 40, 50, 60, 60, 60, 60, 60, 60, 60, 60], [0, 3, 6, 13]),
        ([0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99, 99], [3, 6, 9, 12, 13]),
        ([None] * 14, [3, 6, 9, 12, 13]),
    ],
    ids=["idle from the seventh on", "idle at last", "not told"],
)
def test_samples_of_an_idle_rank_do_not_push_out_those_of_a_busy_one(
    sent: list[int | None], left: list[int]
) -> None:
    kept: deque[ConnectionSample] = deque(maxlen=5)
    for second, number in enumerate(sent):
        sockets.keep(kept, carrying(second, number))
    assert [sample.at.mono_ns // 10**9 for sample in kept] == left


def test_sockets_are_asked_for_in_the_rank_s_own_network() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to make a network namespace")
    text = (
        "import ctypes, socket, time\n"
        "assert ctypes.CDLL(None).unshare(0x40000000) == 0\n"
        "server = socket.socket(); server.bind(('0.0.0.0', 4711)); server.listen()\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)"
    )
    home = os.readlink("/proc/thread-self/ns/net")
    with program(text) as process:
        in_namespace_of(process.pid).close()
        found, problems = sockets.sample([process.pid, os.getpid()], capture=False)
        assert problems == []
        theirs = found[process.pid].connections
        assert [(c.local, c.state) for c in theirs] == [("0.0.0.0:4711", "LISTEN")]
    assert os.readlink("/proc/thread-self/ns/net") == home


def test_a_capture_writes_what_was_sampled_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody waits for the sample that is due next.
    monkeypatch.setattr(sampling, "INTERVAL_S", 600.0)
    monkeypatch.setattr(sampling, "_DEADLINE_S", 60.0)
    host = tmp_path / "hosts" / "here"
    misses: list[tuple[str, str, int | None]] = []
    sampler = HostSampler(host, tmp_path, lambda *miss: misses.append(miss))
    sampler.start()
    rank = Rank(0, os.getpid(), host)
    try:
        sampler.follow([rank])
        wait_for(lambda: (host / "samples.jsonl").exists())
        sampler.ask()
        sampler.wait()
        reader = CaseReader(tmp_path)
        samples = reader.hosts["here"].samples
        assert [s.capture for s in samples] == [False, True]
        assert samples[0].ranks[0].pid == os.getpid()
        assert all(s.memory_available_bytes for s in samples)
        (case,) = reader.ranks
        assert [s.capture for s in case.read(files.CONNECTIONS)][-1]
        # What had been in the group before it ended is still counted.
        sampler.follow([])
        sampler.ask()
        sampler.wait()
        last = CaseReader(tmp_path).hosts["here"].samples[-1]
        assert last.ranks == [] and bool(last.memory_groups) == bool(samples[0].memory_groups)
        assert reader.problems == []
    finally:
        sampler.close()
    assert not any(what == "samples.jsonl" for what, _, _ in misses), misses


def test_a_sampler_that_cannot_write_says_so_and_goes_on(tmp_path: Path) -> None:
    blocked = tmp_path / "hosts"
    blocked.write_text("in the way")
    misses: list[tuple[str, str, int | None]] = []
    sampler = HostSampler(blocked / "here", tmp_path, lambda *miss: misses.append(miss))
    sampler.start()
    try:
        sampler.follow([Rank(0, os.getpid(), blocked / "here")])
        sampler.ask()
        sampler.wait()
    finally:
        sampler.close()
    assert any(what == "samples.jsonl" and "could not" in why for what, why, _ in misses), misses


def test_another_process_of_the_job_is_asked_where_one_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All processes listen at one port: the first connection is the stopped one's."""
    monkeypatch.setattr(nccl_ras, "_GREETING_S", 0.2)
    monkeypatch.setattr(nccl_ras, "_PATIENCE_S", 60.0)
    met: list[socket.socket] = []

    def talk(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rwb") as stream:
            for line in stream:
                if line == b"VERBOSE STATUS\n":
                    stream.write(b'{"nccl_version": "2.29.7"}\n')
                    return
                stream.write(b"SERVER PROTOCOL 2\n" if line.startswith(b"CLIENT") else b"OK\n")
                stream.flush()

    def serve(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                met.append(server.accept()[0])
                if len(met) > 1:
                    threading.Thread(target=talk, args=(met[-1],)).start()

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        assert nccl_ras.ask(*server.getsockname()) == {"nccl_version": "2.29.7"}
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    met[0].close()


def test_nccl_is_asked_in_its_own_protocol() -> None:
    """No NCCL runs here: a server that speaks what its client speaks takes its place."""
    heard: list[str] = []

    def serve(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, connection.makefile("rwb") as stream:
            for line in stream:
                heard.append(line.decode().strip())
                if heard[-1] == "VERBOSE STATUS":
                    stream.write(b'{"nccl_version": "2.29.7", "communicators": []}\n')
                    stream.flush()
                    return
                stream.write(b"SERVER PROTOCOL 2\n" if len(heard) == 1 else b"OK\n")
                stream.flush()

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        port = server.getsockname()[1]
        address = nccl_ras.address_of({"NCCL_RAS_ADDR": f"127.0.0.1:{port}"})
        assert nccl_ras.ask(*address)["nccl_version"] == "2.29.7"
        thread.join(280)
    assert heard == ["CLIENT PROTOCOL 2", "TIMEOUT 1", "SET FORMAT json", "VERBOSE STATUS"]
    with pytest.raises(nccl_ras.NoAnswer, match="refused"):
        nccl_ras.ask("127.0.0.1", port)
    with pytest.raises(nccl_ras.NoAnswer, match="NCCL_RAS_ENABLE"):
        nccl_ras.address_of({"NCCL_RAS_ENABLE": "0"})
