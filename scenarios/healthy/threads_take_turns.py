"""Two threads of each rank use groups of their own, and hand a lock to each other at each step."""

import threading

import torch
import torch.distributed as dist

from hanglab.harness import Expect, scenario


@scenario(
    world_size=4,
    backends=("gloo",),
    expect=Expect.healthy(),
    reference="volcengine/verl#7423",
    packs="rl",
)
def threads_take_turns(job):
    everybody = list(range(job.world_size))
    groups = [dist.new_group(everybody, group_desc=name) for name in ("actor", "critic")]
    turns = [threading.Semaphore(1), threading.Semaphore(0)]
    model = torch.nn.Linear(64, 8)

    def train_critic():
        for _ in range(20):
            turns[1].acquire()
            dist.all_reduce(torch.ones(16), group=groups[1])
            turns[0].release()

    critic = threading.Thread(target=train_critic)
    critic.start()
    for _ in job.steps(20):
        turns[0].acquire()
        model(job.batch(64)).square().mean().backward()
        dist.all_reduce(model.weight.grad, group=groups[0])
        model.zero_grad()
        turns[1].release()
    critic.join()
