"""A tiny language model under the Hugging Face Trainer, with a callback of the user's own."""

import tempfile

import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)


class Tokens(Dataset):
    def __init__(self, rows):
        self.rows = torch.randint(0, 64, (rows, 16), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        return {"input_ids": row, "labels": row}


class Drift(TrainerCallback):
    """Looks whether all ranks still have the same weights."""

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % 5 == 0:
            norm = sum(parameter.detach().square().sum() for parameter in model.parameters())
            highest, lowest = norm.clone(), norm.clone()
            dist.all_reduce(highest, op=dist.ReduceOp.MAX)
            dist.all_reduce(lowest, op=dist.ReduceOp.MIN)
            if state.is_world_process_zero:
                print(f"drift {(highest - lowest).item():.2e}")


def main():
    set_seed(0)
    torch.set_num_threads(1)
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        num_train_epochs=2,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        eval_strategy="epoch",
        save_strategy="no",
        logging_steps=10,
        disable_tqdm=True,
        report_to=[],
        use_cpu=True,
        ddp_backend="gloo",
    )
    config = GPT2Config(n_layer=1, n_head=2, n_embd=32, vocab_size=64, n_positions=32)
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=args,
        train_dataset=Tokens(320),
        eval_dataset=Tokens(32),
        callbacks=[Drift()],
    )
    trainer.train()
    metrics = trainer.evaluate()
    if args.process_index == 0:
        print(f"loss {metrics['eval_loss']:.3f}")


if __name__ == "__main__":
    main()
