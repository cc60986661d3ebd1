"""Analysis on Dask's workers against this analyzer's own pool, in one run.

    python benchmarks/cluster.py [--ranks 4096] [--rounds 3] [--workers 2]

Dumps are those of ``benchmarks/analyzer.py``, 2,000 entries a rank.  Both read them by turns, each
with as many processes, from files that lie in memory after the first round, which does not count.
The cluster is started before; what that takes is printed beside.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from analyzer_dumps import write_dumps

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.flight_recorder.elsewhere import read_elsewhere
from hanglab.analyzer.graph.dump_folder import wait_for_graph_of_folder
from hanglab.harness.cluster.dask_pool import DaskPool

CULPRIT = 11
#: Times that Dask may take as long.
LIMIT = 1.3


def analysed_s(folder: Path, workers: int) -> float:
    """Seconds from files to findings."""
    begun = time.perf_counter()
    graph, unusable = wait_for_graph_of_folder(folder, workers=workers)
    culprits = [rank for one in synchronization_findings(graph) for rank in one.culprits]
    assert (culprits, unusable) == ([CULPRIT], []), culprits
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    from distributed import Client, LocalCluster

    with tempfile.TemporaryDirectory(prefix="hanglab-bench-") as base:
        folder = Path(base) / "dumps"
        write_dumps(folder, "3d", options.ranks, CULPRIT)
        os.sync()
        begun = time.perf_counter()
        with (
            LocalCluster(
                n_workers=options.workers,
                threads_per_worker=1,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
            ) as cluster,
            Client(cluster) as client,
        ):
            client.wait_for_workers(options.workers)
            started_s = time.perf_counter() - begun
            pool = DaskPool(client, options.workers)
            own, dask = [], []
            for number in range(options.rounds + 1):
                own_s = analysed_s(folder, options.workers)
                with read_elsewhere(pool):
                    dask_s = analysed_s(folder, options.workers)
                if number:
                    own.append(own_s)
                    dask.append(dask_s)
    ratio = statistics.median(theirs / ours for theirs, ours in zip(dask, own, strict=True))
    print("| ranks | workers | own pool | Dask | ratio | limit | start of the cluster | load |")
    print("|" + "---|" * 8)
    print(
        f"| {options.ranks:,} | {options.workers} | {statistics.median(own):.2f} s "
        f"| {statistics.median(dask):.2f} s | {ratio:.2f} | {LIMIT} | {started_s:.1f} s "
        f"| {os.getloadavg()[0]:.1f} |"
    )


if __name__ == "__main__":
    main()
