"""One rank that moves in ways that are easily taken for a hang; the argument says how."""

import atexit
import os
import sys
import time

import torch
import torch.distributed as dist

THRESHOLD = 1.0


def think(depth):
    """Moves from function to function, without any step, section or operation."""
    return sum(i * i for i in range(20_000)) if depth else rest()


def rest():
    return max(range(20_000))


def slow_step():
    until = time.monotonic() + 5 * THRESHOLD
    while time.monotonic() < until:
        think(1)
        think(0)


def native():
    """One call into native code that lasts longer than three times the threshold."""
    matrix = torch.randn(900, 900, dtype=torch.float64)
    size = 900
    begin = time.monotonic()
    matrix @ matrix
    product = time.monotonic() - begin
    # As many products in one call as take four times the threshold.
    count = max(1, int(4 * THRESHOLD / max(product, 1e-3)))
    batch = matrix.expand(count, size, size)
    begin = time.monotonic()
    torch.linalg.matrix_power(batch, 2)
    print(f"native for {time.monotonic() - begin:.1f} s", file=sys.stderr)


def checkpoint():
    """Writes slowly, in one function, as to a disk that is shared with others."""
    with open(os.environ["CHECKPOINT"], "wb") as file:
        until = time.monotonic() + 4 * THRESHOLD
        while time.monotonic() < until:
            file.write(b"x" * 65536)
            file.flush()
            time.sleep(0.3)


def take_down():
    """Keeps the interpreter busy at its end, as taking much apart does."""
    until = time.monotonic() + 8 * THRESHOLD
    while time.monotonic() < until:
        pass


def ending():
    atexit.unregister(take_down)
    atexit.register(take_down)


if __name__ == "__main__":
    torch.set_num_threads(1)
    store = f"file://{os.environ['STORE']}"
    dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    for _ in range(2):
        dist.all_reduce(torch.ones(4))
        ways = {"step": slow_step, "native": native, "checkpoint": checkpoint, "ending": ending}
        ways[sys.argv[1]]()
    dist.destroy_process_group()
    print("done")
