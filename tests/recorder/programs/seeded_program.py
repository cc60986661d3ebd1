"""A seeded job that prints its losses and a digest of its final weights."""

import hashlib
import os

import torch
import torch.distributed as dist

from hanglab import recorder

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group(
    "gloo", init_method=f"file://{os.environ['STORE']}", rank=rank, world_size=size
)
torch.manual_seed(7)
model = torch.nn.parallel.DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.1), torch.nn.Linear(32, 1))
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(64, 16), torch.randn(64, 1))
sampler = torch.utils.data.DistributedSampler(data)
for _ in range(2):
    for x, y in torch.utils.data.DataLoader(data, 8, sampler=sampler, num_workers=1):
        recorder.step()
        with recorder.section("step"):
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        dist.all_reduce(loss.detach())
        print(float(loss).hex())
weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
print(hashlib.sha256(weights).hexdigest())
if os.environ.get("SHOW"):
    print(os.environ.get("HANGLAB_RANK_PID", "unrecorded"))
