"""A loop written by hand that watches for stragglers: first without a slow rank, then with."""

import torch
import torch.distributed as dist
from straggling import Worker, tell, turns_of
from torch.nn.parallel import DistributedDataParallel

from hanglab.recorder.straggler.loop import Thresholds, watch_stragglers


def fit(name, fault, steps, interval):
    rank = dist.get_rank()
    worker = Worker()
    worker.turns = turns_of(rank, fault)
    model = DistributedDataParallel(worker)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with watch_stragglers(
        report_time_interval=interval,
        scores_to_compute=("relative_perf_scores",),
        thresholds=Thresholds(section_relative=0.2),
        stop_if_detected=True,
    ) as watch:
        done = 0
        while done < steps:
            x = torch.randn(4, 32)
            with watch.section("forward"):
                loss = worker(x).square().mean()
            loss = loss + model(x).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            done += 1
            if watch.step():
                break
        tell(name, rank, done, watch)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    # Its interval in steps is measured: three times as many as 1 s took here.
    fit("sound", False, 240, 1.0)
    # A report takes five entries of each rank, which a crowded machine makes long.
    fit("slow", True, 400, 1.0)
    dist.destroy_process_group()
