"""Analysis on a Dask cluster: a real scheduler, real worker processes, and one that is killed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.flight_recorder.dump_input import carried
from hanglab.analyzer.flight_recorder.elsewhere import read_elsewhere
from hanglab.analyzer.flight_recorder.worker_pool import Limits
from hanglab.analyzer.program.job_dumps import JobOptions
from hanglab.harness.cli import main
from hanglab.harness.cluster.connection import _local, reading_on
from hanglab.harness.cluster.dask_pool import DaskPool
from hanglab.harness.cluster.errors import ClusterError
from tests.harness.dump_folders import dumps

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
RANKS = 96


@pytest.fixture(scope="module")
def cluster() -> Iterator[object]:
    """Two worker processes of one thread each.

    So long after a worker is lost Dask looks whether it is there, and else gives it up: by default
    after 15 s, when the next test may have killed it again.
    """
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as made,
    ):
        yield made


@pytest.fixture
def client(cluster: object) -> Iterator[object]:
    with distributed.Client(cluster) as made:
        made.wait_for_workers(2)
        yield made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dumps of so many ranks that they are summarised where they are read."""
    options = JobOptions(RANKS, "3d", "skip", operations=60)
    return dumps(tmp_path_factory.mktemp("jobs") / "skip", options)


def told(path: Path) -> bytes:
    return analyze(path).to_json()


class HeardPool(DaskPool):
    """A pool of which each answer is heard before it is used, and what it is asked to unite."""

    hear: Callable[[], object] = staticmethod(lambda: None)
    united: Callable[[], object] = staticmethod(lambda: None)

    def _answers(self, items: Any, limits: Any, read: Any) -> Iterator[tuple[int, Any]]:
        for answer in super()._answers(items, limits, read):
            self.hear()
            yield answer

    def unite(self, unite: Any, numbers: Any) -> Any:
        self.united()
        return super().unite(unite, numbers)


def heard_by(client: object, hear: Callable[[], object], workers: int = 2) -> HeardPool:
    pool = HeardPool(client, workers)  # type: ignore[arg-type]
    pool.hear = hear  # type: ignore[method-assign]
    return pool


@pytest.mark.parametrize("fault", ["none", "stop", "p2p_deadlock", "unmatched"])
def test_verdicts_are_those_of_one_process(client: object, tmp_path: Path, fault: str) -> None:
    options = JobOptions(RANKS, "3d", fault, operations=60)
    path = dumps(tmp_path / fault, options)
    alone, heard = told(path), []
    with read_elsewhere(heard_by(client, lambda: heard.append(1))):
        assert told(path) == alone
    assert heard


def test_a_worker_that_is_killed_costs_its_part_again_and_nothing_else(
    client: object, folder: Path
) -> None:
    alone = told(folder)
    pids = client.run(os.getpid)  # type: ignore[attr-defined]
    killed: list[int] = []

    def kill_one() -> None:
        if not killed:
            killed.append(next(iter(pids.values())))
            os.kill(killed[0], signal.SIGKILL)

    with read_elsewhere(heard_by(client, kill_one)):
        assert told(folder) == alone
    assert killed
    client.wait_for_workers(2)  # type: ignore[attr-defined]
    assert killed[0] not in client.run(os.getpid).values()  # type: ignore[attr-defined]


@pytest.mark.slow
def test_what_a_killed_worker_kept_is_made_again_before_it_is_united(
    client: object, folder: Path
) -> None:
    alone = told(folder)
    pids = client.run(os.getpid)  # type: ignore[attr-defined]
    pool, united = HeardPool(client, 2), []  # type: ignore[arg-type]

    def kill_one() -> None:
        united.append(1)
        os.kill(next(iter(pids.values())), signal.SIGKILL)

    pool.united = kill_one  # type: ignore[method-assign]
    with read_elsewhere(pool):
        assert told(folder) == alone
    assert united == [1]
    client.wait_for_workers(2)  # type: ignore[attr-defined]


def test_two_jobs_in_a_folder_are_united_each_by_itself(
    client: object, folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "both" / "first")
    later = dumps(tmp_path / "later", JobOptions(2 * RANKS, "3d", "stop", operations=60))
    shutil.copytree(later, tmp_path / "both" / "second")
    alone, united = told(tmp_path / "both"), []
    pool = HeardPool(client, 2)  # type: ignore[arg-type]
    pool.united = lambda: united.append(1)  # type: ignore[method-assign]
    with read_elsewhere(pool):
        assert told(tmp_path / "both") == alone
    assert united == [1, 1]


def test_files_that_workers_do_not_see_are_sent_to_them(client: object, folder: Path) -> None:
    """By their bytes: a path that is of this test alone does not reach the workers."""
    alone, seen = told(folder), []

    def carry(file: object) -> object:
        sent = carried(file)  # type: ignore[arg-type]
        seen.append(sent.path)
        return sent

    with read_elsewhere(DaskPool(client, 2, carry)):
        assert told(folder) == alone
    assert len(seen) >= RANKS and set(seen) == {None}


def test_a_file_that_is_no_dump_is_told_as_in_one_process(
    client: object, folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "with_foreign")
    whole = sorted((tmp_path / "with_foreign").iterdir())
    whole[3].write_bytes(whole[3].read_bytes()[:2000])
    (tmp_path / "with_foreign" / "rank_500").write_bytes(b"\x80\x04cos\nsystem\n.")
    alone = told(tmp_path / "with_foreign")
    for carry in (None, carried):
        with read_elsewhere(DaskPool(client, 2, carry)):
            assert told(tmp_path / "with_foreign") == alone


def test_the_command_says_the_same_on_a_cluster(
    cluster: object, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", str(folder), "--json"]) == 0
    alone = capfd.readouterr().out
    address = cluster.scheduler_address.replace("tcp://", "dask://")  # type: ignore[attr-defined]
    assert main(["analyze", str(folder), "--json", "--on", address]) == 0
    assert capfd.readouterr().out == alone


@pytest.mark.slow
def test_a_cluster_of_this_machine_ends_with_the_command(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", str(folder), "--json"]) == 0
    alone = capfd.readouterr().out
    assert main(["analyze", str(folder), "--json", "--on", "local"]) == 0
    assert capfd.readouterr().out == alone


def test_a_neighbour_gets_nothing_from_a_cluster_of_this_machine() -> None:
    """Who reaches the port without the cluster's own certificates is not let in."""
    with _local() as client:
        protocol, _, place = client.scheduler.address.partition("://")
        host, _, port = place.partition(":")
        assert (protocol, host) == ("tls", "127.0.0.1")
        stranger = ssl.create_default_context()
        stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection((host, int(port)), 60) as plain,
            stranger.wrap_socket(plain) as encrypted,
            pytest.raises((ssl.SSLError, ConnectionResetError)),
        ):
            encrypted.recv(1)
        assert client.submit(os.getpid).result() != os.getpid()


def test_workers_that_do_not_see_the_folder_are_told_of(
    client: object, folder: Path, monkeypatch: pytest.MonkeyPatch, cluster: object
) -> None:
    """Workers on another machine: here the folder has gone from their sight, as it is moved."""
    said: list[str] = []
    address = cluster.scheduler_address  # type: ignore[attr-defined]
    monkeypatch.setattr("hanglab.harness.cluster.connection._sees", _sees_nothing)
    alone = told(folder)
    with reading_on(address, folder, said.append):
        assert told(folder) == alone
    assert said == [f"the workers do not see {folder}, so its files are sent to them"]


def _sees_nothing(files: list[tuple[str, int]]) -> bool:
    return False


def test_a_scheduler_that_is_gone_is_a_sentence(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hanglab.harness.cluster.connection._PATIENCE_S", 1.0)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        where = f"dask://127.0.0.1:{unused.getsockname()[1]}"
        assert main(["analyze", str(folder), "--on", where]) == 4
    assert f"hanglab: No scheduler answers at {where}." in capfd.readouterr().err
    assert main(["analyze", str(folder), "--on", "somewhere"]) == 64
    assert "--on somewhere is no cluster." in capfd.readouterr().err


def test_a_cluster_that_is_lost_in_the_middle_is_a_sentence(folder: Path) -> None:
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
    ) as short:
        with distributed.Client(short) as lost:
            pool = heard_by(lost, short.close, 1)
            with read_elsewhere(pool), pytest.raises(ClusterError, match="lost in the middle"):
                told(folder)


def _kill_worker(item: int) -> None:
    os.kill(os.getppid(), signal.SIGKILL)


@pytest.mark.slow
def test_what_kills_its_worker_each_time_is_a_sentence(client: object) -> None:
    pool = DaskPool(client, 2)  # type: ignore[arg-type]
    with pytest.raises(ClusterError, match="lost in the middle"):
        list(pool.run(_kill_worker, [1], lambda item: Limits(60.0, 1 << 30)))


def test_workers_without_hanglab_are_a_sentence(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Workers of an environment of their own, in which nobody has installed it."""
    without = (
        "import sys; sys.modules['hanglab'] = None; "
        "from distributed.cli.dask_worker import main; main()"
    )
    with distributed.LocalCluster(
        n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0"
    ) as alone:
        worker = subprocess.Popen(
            [sys.executable, "-c", without, alone.scheduler_address, "--no-nanny"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            alone.wait_for_workers(1)
            where = alone.scheduler_address.replace("tcp://", "dask://")
            assert main(["analyze", str(folder), "--on", where]) == 4
        finally:
            worker.kill()
            worker.wait()
    said = capfd.readouterr().err
    assert "hanglab: The workers cannot be used: ModuleNotFoundError" in said
    assert "Check that this version of hanglab is installed where they run." in said


def test_tls_without_certificates_is_a_sentence(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", str(folder), "--on", "tls://127.0.0.1:1"]) == 4
    assert "hanglab: tls://127.0.0.1:1 cannot be connected to: " in capfd.readouterr().err
