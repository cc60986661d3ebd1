"""A small network under Lightning's Trainer: torchrun starts it, or Lightning spawns its ranks.

The argument names what is odd in this run; without one nothing is.
"""

import os
import sys
import tempfile
import time

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

ODD = sys.argv[1] if len(sys.argv) > 1 else ""


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = torch.nn.Sequential(
            torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)
        )

    def training_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.network(x), y)
        if ODD == "log_on_rank1" and self.global_rank == 1 and index == 8:
            self.log("surprise", loss, sync_dist=True)  # SEEN log_on_rank1
        if ODD == "long_step" and index == 8:
            compute_for(8)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        if ODD == "long_validation" and index < 2:
            compute_for(4)
        self.log("val_loss", torch.nn.functional.mse_loss(self.network(x), y), sync_dist=True)

    def on_train_batch_end(self, outputs, batch, index):
        folder = self.trainer.default_root_dir
        if ODD == "save_on_rank0" and self.trainer.is_global_zero and index == 8:
            self.trainer.save_checkpoint(os.path.join(folder, "mine.ckpt"))  # SEEN save_on_rank0
        if ODD == "slow_checkpoint" and self.trainer.is_global_zero and index == 8:
            write_slowly(self.state_dict(), os.path.join(folder, "mine.pt"))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def smooth(a):
    return torch.tanh(a @ a / 16)


def sharpen(a):
    return a - a.mean(0) + torch.sin(a @ a.T / 16)


def compute_for(seconds):
    # Real work, in which nothing but the function changes.
    end = time.monotonic() + seconds
    a = torch.randn(256, 256)
    while time.monotonic() < end:
        for _ in range(40):
            a = smooth(a)
        for _ in range(40):
            a = sharpen(a) / 4


def write_slowly(state, path):
    with open(path, "wb") as file:
        for _ in range(40):
            file.write(os.urandom(1 << 18))
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.2)
        torch.save(state, file)


def collate(rows):
    if ODD == "slow_loader":
        time.sleep(0.5)
    return [torch.stack(column) for column in zip(*rows, strict=True)]


def loader(rows, seed):
    generator = torch.Generator().manual_seed(seed)
    data = TensorDataset(torch.randn(rows, 32, generator=generator), torch.randn(rows, 1))
    return DataLoader(data, batch_size=4, collate_fn=collate)


def main():
    torch.set_num_threads(1)
    lightning.seed_everything(0)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp" if "RANK" in os.environ else "ddp_spawn",
        max_epochs=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        default_root_dir=tempfile.mkdtemp(),
    )
    trainer.fit(Regression(), loader(160, 0), loader(16, 1))


if __name__ == "__main__":
    main()
