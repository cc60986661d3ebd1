"""A pipeline of one stage a rank: microbatches forward, then backward, then the optimizer."""

import torch
import torch.distributed as dist

STEPS = 30
MICROBATCHES = 4
WIDTH = 64
ROWS = 16


class Stage(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.ReLU(), torch.nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, hidden):
        return hidden + self.layers(hidden)


def receive_forward(rank):
    hidden = torch.empty(ROWS, WIDTH)
    dist.recv(hidden, src=rank - 1, tag=1)
    return hidden.requires_grad_()


def receive_backward(rank):
    gradient = torch.empty(ROWS, WIDTH)
    dist.recv(gradient, src=rank + 1, tag=2)
    return gradient


def run_step(stage, rank, last, batches):
    """One pass of all microbatches; the loss on the last stage, zero elsewhere."""
    inputs, outputs = [], []
    loss = torch.zeros(1)
    for microbatch in range(MICROBATCHES):
        hidden = batches[microbatch] if rank == 0 else receive_forward(rank)
        output = stage(hidden)
        if rank < last:
            dist.send(output.detach(), dst=rank + 1, tag=1)
        inputs.append(hidden)
        outputs.append(output)
    for microbatch in range(MICROBATCHES):
        if rank == last:
            error = outputs[microbatch].square().mean()
            error.backward()
            loss += error.detach()
        else:
            gradient = receive_backward(rank)
            outputs[microbatch].backward(gradient)
        if rank > 0:
            dist.send(inputs[microbatch].grad, dst=rank - 1, tag=2)
    return loss


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    torch.manual_seed(rank)
    stage = Stage()
    optimizer = torch.optim.SGD(stage.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(0)
    for step in range(STEPS):
        batches = torch.randn(MICROBATCHES, ROWS, WIDTH, generator=generator)
        loss = run_step(stage, rank, last, batches)
        optimizer.step()
        optimizer.zero_grad()
        dist.broadcast(loss, src=last)
        if rank == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
