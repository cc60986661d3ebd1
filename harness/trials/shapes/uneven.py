"""Messages that are not as many with each peer: work that is dealt, a loss that is sent ahead."""

from __future__ import annotations

from random import Random

from hanglab.harness.trials.programs import Program
from hanglab.harness.trials.shapes.building import Thread, Waits, program, world


def dealer_and_workers(random: Random) -> Program:
    """Rank 0 deals items to the others, to each as many as it takes, and collects what they make.

    Worker by worker, or an item each in turn; in each round the same shares, or such as data has.
    """
    size, rounds = random.randint(3, 5), random.randint(1, 6)
    steady, in_turn = random.random() < 0.6, random.random() < 0.5
    usual = [random.randint(1, 4) for _ in range(1, size)]
    waits: Waits = "host" if random.random() < 0.5 else "stream"
    threads = [Thread(random) for _ in range(size)]
    dealer = threads[0]
    for _ in range(rounds):
        shares = usual if steady else [random.randint(1, 4) for _ in usual]
        items = [(item, worker) for worker, share in enumerate(shares, 1) for item in range(share)]
        for _, worker in sorted(items) if in_turn else items:
            dealer.issue("1", "send", peer=worker, wait=waits, line=20)
            dealer.issue("1", "recv", peer=worker, wait=waits, line=21)
            thread = threads[worker]
            thread.issue("1", "recv", peer=0, wait=waits, line=24)
            thread.compute()
            thread.issue("1", "send", peer=0, wait=waits, line=26)
        for thread in threads:
            thread.issue("0", "all_reduce", wait="host", line=40)
    groups = {"0": world(size), "1": world(size, "work")}
    return program("dealer_and_workers", groups, [[thread] for thread in threads])


def pipeline_with_loss(random: Random) -> Program:
    """All forward, then all backward; sizes come ahead of the first microbatch, and a loss goes
    from the last stage to the first one in between."""
    stages, micro, steps = random.randint(2, 4), random.randint(2, 5), random.randint(1, 5)
    sizes, last = random.random() < 0.5, stages - 1
    waits: Waits = "host" if random.random() < 0.3 else "stream"
    threads = [Thread(random) for _ in range(stages)]
    for stage, thread in enumerate(threads):
        for _ in range(steps):
            for number in range(micro + sizes):
                numel = 4 if sizes and number == 0 else 64
                if stage > 0:
                    thread.issue("1", "recv", peer=stage - 1, numel=numel, wait=waits, line=20)
                thread.compute()
                if stage < last:
                    thread.issue("1", "send", peer=stage + 1, numel=numel, wait=waits, line=22)
            if stage == last:
                thread.issue("1", "send", peer=0, numel=1, wait=waits, line=24)
            if stage == 0:
                thread.issue("1", "recv", peer=last, numel=1, wait=waits, line=25)
            for _ in range(micro):
                if stage < last:
                    thread.issue("1", "recv", peer=stage + 1, wait=waits, line=30)
                thread.compute()
                if stage > 0:
                    thread.issue("1", "send", peer=stage - 1, wait=waits, line=32)
            thread.issue("0", "all_reduce", wait="host", line=40)
    groups = {"0": world(stages), "1": world(stages, "pipeline")}
    return program("pipeline_with_loss", groups, [[thread] for thread in threads])
