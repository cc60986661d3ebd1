"""A mixture of experts, one expert a rank: tokens go to their expert and back by all-to-all."""

import torch
import torch.distributed as dist

STEPS = 48
WIDTH = 64
TOKENS = 64


def exchange_counts(counts):
    """The number of tokens that each rank sends to this one."""
    incoming = torch.empty_like(counts)
    dist.all_to_all_single(incoming, counts)
    return incoming


def dispatch(tokens, outgoing, incoming):
    """The tokens that go to this rank's expert, those of rank 0 first."""
    received = torch.empty(sum(incoming), WIDTH)
    dist.all_to_all_single(received, tokens, incoming, outgoing)
    return received


def combine(processed, outgoing, incoming):
    """The processed tokens, back at the rank that they came from."""
    returned = torch.empty(sum(outgoing), WIDTH)
    dist.all_to_all_single(returned, processed, outgoing, incoming)
    return returned


def route(router, tokens, experts):
    """Tokens sorted by expert, and how many go to each."""
    choice = router(tokens).argmax(dim=1)
    order = choice.argsort()
    return tokens[order], torch.bincount(choice, minlength=experts)


def balance(counts):
    """The load of all experts, and that of the busiest."""
    load = counts.clone()
    dist.all_reduce(load, op=dist.ReduceOp.SUM)
    return load.max().item() / load.float().mean().item()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    router = torch.nn.Linear(WIDTH, world_size)
    expert = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.ReLU(), torch.nn.Linear(4 * WIDTH, WIDTH)
    )
    optimizer = torch.optim.SGD([*router.parameters(), *expert.parameters()], lr=1e-2)
    generator = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        tokens = torch.randn(TOKENS, WIDTH, generator=generator)
        ordered, counts = route(router, tokens, world_size)
        outgoing = counts.tolist()
        incoming = exchange_counts(counts).tolist()
        received = dispatch(ordered, outgoing, incoming)
        processed = expert(received)
        returned = combine(processed.detach(), outgoing, incoming)
        loss = processed.square().sum() / TOKENS + returned.mean() * 0
        loss.backward()
        for parameter in router.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        busiest = balance(counts)
        if rank == 0:
            print(f"step {step}: the busiest expert has {busiest:.2f} of the mean")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
