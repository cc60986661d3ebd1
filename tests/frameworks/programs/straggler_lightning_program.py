"""Lightning's Trainer with the straggler callback: first without a slow rank, then with."""

import os
import tempfile

import lightning
import torch
from straggling import Worker, tell, turns_of
from torch.utils.data import DataLoader, TensorDataset

from hanglab.recorder.straggler.lightning import StragglerDetectionCallback


class Regression(lightning.LightningModule):
    def __init__(self, turns):
        super().__init__()
        self.worker = Worker()
        self.worker.turns = turns

    def training_step(self, batch, index):
        return self.worker(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def fit(name, fault, steps, interval):
    rank = int(os.environ["RANK"])
    callback = StragglerDetectionCallback(
        report_time_interval=interval,
        calc_relative_gpu_perf=True,
        calc_individual_gpu_perf=False,
        num_gpu_perf_scores_to_log=2,
        gpu_relative_perf_threshold=0.7,
        gpu_individual_perf_threshold=0.7,
        stop_if_detected=True,
        enable_ptl_logging=True,
        section_relative_perf_threshold=0.2,
    )
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_steps=steps,
        callbacks=[callback],
        logger=lightning.pytorch.loggers.CSVLogger(os.environ["LOGS"], name=name),
        log_every_n_steps=1,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tempfile.mkdtemp(),
    )
    rows = TensorDataset(torch.randn(8 * steps, 32))
    trainer.fit(Regression(turns_of(rank, fault)), DataLoader(rows, batch_size=4))
    tell(name, rank, trainer.global_step, callback.watch)


if __name__ == "__main__":
    torch.set_num_threads(1)
    # Its interval in steps is measured: three times as many as 1 s took here.
    fit("sound", False, 240, 1.0)
    # A report takes five entries of each rank, which a crowded machine makes long.
    fit("slow", True, 400, 3.0)
