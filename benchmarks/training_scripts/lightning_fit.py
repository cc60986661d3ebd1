"""A regression under Lightning's Trainer, with validation and a metric that all ranks share."""

import os
import tempfile

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = torch.nn.Sequential(
            torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)
        )

    def training_step(self, batch, index):
        inputs, targets = batch
        loss = torch.nn.functional.mse_loss(self.network(inputs), targets)
        self.log("loss", loss)
        if index % 10 == 9:
            self.log("mean_loss", loss, sync_dist=True)
        return loss

    def validation_step(self, batch, index):
        inputs, targets = batch
        error = torch.nn.functional.l1_loss(self.network(inputs), targets)
        self.log("error", error, sync_dist=True)

    def on_train_epoch_end(self):
        norm = sum(parameter.square().sum() for parameter in self.parameters()).sqrt()
        norms = self.all_gather(norm)
        if self.global_rank == 0:
            print(f"norms {norms.tolist()}")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def make_loader(rows, seed):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(rows, 64, generator=generator)
    targets = torch.randn(rows, 1, generator=generator)
    return DataLoader(TensorDataset(inputs, targets), batch_size=16)


def main():
    torch.set_num_threads(1)
    lightning.seed_everything(0, verbose=False)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=int(os.environ["WORLD_SIZE"]),
        strategy="ddp",
        max_epochs=2,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        default_root_dir=tempfile.mkdtemp(),
    )
    trainer.fit(Regression(), make_loader(1280, 0), make_loader(128, 1))
    trainer.strategy.barrier()


if __name__ == "__main__":
    main()
