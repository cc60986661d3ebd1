"""Ring attention: each rank holds a part of the sequence, and keys and values go round."""

import torch
import torch.distributed as dist

STEPS = 40
WIDTH = 32
PART = 48


def pass_on(block, rank, world_size):
    """The block of the previous rank; this rank's goes to the next."""
    received = torch.empty_like(block)
    sending = dist.isend(block, (rank + 1) % world_size)
    receiving = dist.irecv(received, (rank - 1) % world_size)
    receiving.wait()
    sending.wait()
    return received


def ring_attention(query, key_value, rank, world_size):
    """Attention of this rank's queries to the keys of all ranks."""
    total = torch.zeros_like(query)
    weight = torch.zeros(len(query), 1)
    block = key_value.contiguous()
    for hop in range(world_size):
        key, value = block.chunk(2, dim=1)
        scores = torch.exp(query @ key.T / WIDTH)
        total = total + scores @ value
        weight = weight + scores.sum(dim=1, keepdim=True)
        if hop < world_size - 1:
            block = pass_on(block.detach(), rank, world_size)
    return total / weight


def gather_sequence(part, world_size):
    """The whole sequence, on every rank."""
    whole = torch.empty(world_size * len(part), part.shape[1])
    dist.all_gather_into_tensor(whole, part.contiguous())
    return whole


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    projection = torch.nn.Linear(WIDTH, 3 * WIDTH)
    optimizer = torch.optim.SGD(projection.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        part = torch.randn(PART, WIDTH, generator=generator)
        query, key_value = projection(part).split([WIDTH, 2 * WIDTH], dim=1)
        attended = ring_attention(query, key_value, rank, world_size)
        loss = attended.square().mean()
        loss.backward()
        for parameter in projection.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world_size
        optimizer.step()
        optimizer.zero_grad()
        if step % 5 == 4:
            whole = gather_sequence(attended.detach(), world_size)
            if rank == 0:
                print(f"step {step}: norm {whole.norm().item():.3f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
