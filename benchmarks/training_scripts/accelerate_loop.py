"""A classifier in a loop of its own with Accelerate: accumulation, metrics, a checkpoint."""

import os
import tempfile

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 2
CLASSES = 4


def make_loader(rows, seed):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(rows, 64, generator=generator)
    labels = torch.randint(CLASSES, (rows,), generator=generator)
    return DataLoader(TensorDataset(inputs, labels), batch_size=16)


def evaluate(accelerator, model, loader):
    """The share of right answers over all ranks."""
    right, seen = 0, 0
    for inputs, labels in loader:
        with torch.no_grad():
            answers = model(inputs).argmax(dim=1)
        answers, labels = accelerator.gather_for_metrics((answers, labels))
        right += (answers == labels).sum().item()
        seen += len(labels)
    return right / seen


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, CLASSES)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer, training, validation = accelerator.prepare(
        model, optimizer, make_loader(1024, 0), make_loader(128, 1)
    )
    for epoch in range(EPOCHS):
        total = torch.zeros(1)
        for inputs, labels in training:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.detach()
        mean = accelerator.reduce(total, reduction="mean")
        accuracy = evaluate(accelerator, model, validation)
        accelerator.print(f"epoch {epoch}: loss {mean.item():.3f}, accuracy {accuracy:.3f}")
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            state = accelerator.unwrap_model(model).state_dict()
            torch.save(state, os.path.join(tempfile.gettempdir(), f"epoch{epoch}.pt"))
        accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
