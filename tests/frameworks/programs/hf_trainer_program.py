"""A tiny language model under the Hugging Face Trainer: torchrun starts it, or it spawns its ranks.

The argument names what is odd in this run; without one nothing is.
"""

import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

ODD = sys.argv[1] if len(sys.argv) > 1 else ""


class Tokens(Dataset):
    def __init__(self, rows):
        self.rows = torch.randint(0, 64, (rows, 16), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        if ODD == "slow_loader":
            time.sleep(0.15)
        if ODD == "long_validation" and len(self) == 16:
            time.sleep(0.5)
        return {"input_ids": self.rows[i], "labels": self.rows[i]}


class Watch(TrainerCallback):
    """What people hang into a Trainer: a look at the model, a file of their own."""

    trainer = None

    def on_step_end(self, args, state, control, **kwargs):
        if ODD == "evaluate_on_rank0" and state.is_world_process_zero and state.global_step == 8:
            self.trainer.evaluate()  # SEEN evaluate_on_rank0
        if ODD == "barrier_on_rank0" and state.is_world_process_zero and state.global_step == 8:
            self.trainer.save_model()
            dist.barrier()  # SEEN barrier_on_rank0
        if ODD == "slow_checkpoint" and state.is_world_process_zero and state.global_step == 8:
            write_slowly(kwargs["model"].state_dict(), os.path.join(args.output_dir, "mine.pt"))
        if ODD == "long_step" and state.global_step == 8:
            compute_for(8)


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


def rows_of(rank):
    # Every rank has read its own file, and one of them is shorter.
    return 112 if ODD == "uneven_data" and rank == 1 else 160


def main():
    set_seed(0)
    torch.set_num_threads(1)
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        num_train_epochs=1,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_steps=5,
        disable_tqdm=True,
        report_to=[],
        use_cpu=True,
        ddp_backend="gloo",
    )
    model = GPT2LMHeadModel(
        GPT2Config(n_layer=1, n_head=2, n_embd=32, vocab_size=64, n_positions=32)
    )
    watch = Watch()
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=Tokens(rows_of(args.process_index)),
        eval_dataset=Tokens(16),
        callbacks=[watch],
    )
    watch.trainer = trainer
    trainer.train()  # SEEN uneven_data
    trainer.save_model()


def spawned(rank, world_size):
    os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)
    os.environ["WORLD_SIZE"] = str(world_size)
    main()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main()
    else:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29514")
        mp.spawn(spawned, args=(2,), nprocs=2)
