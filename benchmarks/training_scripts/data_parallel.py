"""An image classifier under DistributedDataParallel: epochs with validation and checkpoints."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS = 6
CLASSES = 10


def build_model():
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(4),
        torch.nn.Flatten(),
        torch.nn.Linear(16 * 8 * 8, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, CLASSES),
    )


def make_data(samples, seed):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(samples, 3, 32, 32, generator=generator)
    labels = torch.randint(CLASSES, (samples,), generator=generator)
    return TensorDataset(images, labels)


def validate(model, loader):
    """The share of right answers over all ranks."""
    counts = torch.zeros(2)
    with torch.no_grad():
        for images, labels in loader:
            answers = model(images).argmax(dim=1)
            counts[0] += (answers == labels).sum()
            counts[1] += len(labels)
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def save(model, epoch, folder):
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), os.path.join(folder, f"epoch{epoch}.pt"))
    dist.barrier()


def train_epoch(model, loader, optimizer):
    losses = torch.zeros(1)
    for images, labels in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses += loss.detach()
    dist.all_reduce(losses, op=dist.ReduceOp.SUM)
    return losses.item() / len(loader) / dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    folder = tempfile.gettempdir()
    training = make_data(1024, seed=1)
    sampler = DistributedSampler(training, world_size, rank, shuffle=True)
    loader = DataLoader(training, batch_size=16, sampler=sampler)
    held_out = make_data(128, seed=2)
    validation = DataLoader(
        held_out, batch_size=16, sampler=DistributedSampler(held_out, world_size, rank)
    )
    model = DistributedDataParallel(build_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    settings = torch.tensor([0.01, 0.9])
    dist.broadcast(settings, src=0)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, loader, optimizer)
        accuracy = validate(model.module, validation)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss:.3f}, accuracy {accuracy:.3f}")
        save(model.module, epoch, folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
