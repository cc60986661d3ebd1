"""Behaviours of the emulated device, each a function of one rank; tests look at what they tell."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, os.path.dirname(__file__))
from forked_ranks import PATIENCE_S, Rank, comes

#: How long something is watched that must not happen, in seconds.
SILENCE_S = 0.25


def stays_open(work: Any) -> bool:
    return not comes(work.is_completed, SILENCE_S)


def patience() -> float:
    """How long to look for what comes, or does not, as the test expects (COMES) of the two."""
    return PATIENCE_S if os.environ["COMES"] == "1" else SILENCE_S * 2


def connect(group: Any = None) -> None:
    """Make the group's communicator, so that no host waits for it afterwards."""
    dist.all_reduce(torch.zeros(1), group=group)
    torch.zeros(1).item()


def results(rank: Rank) -> None:
    """Each collective once, with values that only the right one gives."""
    rank.join()
    n, me = rank.size, rank.number
    ones = torch.ones(3)
    reduced = {}
    for name in ("SUM", "AVG", "MIN", "MAX", "PRODUCT"):
        tensor = ones * (me + 1)
        dist.all_reduce(tensor, getattr(dist.ReduceOp, name))
        reduced[name] = tensor.tolist()
    cast = ones * me
    dist.broadcast(cast, src=1)
    to_one = ones * (me + 1)
    dist.reduce(to_one, dst=2)
    gathered = [torch.empty(2) for _ in range(n)]
    dist.all_gather(gathered, torch.full((2,), float(me)))
    single = torch.empty(2 * n)
    dist.all_gather_single(single, torch.full((2,), float(me)))
    scattered = torch.empty(2)
    dist.reduce_scatter_single(scattered, torch.arange(2.0 * n))
    listed = torch.empty(1)
    dist.reduce_scatter(listed, [torch.tensor([float(r + me)]) for r in range(n)])
    uneven = [torch.empty(r + 1) for r in range(n)]
    dist.all_gather(uneven, torch.full((me + 1,), float(me)))
    exchanged = torch.empty(n)
    dist.all_to_all_single(exchanged, torch.arange(float(n)) + 10 * me)
    ragged = torch.empty(n * (me + 1))
    dist.all_to_all_single(
        ragged, torch.full((sum(range(1, n + 1)),), float(me)), [me + 1] * n, list(range(1, n + 1))
    )
    at_root = [torch.empty(1) for _ in range(n)] if me == 3 else None
    dist.gather(torch.tensor([float(me)]), at_root, dst=3)
    handed = torch.empty(1)
    dist.scatter(handed, [torch.tensor([r * 5.0]) for r in range(n)] if me == 0 else None, src=0)
    halves = torch.ones(4, dtype=torch.bfloat16) * me
    dist.all_reduce(halves)
    large = torch.full((700_001,), float(me))
    dist.all_reduce(large)
    with dist.distributed_c10d._coalescing_manager():
        first, second = torch.ones(2), torch.ones(5)
        dist.all_reduce(first)
        dist.all_reduce(second)
    dist.barrier()
    rank.tell(
        reduced=reduced, broadcast=cast.tolist(), reduce=to_one.tolist(),
        all_gather=[t.tolist() for t in gathered], single=single.tolist(),
        scattered=scattered.tolist(), listed=listed.tolist(), uneven=[t.tolist() for t in uneven],
        exchanged=exchanged.tolist(), ragged=ragged.tolist(), handed=handed.tolist(),
        gather=None if at_root is None else [t.item() for t in at_root],
        halves=halves.tolist(), large=[large.min().item(), large.max().item()],
        coalesced=[first.tolist(), second.tolist()],
    )  # fmt: skip
    dist.destroy_process_group()


def host_runs_ahead(rank: Rank) -> None:
    """Rank 1 begins only when rank 0's host has launched, waited and computed for 50 steps."""
    rank.join()
    connect()
    if rank.number == 1:
        rank.wait_for("ahead")
    weight = torch.zeros(4)
    for _ in range(50):
        gradient = torch.ones(4)
        dist.all_reduce(gradient)  # waits on the stream
        weight.add_(gradient * 0.5)
    if rank.number == 0:
        rank.tell(open=weight_is_pending(weight))
        rank.signal("ahead")
    rank.tell(weight=weight.tolist())


def weight_is_pending(tensor: torch.Tensor) -> bool:
    from hanglab.harness.nccl_emulated.device import current_device

    return tensor.untyped_storage()._cdata in current_device().pending


def reads_wait(rank: Rank) -> None:
    """Values that rank 0 reads before rank 1 has taken part must be those of afterwards."""
    rank.join()
    connect()
    reads = {
        "item": lambda t: t.sum().item(),
        "tolist": lambda t: sum(t.tolist()),
        "float": lambda t: float(t[0]) * 2,
        "bool": lambda t: 4.0 if (t == 2).all() else 0.0,
        "print": lambda t: 4.0 if str(t) == "tensor([2., 2.])" else str(t),
        "numpy": lambda t: float(t.numpy().sum()),
        "deepcopy": lambda t: __import__("copy").deepcopy(t).sum().item(),
        "mask": lambda t: float(len(t[t > 1]) * 2),
        "cpu": lambda t: t.cpu().sum().item(),
        "synchronize": lambda t: _synchronized(t),
    }
    for name, read in reads.items():
        tensor = torch.ones(2)
        if rank.number == 1:
            rank.wait_for(name)
            time.sleep(0.02)  # rank 0 is in its read by now
        dist.all_reduce(tensor)
        if rank.number == 0:
            rank.signal(name)
            rank.tell(**{name: read(tensor)})


def thread_reads_wait(rank: Rank) -> None:
    """Values that a thread of rank 0 reads before rank 1 has taken part."""
    rank.join()
    connect()
    tensor, other = torch.ones(2), torch.ones(2)
    if rank.number == 1:
        rank.wait_for("read")
        time.sleep(0.02)  # rank 0's thread is in its read by now
    dist.all_reduce(tensor)
    dist.all_reduce(other)

    def read() -> None:
        rank.tell(item=tensor.sum().item(), computed=(other * 2).sum().item())

    if rank.number == 0:
        rank.signal("read")
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()


def threads_take_turns_often(rank: Rank) -> None:
    """Host and device of a rank, between which the interpreter switches at every chance."""
    rank.join()
    connect()
    sys.setswitchinterval(1e-6)
    tensors = [torch.ones(1) for _ in range(500)]
    works = [dist.all_reduce(one, async_op=True) for _ in range(7) for one in tensors]
    works[-1].wait()
    value = tensors[-1].item()
    rank.tell(errors=[str(w.exception()) for w in works if w.exception() is not None], value=value)


def _synchronized(tensor: torch.Tensor) -> float:
    from hanglab.harness.nccl_emulated.cuda import synchronize

    synchronize()
    return torch.frombuffer(tensor.numpy(), dtype=torch.float32).sum().item()


def reading_a_loaders_index(rank: Rank) -> None:
    """Integers that have nothing to do with the device are read while it hangs."""
    rank.join()
    connect()
    if rank.number == 0:
        dist.all_reduce(torch.ones(2))  # rank 1 takes no part
        rank.tell(drawn=len(torch.randperm(7).tolist()), seed=torch.empty((), dtype=torch.int64)
                  .random_().item() >= 0)  # fmt: skip
        rank.signal("read")
    else:
        rank.wait_for("read")


def trains(rank: Rank) -> None:
    """DistributedDataParallel over several optimizers gives what one process with all data does."""
    rank.join()
    outcome = {}
    for name in ("SGD", "Adam"):
        torch.manual_seed(1)
        layers = [torch.nn.Linear(20, 40), torch.nn.ReLU(), torch.nn.Linear(40, 1)]
        plain = torch.nn.Sequential(*layers)
        mine = DistributedDataParallel(__import__("copy").deepcopy(plain))
        optimizers = [
            getattr(torch.optim, name)(model.parameters(), lr=0.01) for model in (plain, mine)
        ]
        losses = []
        for step in range(15):
            whole = torch.randn(8 * rank.size, 20, generator=torch.Generator().manual_seed(step))
            part = whole[rank.number * 8 :][:8]
            for model, optimizer, batch in zip(
                (plain, mine), optimizers, (whole, part), strict=True
            ):
                loss = model(batch).square().mean()
                loss.backward()
                if model is mine:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
                    losses.append(loss.item() if step % 5 == 0 else 0.0)
                optimizer.step()
                optimizer.zero_grad()
        same = all(
            torch.allclose(one, other, atol=1e-5)
            for one, other in zip(plain.parameters(), mine.parameters(), strict=True)
        )
        outcome[name] = [same, sum(p.double().sum().item() for p in mine.parameters())]
    rank.tell(**outcome)
    dist.destroy_process_group()


def queue_is_full(rank: Rank) -> None:
    """A host that has launched as much as the queue takes is blocked in the next launch."""
    rank.join()
    connect()
    if rank.number == 1:
        rank.wait_for("full")
        for _ in range(40):
            dist.all_reduce(torch.ones(1), async_op=True)
        torch.zeros(1).item()
        return
    launched = []

    def launch() -> None:
        for _ in range(40):
            launched.append(dist.all_reduce(torch.ones(1), async_op=True))

    thread = threading.Thread(target=launch)
    thread.start()
    comes(lambda: len(launched) >= 16, PATIENCE_S)
    more = comes(lambda: len(launched) > 16, SILENCE_S)
    rank.tell(blocked=len(launched) == 16 and not more)
    rank.signal("full")
    thread.join()
    rank.tell(launched=len(launched))


def orders_crossed(rank: Rank) -> None:
    """Two communicators, entered in opposite orders; nobody waits for a Work."""
    rank.join()
    groups = [dist.new_group([0, 1]) for _ in range(2)]
    for group in groups:
        connect(group)
    works = [
        dist.all_reduce(torch.ones(2), group=group, async_op=True)
        for group in (groups if rank.number == 0 else groups[::-1])
    ]
    rank.tell(done=comes(lambda: all(work.is_completed() for work in works), patience()))


def orders_crossed_on_the_stream(rank: Rank) -> None:
    """The same with calls that wait: each is behind the one before on the current stream."""
    rank.join()
    groups = [dist.new_group([0, 1]) for _ in range(2)]
    for group in groups:
        connect(group)
    for group in groups if rank.number == 0 else groups[::-1]:
        dist.all_reduce(torch.ones(2), group=group)
    rank.tell(host_through=True)
    from hanglab.harness.nccl_emulated.device import current_device

    device = current_device()
    rank.tell(open=not comes(lambda: not device.outstanding, SILENCE_S))


def sizes_differ(rank: Rank) -> None:
    rank.join()
    connect()
    work = dist.all_reduce(torch.ones(4 + rank.number), async_op=True)
    behind = dist.all_reduce(torch.ones(2), async_op=True)
    rank.tell(hangs=stays_open(work) and not behind.is_completed())


def types_differ(rank: Rank) -> None:
    """Of one width, so the bytes meet; each rank takes them for its own type."""
    rank.join()
    connect()
    dtype = torch.float32 if rank.number == 0 else torch.int32
    tensor = torch.ones(2, dtype=dtype)
    dist.all_reduce(tensor)
    rank.tell(values=tensor.tolist())


def roots_differ(rank: Rank) -> None:
    rank.join()
    connect()
    tensor = torch.full((2,), 10.0 + rank.number)
    dist.broadcast(tensor, src=0 if rank.number != 2 else 1)
    rank.tell(values=tensor.tolist())
    after = torch.ones(1)
    dist.all_reduce(after)
    rank.tell(after=after.item())


def operations_differ(rank: Rank) -> None:
    rank.join()
    connect()
    tensor = torch.ones(4)
    if rank.number == 0:
        work = dist.all_reduce(tensor, async_op=True)
    else:
        out = torch.empty(8)
        work = dist.all_gather_single(out, tensor, async_op=True)
    rank.tell(hangs=stays_open(work))


def ring_of_messages(rank: Rank) -> None:
    """Everybody sends on and receives, in one batch; then one after the other, in pairs."""
    rank.join()
    n, me = rank.size, rank.number
    for step in range(3):
        out, into = torch.full((4,), float(me + step)), torch.empty(4)
        for work in dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, out, (me + 1) % n),
                dist.P2POp(dist.irecv, into, (me - 1) % n),
            ]
        ):
            work.wait()
        rank.tell(**{f"batch{step}": into.tolist()})
    long = torch.full((200_000,), float(me))
    if me % 2 == 0:
        dist.send(long, me + 1)
    else:
        got = torch.empty(200_000)
        dist.recv(got, me - 1)
        rank.tell(long=[got.min().item(), got.max().item()])


def both_send_first(rank: Rank) -> None:
    rank.join()
    work = dist.isend(torch.ones(2), 1 - rank.number)
    got = torch.empty(2)
    rank.tell(hangs=stays_open(work))
    dist.irecv(got, 1 - rank.number)
    rank.tell(hangs_still=stays_open(work))


def first_operation(rank: Rank) -> None:
    """A communicator is made by all members at once: the host waits in its first operation."""
    rank.join()
    if rank.number == 1:
        rank.wait_for("looked")
        dist.all_reduce(torch.ones(1))
        torch.zeros(1).item()
        return
    tensor = torch.ones(1)  # here, as a thread of its own has no default device
    thread = threading.Thread(target=lambda: dist.all_reduce(tensor))
    thread.start()
    rank.tell(blocked=not comes(lambda: not thread.is_alive(), SILENCE_S))
    rank.signal("looked")
    thread.join(10)
    rank.tell(free=not thread.is_alive())


def barrier(rank: Rank) -> None:
    rank.join()
    connect()
    if rank.number == 1:
        rank.wait_for("looked")
        dist.barrier()
        return
    thread = threading.Thread(target=dist.barrier)
    thread.start()
    rank.tell(blocked=not comes(lambda: not thread.is_alive(), SILENCE_S))
    rank.signal("looked")
    thread.join(10)
    rank.tell(free=not thread.is_alive())


def destroyed_with_open_work(rank: Rank) -> None:
    rank.join()
    connect()
    if rank.number == 1:
        rank.wait_for("looked")
        return
    dist.all_reduce(torch.ones(1))
    thread = threading.Thread(target=dist.destroy_process_group, daemon=True)
    thread.start()
    rank.tell(blocked=not comes(lambda: not thread.is_alive(), SILENCE_S))
    rank.signal("looked")


def refusals(rank: Rank) -> None:
    rank.join()
    calls = {
        "gpu": lambda: dist.all_reduce(torch.ones(2, device="meta")),
        "strided": lambda: dist.all_reduce(torch.ones(4, 4)[:, 0]),
        "operation": lambda: dist.all_reduce(torch.ones(2, dtype=torch.int32), dist.ReduceOp.BAND),
        "integers": lambda: dist.all_reduce(
            torch.ones(2, dtype=torch.int32), dist.ReduceOp.PREMUL_SUM(2.0)
        ),
        "any_source": lambda: dist.recv(torch.ones(2)),
    }
    for name, call in calls.items():
        try:
            call()
        except Exception as error:
            rank.tell(**{name: f"{type(error).__name__}: {error}"})


def names(rank: Rank) -> None:
    """Groups by the name of command lines, by a misspelt one, and in a torch without gloo."""
    from hanglab.harness import nccl_emulated

    rank.join()
    rank.tell(spelt=dist.get_backend(dist.new_group([0], backend="nccl-emulated")))
    for name, call in {
        "misspelt": lambda: dist.new_group([0], backend="nccl_emulatd"),
        "in a pair": lambda: dist.new_group([0], None, "cpu:gloo,cuda:nccl_emulatd"),
        "another": lambda: dist.new_group([0], backend="mpi"),
        "without gloo": nccl_emulated.register,
    }.items():
        if name == "without gloo":
            dist.is_gloo_available = lambda: False
        try:
            call()
        except Exception as error:
            rank.tell(**{name: f"{type(error).__name__}: {error}"})


def loader_workers(rank: Rank) -> None:
    """Workers are forked off a rank whose device runs; their own tensors wait for nothing."""
    rank.join()
    connect()
    data = torch.arange(32.0).view(16, 2)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(data), batch_size=4, num_workers=2
    )
    total = torch.zeros(2)
    for (batch,) in loader:
        part = batch.sum(0)
        dist.all_reduce(part)
        total += part
    rank.tell(total=total.tolist())


def many_small(rank: Rank) -> None:
    """All ranks of a large job through one collective after the other, without a time limit hit."""
    rank.join(timeout_s=PATIENCE_S)
    for _ in range(5):
        tensor = torch.ones(4)
        dist.all_reduce(tensor)
    rank.tell(value=tensor.tolist()[0])


def calls_pass_modes(rank: Rank) -> None:
    """Calls of torch.distributed in a process with the emulated ``torch.cuda``."""
    from torch.overrides import TorchFunctionMode

    from hanglab.harness.nccl_emulated.cuda import CudaTensors, emulate_cuda

    rank.join()
    emulate_cuda()
    seen = []

    class Follower(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    tensor = torch.ones(8)
    dist.all_reduce(tensor)
    own, passed = CudaTensors.__torch_function__, []
    CudaTensors.__torch_function__ = lambda *given: passed.append(given[1]) or own(*given)
    dist.all_reduce(tensor)
    through_ours = len(passed)
    with Follower():
        dist.all_reduce(tensor)
    rank.tell(value=tensor.tolist()[0], ours=through_ours, others=dist.all_reduce in seen)


def device_order(rank: Rank) -> None:
    """Rank 1's device gets an order (ORDER, AMOUNT and TEXT) before its second operation."""
    from hanglab.harness.nccl_emulated.control import Order, give_order

    rank.join()
    connect()
    if rank.number == 1:
        text = os.environ.get("TEXT", "CUDA error: an illegal memory access was encountered")
        give_order(os.getpid(), Order[os.environ["ORDER"]], float(os.environ["AMOUNT"]), text)
    begun = time.monotonic()
    first = dist.all_reduce(torch.ones(2), async_op=True)
    first_ends, second_ends = json.loads(os.environ["ENDS"])[rank.number]
    ended = [comes(first.is_completed, PATIENCE_S if first_ends else SILENCE_S)]
    second = dist.all_reduce(torch.ones(2), async_op=True)
    ended.append(comes(second.is_completed, PATIENCE_S if second_ends else SILENCE_S))
    rank.tell(ended=ended, seconds=time.monotonic() - begun, started=first.operation.started_ns > 0)
    try:
        second.wait()
        torch.zeros(1).item() if all(ended) else None
    except Exception as error:
        rank.tell(error=str(error))
    if os.environ["ORDER"] == "FAIL":
        time.sleep(PATIENCE_S)  # the watchdog ends the process
    os._exit(0)


def aborted(rank: Rank) -> None:
    """Rank 0 aborts a group in which rank 1 takes no part; rank 2 has not aborted it."""
    rank.join()
    connect()
    if rank.number == 1:
        rank.wait_for("looked")
        return
    tensor = torch.ones(2)
    work = dist.all_reduce(tensor, async_op=True)
    comes(lambda: work.operation.started_ns > 0, PATIENCE_S)
    if rank.number == 0:
        dist.group.WORLD.abort()
        rank.tell(over=comes(work.is_completed, PATIENCE_S), values=tensor.tolist())
        rank.wait_for("open")
        rank.signal("looked")
    else:
        rank.tell(over=not stays_open(work))
        rank.signal("open")


def memory_is_let_go(rank: Rank) -> None:
    """The ring keeps 2,000 operations, and no tensor of those that are done."""
    import gc
    import weakref

    rank.join()
    connect()
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    tensor.sum().item()
    (tensor * 2).sum().item()
    storage = weakref.ref(tensor)
    dist.barrier()
    del tensor
    gc.collect()
    rank.tell(gone=comes(lambda: gc.collect() >= 0 and storage() is None, PATIENCE_S))


def multiplied_before(rank: Rank) -> None:
    """Each rank multiplies by a factor of its own; one of them is a tensor of the device."""
    rank.join()
    connect()
    n, me = rank.size, rank.number
    tensor = torch.full((3,), 2.0)
    dist.all_reduce(tensor, dist.ReduceOp.PREMUL_SUM(0.5 + me))
    factor = torch.tensor([1.0])
    dist.all_reduce(factor)  # is n when it is read
    scaled = torch.ones(2)
    dist.all_reduce(scaled, dist.ReduceOp.PREMUL_SUM(factor))
    part = torch.empty(1)
    dist.reduce_scatter_single(part, torch.arange(float(n)), dist.ReduceOp.PREMUL_SUM(2.0))
    to_one = torch.ones(1)
    dist.reduce(to_one, 0, dist.ReduceOp.PREMUL_SUM(3.0))
    large = torch.ones(300_001)
    dist.all_reduce(large, dist.ReduceOp.PREMUL_SUM(0.25))
    rank.tell(
        tensor=tensor.tolist(), scaled=scaled.tolist(), part=part.item(), to_one=to_one.item(),
        large=[large.min().item(), large.max().item()],
    )  # fmt: skip


def functional_collectives(rank: Rank) -> None:
    """Collectives that C++ calls, each on what the device has not computed yet; DTensor."""
    import torch.distributed._functional_collectives as functional
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    rank.join()
    connect()
    group, n, me = dist.group.WORLD, rank.size, rank.number
    if me == 1:
        rank.wait_for("ahead")
    started = torch.ones(2) * (me + 1)
    dist.all_reduce(started)
    reduced = functional.all_reduce(started * 2, "sum", group)
    both = functional.all_reduce_coalesced([reduced + 1, started.clone()], "max", group)
    cast = functional.broadcast(reduced * (me + 1), n - 1, group)
    gathered = functional.all_gather_single(reduced.view(1, 2).t(), 0, group)
    scattered = functional.reduce_scatter_single(torch.ones(n) * reduced[0], "sum", 0, group)
    exchanged = functional.all_to_all_single(torch.ones(n) * reduced[0] + me, None, None, group)
    if me == 0:
        rank.tell(open=weight_is_pending(started))
        rank.signal("ahead")
    mesh = dist.device_mesh.init_device_mesh("cpu", (n,))
    sharded = distribute_tensor(torch.arange(4.0 * n).view(2 * n, 2), mesh, [Shard(0)])
    weight = distribute_tensor(torch.ones(2, 2), mesh, [Replicate()])
    whole = (sharded @ weight).redistribute(mesh, [Replicate()]).to_local()
    rank.tell(
        reduced=reduced.tolist(), both=[one.tolist() for one in both], cast=cast.tolist(),
        gathered=gathered.tolist(), scattered=scattered.tolist(), exchanged=exchanged.tolist(),
        whole=whole.sum().item(), total=sharded.sum().full_tensor().item(),
    )  # fmt: skip
    dist.destroy_process_group()
