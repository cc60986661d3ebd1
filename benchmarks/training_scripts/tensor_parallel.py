"""Blocks split by tensor parallelism over pairs of ranks, and data parallelism across the pairs."""

import torch
import torch.distributed as dist

STEPS = 60
WIDTH = 64


class Enter(torch.autograd.Function):
    """Copies its input forward and sums the gradients of the pair backward."""

    @staticmethod
    def forward(context, hidden, group):
        context.group = group
        return hidden

    @staticmethod
    def backward(context, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient, group=context.group)
        return gradient, None


class Leave(torch.autograd.Function):
    """Sums the partial results of the pair forward."""

    @staticmethod
    def forward(context, partial, group):
        total = partial.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(context, gradient):
        return gradient, None


class Block(torch.nn.Module):
    def __init__(self, group):
        super().__init__()
        self.group = group
        part = 4 * WIDTH // dist.get_world_size(group)
        self.up = torch.nn.Linear(WIDTH, part)
        self.down = torch.nn.Linear(part, WIDTH, bias=False)

    def forward(self, hidden):
        inner = torch.relu(self.up(Enter.apply(hidden, self.group)))
        return hidden + Leave.apply(self.down(inner), self.group)


def make_groups(rank, world_size, pair=2):
    """The groups of this rank: its tensor parallel pair, and its peers of the other pairs."""
    tensor_group = data_group = None
    for first in range(0, world_size, pair):
        ranks = list(range(first, first + pair))
        group = dist.new_group(ranks, group_desc="tensor")
        if rank in ranks:
            tensor_group = group
    for offset in range(pair):
        ranks = list(range(offset, world_size, pair))
        group = dist.new_group(ranks, group_desc="data")
        if rank in ranks:
            data_group = group
    return tensor_group, data_group


def average_gradients(model, group):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, group=group)
        parameter.grad /= dist.get_world_size(group)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    tensor_group, data_group = make_groups(rank, world_size)
    torch.manual_seed(dist.get_rank(tensor_group))
    model = torch.nn.Sequential(*(Block(tensor_group) for _ in range(3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(dist.get_rank(data_group))
    for step in range(STEPS):
        hidden = torch.randn(128, WIDTH, generator=generator)
        loss = model(hidden).square().mean()
        loss.backward()
        average_gradients(model, data_group)
        optimizer.step()
        optimizer.zero_grad()
        if step % 5 == 4:
            shown = loss.detach().clone()
            dist.reduce(shown, dst=0)
            if rank == 0:
                print(f"step {step}: loss {shown.item() / world_size:.3f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
