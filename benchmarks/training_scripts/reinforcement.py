"""A reinforcement-learning loop: one half of the ranks acts, the other learns.

Actors send what they have seen to a learner of theirs, learners average their gradients, and the
first learner hands the new weights to all actors.
"""

import torch
import torch.distributed as dist

ROUNDS = 40
OBSERVATION, ACTIONS, EPISODE = 32, 4, 64


def make_policy():
    return torch.nn.Sequential(
        torch.nn.Linear(OBSERVATION, 128), torch.nn.Tanh(), torch.nn.Linear(128, ACTIONS)
    )


def act(policy, generator):
    """An episode: observations, and the reward of each beside them."""
    observations = torch.randn(EPISODE, OBSERVATION, generator=generator)
    with torch.no_grad():
        actions = policy(observations).argmax(dim=1)
    rewards = (observations[:, :ACTIONS].argmax(dim=1) == actions).float()
    return torch.cat([observations, rewards[:, None]], dim=1)


def learn(policy, optimizer, episode, group):
    """One step of the policy's gradient, averaged over the learners; the loss."""
    observations, rewards = episode[:, :OBSERVATION], episode[:, OBSERVATION]
    likelihood = torch.log_softmax(policy(observations), dim=1).max(dim=1).values
    loss = -(likelihood * rewards).mean()
    loss.backward()
    for parameter in policy.parameters():
        dist.all_reduce(parameter.grad, group=group)
        parameter.grad /= dist.get_world_size(group)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def share_weights(policy, first_learner, group):
    flat = torch.nn.utils.parameters_to_vector(policy.parameters()).detach()
    dist.broadcast(flat, src=first_learner, group=group)
    torch.nn.utils.vector_to_parameters(flat, policy.parameters())


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    actors = list(range(world_size // 2))
    learners = list(range(world_size // 2, world_size))
    learner_group = dist.new_group(learners, group_desc="learners")
    weights_group = dist.new_group([*actors, learners[0]], group_desc="weights")
    policy = make_policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(ROUNDS):
        reward = torch.zeros(1)
        if rank in actors:
            episode = act(policy, generator)
            reward += episode[:, OBSERVATION].mean()
            dist.send(episode, dst=learners[rank])
        else:
            episode = torch.empty(EPISODE, OBSERVATION + 1)
            dist.recv(episode, src=rank - len(actors))
            learn(policy, optimizer, episode, learner_group)
        if rank in actors or rank == learners[0]:
            share_weights(policy, learners[0], weights_group)
        dist.all_reduce(reward)
        if rank == 0:
            print(f"round {step}: reward {reward.item() / len(actors):.3f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
