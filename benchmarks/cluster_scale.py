"""Dumps of 100,000 ranks on a Dask cluster: measured parts, and a model of 64 workers.

    python benchmarks/cluster_scale.py [--ranks 4096] [--workers 2]

Dumps of 2,000 entries a rank, those of ``benchmarks/analyzer.py``, never lie on a disk: who reads a
batch makes it first (the list of all ranks alone is 0.7 MB of each of 100,000 dumps), on the way by
which workers fetch dumps of a store.  Making them is timed apart, and does not count.

Processor time is what is measured: other programs change it little, and waits for them not at all.
The model: what workers do is divided by their number; behind it comes what the client does alone.
Fetching from a store is not in it.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

from analyzer_dumps import WRITTEN_NS, dump_of
from made_dumps import CULPRIT, LAYOUT, MadeDumps, spent_s

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.flight_recorder.assignment import Claim
from hanglab.analyzer.flight_recorder.elsewhere import read_elsewhere
from hanglab.analyzer.flight_recorder.formats import read_dump
from hanglab.analyzer.graph.dump_folder import wait_for_graph_of_folder
from hanglab.analyzer.matching.generations import summarise_generations
from hanglab.harness.cluster.dask_pool import DaskPool

#: Workers of the model.
MODELLED = (2, 8, 64)
#: Dumps by which the work on one is divided into its parts; the first teach what dumps look like.
SAMPLED, LEARNED = 600, 100


def shares(ranks: int) -> tuple[float, float, float]:
    """Parts of the work on one dump: unpickling, looking whose it is, and summarising it."""
    spent = [0.0, 0.0, 0.0]
    for rank in range(min(SAMPLED, ranks)):
        data = dump_of(LAYOUT, ranks, rank, CULPRIT)
        at = [time.process_time()]
        dump = read_dump(data, rank=rank, source=f"rank_{rank}", contained=True)
        at.append(time.process_time())
        Claim.of(dump, rank)
        at.append(time.process_time())
        summarise_generations(dump)
        at.append(time.process_time())
        if rank >= LEARNED:
            spent = [
                s + after - before for s, before, after in zip(spent, at, at[1:], strict=False)
            ]
    whole = sum(spent)
    return spent[0] / whole, spent[1] / whole, spent[2] / whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4096)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    from distributed import Client, LocalCluster

    size = len(dump_of(LAYOUT, options.ranks, 0, CULPRIT))
    with tempfile.TemporaryDirectory(prefix="hanglab-bench-") as base:
        for rank in range(options.ranks):
            file = Path(base) / f"rank_{rank}"
            file.touch()
            os.truncate(file, size)
            os.utime(file, ns=(WRITTEN_NS, WRITTEN_NS))
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
            before = client.run(spent_s)
            begun, own = time.perf_counter(), time.process_time()
            pool = DaskPool(client, options.workers, bring=MadeDumps(options.ranks))
            with read_elsewhere(pool):
                graph, unusable = wait_for_graph_of_folder(Path(base))
            findings = synchronization_findings(graph)
            wall_s, client_s = time.perf_counter() - begun, time.process_time() - own
            after = client.run(spent_s)
    culprits = [rank for one in findings for rank in one.culprits]
    assert (culprits, unusable) == ([CULPRIT], []), culprits
    made, read, united = (
        sum(after[worker][part] - before[worker][part] for worker in after) for part in range(3)
    )
    own_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    told(options.ranks, size, (read, united, client_s))
    print(
        f"\n{wall_s:.0f} s of wall time on {options.workers} workers at a load of "
        f"{os.getloadavg()[0]:.1f}, making dumps ({made:.0f} s of processor time) included; "
        f"the client, which holds the cluster's scheduler here, took {own_mib:,.0f} MiB at most."
    )


def told(ranks: int, size: int, spent: tuple[float, float, float]) -> None:
    """Prints the parts, and what they come to on more workers."""
    read, united, client = spent
    unpickling, claiming, summarising = shares(ranks)
    print(f"{ranks:,} ranks, 2,000 entries and {size / 1e6:.2f} MB each\n")
    print("| part | where | processor time | share |\n|---|---|---|---|")
    for name, where, seconds in (
        ("unpickling", "workers", read * unpickling),
        ("whose dump it is, and of when", "workers", read * claiming),
        ("summarising, and the way between processes", "workers", read * summarising),
        ("merging, and the way to the scheduler", "workers", united),
        ("the last merge, graph and verdict, and the scheduler", "client", client),
    ):
        print(f"| {name} | {where} | {seconds:.1f} s | {seconds / sum(spent):.0%} |")
    print("\n| workers | model |\n|---|---|")
    for number in MODELLED:
        print(f"| {number} | {(read + united) / number + client:.0f} s |")


if __name__ == "__main__":
    main()
