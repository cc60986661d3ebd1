"""Clusters to read dumps on: one of this machine, or one whose scheduler has an address."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from hanglab.analyzer.flight_recorder.discovery import find_candidates
from hanglab.analyzer.flight_recorder.dump_input import carried
from hanglab.analyzer.flight_recorder.elsewhere import read_elsewhere
from hanglab.analyzer.flight_recorder.worker_pool import usable_cores
from hanglab.harness.cluster.dask_pool import DaskPool
from hanglab.harness.cluster.errors import ClusterError
from hanglab.harness.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    from distributed import Client

    from hanglab.harness.cluster.stored_dumps import StoredDumps

_ADDRESS = re.compile(r"(dask|tcp|tls)://[^/\s]+:\d+")
#: Seconds in which a scheduler answers, and has its first worker.
_PATIENCE_S = 10.0
#: Files by which a worker is asked if it sees the folder.
_LOOKED_AT = 3


@contextmanager
def reading_on(where: str, folder: Path, warn: Callable[[str], None]) -> Iterator[None]:
    """Until the context ends all dumps are read on the cluster.

    ``where`` is ``local`` or the address of a scheduler.  Where workers do not see the folder, its
    files are sent to them.  Raises UsageError, MissingExtra and ClusterError.
    """
    with _connected(where) as (client, workers):
        seen = _all_see(client, folder)
        if not seen:
            warn(f"the workers do not see {folder}, so its files are sent to them")
        with read_elsewhere(DaskPool(client, workers, None if seen else carried)):
            yield


@contextmanager
def fetching_on(where: str, stored: StoredDumps) -> Iterator[None]:
    """Like :func:`reading_on`, for dumps in a store: each worker fetches what it reads."""
    with (
        _connected(where) as (client, workers),
        read_elsewhere(DaskPool(client, workers, bring=stored)),
    ):
        yield


@contextmanager
def _connected(where: str) -> Iterator[tuple[Client, int]]:
    """A client, and how many workers there are."""
    if where != "local" and not _ADDRESS.fullmatch(where):
        raise UsageError(
            f"--on {where} is no cluster.", "Say local, or dask://HOST:PORT of a scheduler."
        )
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise MissingExtra(
            "--on needs Dask's distributed, which is not installed.",
            "pip install 'hanglab[scale]'",
        ) from error
    with _local() if where == "local" else _remote(where) as client:
        yield client, len(client.scheduler_info(n_workers=-1)["workers"])


@contextmanager
def _local() -> Iterator[Client]:
    """Workers of this machine, a process for each core.

    They listen on loopback, and by certificates of their own they know each other: whoever reaches
    a scheduler can run code, and other users reach this host's ports.
    """
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=usable_cores(),
            threads_per_worker=1,
            host="tls://127.0.0.1",
            security=True,
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@contextmanager
def _remote(where: str) -> Iterator[Client]:
    from distributed import Client

    address = where.replace("dask://", "tcp://")
    try:
        client = Client(address, timeout=_PATIENCE_S, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise ClusterError(
            f"No scheduler answers at {where}.", "Check the address, or leave --on out."
        ) from error
    except (TypeError, ValueError) as error:  # tls:// without certificates
        raise ClusterError(
            f"{where} cannot be connected to: {error}.",
            "docs/cluster.md says where Dask's TLS settings come from.",
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=_PATIENCE_S)
        except (OSError, TimeoutError) as error:
            raise ClusterError(
                f"The scheduler at {where} has no workers.", f"Start one: dask worker {address}"
            ) from error
        yield client


def _all_see(client: Client, folder: Path) -> bool:
    looked_at = [
        (str(one.path.absolute()), one.size) for one in islice(find_candidates(folder), _LOOKED_AT)
    ]
    try:
        return all(client.run(_sees, looked_at).values())
    except Exception as error:  # Dask hands on what a worker raised as a plain one
        raise ClusterError(
            f"The workers cannot be used: {error}.",
            "Check that this version of hanglab is installed where they run.",
        ) from error


def _sees(files: list[tuple[str, int]]) -> bool:
    """True where this worker has files of these names and sizes."""
    return all(os.path.isfile(path) and os.path.getsize(path) == size for path, size in files)
