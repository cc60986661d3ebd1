"""The Hugging Face Trainer with the straggler callback: first without a slow rank, then with."""

import os
import tempfile

import torch
from straggling import Worker, tell, turns_of
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

from hanglab.recorder.straggler.integration import Thresholds
from hanglab.recorder.straggler.transformers import StragglerDetectionCallback


class Rows(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, i):
        return {"x": torch.randn(32)}


class Model(torch.nn.Module):
    def __init__(self, turns):
        super().__init__()
        self.worker = Worker()
        self.worker.turns = turns

    def forward(self, x):
        return {"loss": self.worker(x).square().mean()}


def fit(name, fault, steps, interval):
    rank = int(os.environ["RANK"])
    callback = StragglerDetectionCallback(
        report_time_interval=interval,
        scores_to_compute=("relative_perf_scores",),
        thresholds=Thresholds(section_relative=0.2),
        stop_if_detected=True,
    )
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        max_steps=steps,
        per_device_train_batch_size=4,
        save_strategy="no",
        disable_tqdm=True,
        report_to=[],
        use_cpu=True,
        ddp_backend="gloo",
        logging_strategy="no",
    )
    trainer = Trainer(
        model=Model(turns_of(rank, fault)), args=args, train_dataset=Rows(), callbacks=[callback]
    )
    trainer.train()
    tell(name, rank, trainer.state.global_step, callback.watch)


if __name__ == "__main__":
    torch.set_num_threads(1)
    # Its interval in steps is measured: three times as many as 1 s took here.
    fit("sound", False, 240, 1.0)
    # A report takes five entries of each rank, which a crowded machine makes long.
    fit("slow", True, 400, 3.0)
