"""A loader worker of rank 2 draws crops until one has an object in it, and its image has none."""

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from hanglab.harness import Cause, Expect, scenario

SIZE = 32
CROP = 16


class Detections(Dataset):
    """Images with a mask of their objects; ``empty`` is the index of one without any."""

    def __init__(self, count, empty):
        self.count = count
        self.empty = empty

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        image = torch.rand(SIZE, SIZE, generator=generator)
        objects = image > (2.0 if index == self.empty else 0.5)
        return crop_with_object(image, objects, generator).flatten()


def crop_with_object(image, objects, generator):
    """A square of the image with at least one pixel of an object in it."""
    while True:  # FAULT
        left, top = torch.randint(SIZE - CROP, (2,), generator=generator).tolist()  # SEEN
        window = slice(top, top + CROP), slice(left, left + CROP)  # SEEN
        if objects[window].any():  # SEEN
            return image[window]


@scenario(
    world_size=4,
    expect=Expect(Cause.LOADER_STUCK, culprits={2}, group="default_pg"),
    # A worker that computes is given ten times as long.
    hang_after=0.8,
    reference="pytorch/pytorch#33296",
    zoo="A3",
)
def augmentation_never_ends(job):
    empty = 5 * 8 + 7 if job.faulty and job.rank == 2 else None
    loader = DataLoader(Detections(12 * 8, empty), batch_size=8, num_workers=1)
    layers = [torch.nn.Linear(CROP * CROP, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _, batch in zip(job.steps(12), loader, strict=True):
        with job.section("forward_backward"):
            model(batch.to(job.device)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
