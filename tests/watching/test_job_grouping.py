"""Ranks of a host, joined into jobs: processes in networks and containers of their own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conditions import wait_for
from rank_containers import Container, Machine, Network, Rank, machine, needs_namespaces

from hanglab.harness.recording import job_grouping
from hanglab.harness.recording.job_grouping import JobGrouping
from hanglab.harness.recording.running_jobs import (
    NoSuchProcess,
    ranks_at,
    ranks_of,
    recorded_case,
)
from hanglab.recorder.attach.tree import FoundRank

pytestmark = needs_namespaces
__all__ = ["machine"]

_PORT = 29500
#: Of a job of two, whose store is found by a name that only its own network knows.
_NAMED = {"WORLD_SIZE": 2, "MASTER_ADDR": "trainer-0", "MASTER_PORT": _PORT}


def jobs(*ranks: Rank, grouping: JobGrouping | None = None) -> list[set[int]]:
    """Processes of each job, in the order of their lowest."""
    groups = (grouping or JobGrouping()).group([rank.found for rank in ranks]).values()
    return sorted(({rank.pid for rank in group} for group in groups), key=min)


def pids(*ranks: Rank) -> set[int]:
    return {rank.pid for rank in ranks}


def pair(machine: Machine, network: Network, *addresses: str) -> list[Container]:
    """Containers in a network."""
    containers = [machine.container() for _ in addresses]
    for container, address in zip(containers, addresses, strict=True):
        network.join(container, address)
    return containers


def serve(rank: Rank, address: str) -> None:
    """Serves the job's store, and is its own first client."""
    rank.do("serve", address, _PORT)
    rank.meet(rank, address, _PORT)


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1", "::1"])
def test_two_jobs_that_meet_on_the_loopback_of_their_own_containers(
    machine: Machine, address: str
) -> None:
    """Of each one rank is left, and both say the very same."""
    words = {**_NAMED, "MASTER_ADDR": address}
    here, there = (machine.container().rank(rank, **words) for rank in (0, 1))
    for one in (here, there):
        serve(one, address)
    assert jobs(here, there) == sorted([pids(here), pids(there)], key=min)


def test_a_name_joins_nobody_until_they_are_connected_and_a_cut_parts_nobody_then(
    machine: Machine,
) -> None:
    first, second = pair(machine, machine.network(), "10.9.0.1", "10.9.0.2")
    zero, one = first.rank(0, **_NAMED), second.rank(1, **_NAMED)
    grouping = JobGrouping()
    zero.do("serve", "10.9.0.1", _PORT)
    assert len(jobs(zero, one, grouping=grouping)) == 2
    one.meet(zero, "10.9.0.1", _PORT)
    # It looks again when the first look has been worth it.
    wait_for(lambda: jobs(zero, one, grouping=grouping) == [pids(zero, one)], "the job")
    assert {rank.pid for rank in ranks_of(one.pid)} == pids(zero, one)
    one.do("drop")
    zero.do("drop")
    assert jobs(zero, one, grouping=grouping) == [pids(zero, one)]
    assert len(jobs(zero, one)) == 2, "who comes now sees nothing of it"
    assert {rank.pid for rank in ranks_at([one.pid, zero.pid])} == pids(zero, one)


def test_workers_of_a_store_on_another_host_are_one_job(machine: Machine) -> None:
    """Neither calls the other; what serves the store is no rank of theirs."""
    network = machine.network()
    store, *others = pair(machine, network, "10.9.0.1", "10.9.0.2", "10.9.0.3")
    words = {**_NAMED, "WORLD_SIZE": 8}
    server = store.rank(None)
    server.do("serve", "10.9.0.1", _PORT)
    ranks = [container.rank(rank, **words) for rank, container in zip((3, 5), others, strict=True)]
    for rank in ranks:
        rank.meet(server, "10.9.0.1", _PORT)
    assert jobs(*ranks) == [pids(*ranks)]


def test_two_jobs_in_private_networks_with_the_same_addresses(machine: Machine) -> None:
    """As two projects of docker compose on two daemons: every word and every address is equal."""
    both = []
    for _ in range(2):
        first, second = pair(machine, machine.network(), "10.9.0.1", "10.9.0.2")
        zero, one = first.rank(0, **_NAMED), second.rank(1, **_NAMED)
        serve(zero, "10.9.0.1")
        one.meet(zero, "10.9.0.1", _PORT)
        both.append((zero, one))
    everybody = [rank for job in both for rank in job]
    assert jobs(*everybody) == sorted((pids(*job) for job in both), key=min)
    # What a doubt leaves alone is captured as what it is.
    assert {rank.pid for rank in ranks_of(both[0][1].pid)} == pids(*both[0])


def test_the_same_rank_twice_is_two_jobs_even_where_they_are_connected(machine: Machine) -> None:
    first, second = pair(machine, machine.network(), "10.9.0.1", "10.9.0.2")
    words = {**_NAMED, "MASTER_ADDR": "10.9.0.1"}
    zero, again = first.rank(0, **words), second.rank(0, **words)
    zero.do("serve", "10.9.0.1", _PORT)
    again.meet(zero, "10.9.0.1", _PORT)
    assert len(jobs(zero, again)) == 2


@pytest.mark.parametrize(
    "other",
    [
        {"MASTER_PORT": _PORT + 1},
        {"WORLD_SIZE": 3},
        {"MASTER_ADDR": "engine-0"},
        {"TORCHELASTIC_RUN_ID": "another"},
        {"TORCHELASTIC_RESTART_COUNT": 1},
        {"SLURM_JOB_ID": 7},
    ],
    ids=lambda other: next(iter(other)),
)
def test_connected_ranks_that_say_different_things_are_two_jobs(
    machine: Machine, other: dict[str, object]
) -> None:
    """As a trainer that sends its weights to an engine, or an attempt that lingers."""
    first, second = pair(machine, machine.network(), "10.9.0.1", "10.9.0.2")
    zero, one = first.rank(0, **_NAMED), second.rank(1, **{**_NAMED, **other})
    zero.do("serve", "10.9.0.1", _PORT + 7)
    one.meet(zero, "10.9.0.1", _PORT + 7)
    assert len(jobs(zero, one)) == 2
    same = second.rank(1, **_NAMED)
    same.meet(zero, "10.9.0.1", _PORT + 7)
    assert jobs(zero, same) == [pids(zero, same)]


def test_a_trainer_and_its_engine_that_say_the_same_are_told_apart_by_their_stores(
    machine: Machine,
) -> None:
    words = {"WORLD_SIZE": 2, "MASTER_PORT": _PORT}
    addresses = [f"10.9.0.{number}" for number in range(1, 5)]
    containers = pair(machine, machine.network(), *addresses)
    ranks = [one.rank(number % 2, **words) for number, one in enumerate(containers)]
    for zero, one, address in ((*ranks[:2], addresses[0]), (*ranks[2:], addresses[2])):
        serve(zero, address)
        one.meet(zero, address, _PORT)
    trainer, engine = ranks[1], ranks[2]
    trainer.do("serve", addresses[1], _PORT + 7)
    engine.do("call", addresses[1], _PORT + 7)
    trainer.do("accept")
    assert jobs(*ranks) == sorted([pids(*ranks[:2]), pids(*ranks[2:])], key=min)


def test_a_store_that_calls_itself_localhost_is_met_by_those_who_have_a_name_for_it(
    machine: Machine,
) -> None:
    """Kubeflow's operator told so the container that has rank 0."""
    first, second = pair(machine, machine.network(), "10.9.0.1", "10.9.0.2")
    zero, one = first.rank(0, **{**_NAMED, "MASTER_ADDR": "localhost"}), second.rank(1, **_NAMED)
    zero.do("serve", "0.0.0.0", _PORT)
    one.meet(zero, "10.9.0.1", _PORT)
    assert jobs(zero, one) == [pids(zero, one)]


def test_an_address_of_all_networks_joins_those_who_began_together(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {**_NAMED, "WORLD_SIZE": 4, "MASTER_ADDR": "10.9.0.1"}
    ranks = [machine.container().rank(rank, **words) for rank in (1, 2)]
    assert jobs(*ranks) == [pids(*ranks)]
    monkeypatch.setattr(job_grouping, "_NEAR_S", 0.0)
    assert len(jobs(*ranks)) == 2, "the older one may be left over from an earlier job"


def test_an_address_that_several_jobs_give_joins_nobody(machine: Machine) -> None:
    words = {**_NAMED, "WORLD_SIZE": 4, "MASTER_ADDR": "10.9.0.1"}
    ranks = [machine.container().rank(rank, **words) for rank in (1, 2, 2)]
    assert len(jobs(*ranks)) == 3


def test_a_step_of_slurm_is_one_job_in_whatever_containers(machine: Machine) -> None:
    step = {"SLURM_JOB_ID": 7, "SLURM_STEP_ID": 1, "SLURM_NTASKS": 4}

    def task(number: int, **more: object) -> Rank:
        return machine.container().rank(None, SLURM_PROCID=number, **{**step, **more})

    zero, one, other = task(0), task(1), task(2, SLURM_STEP_ID=2)
    assert jobs(zero, one, other) == sorted([pids(zero, one), pids(other)], key=min)


def test_a_complete_job_takes_nobody_in(machine: Machine) -> None:
    words = {**_NAMED, "WORLD_SIZE": 1, "MASTER_ADDR": "10.9.0.1"}
    ranks = [machine.container().rank(rank, **words) for rank in (0, 1)]
    assert len(jobs(*ranks)) == 2


def test_ranks_of_one_container_are_one_job_by_their_words_whoever_started_them(
    machine: Machine,
) -> None:
    """As `srun` or a script in the background starts them; a shell between is none of theirs."""
    inside = machine.container()
    ranks = [inside.rank(0, **_NAMED), inside.rank(1, "sh", "-c", '"$@"; true', "sh", **_NAMED)]
    assert jobs(*ranks) == [pids(*ranks)]


def test_two_jobs_of_one_script_are_told_apart_by_who_is_connected(machine: Machine) -> None:
    """Their ports are in the program: one process has started all four ranks, without a word."""
    both = [[machine.rank(rank, WORLD_SIZE=2) for rank in (0, 1)] for _ in range(2)]
    everybody = [rank for job in both for rank in job]
    for number, (zero, one) in enumerate(both):
        zero.do("serve", "127.0.0.1", _PORT + number)
        one.meet(zero, "127.0.0.1", _PORT + number)
    assert jobs(*everybody) == sorted((pids(*job) for job in both), key=min)


def test_containers_in_the_hosts_network_are_not_joined_by_a_short_name(machine: Machine) -> None:
    """Jobs of two namespaces of Kubernetes may call their first pod the same."""
    words = {**_NAMED, "WORLD_SIZE": 16}
    apart = ("unshare", "--pid", "--fork", "--kill-child")
    ranks = [machine.rank(rank, *apart, **words) for rank in (3, 7)]
    assert len(jobs(*ranks)) == 2
    on_loopback = {**words, "MASTER_ADDR": "localhost"}
    ranks = [machine.rank(rank, *apart, **on_loopback) for rank in (3, 7)]
    assert jobs(*ranks) == [pids(*ranks)], "a port of one network is one store's"


def test_attempts_of_one_launcher_are_told_apart_while_the_old_one_lingers(
    machine: Machine,
) -> None:
    inside = machine.container()
    old = inside.rank(1, TORCHELASTIC_RESTART_COUNT=0, **_NAMED)
    new = [inside.rank(rank, TORCHELASTIC_RESTART_COUNT=1, **_NAMED) for rank in (0, 1)]
    # They have a parent each here, as whoever enters a container is nobody's child there.
    assert all(old.pid not in job or job == {old.pid} for job in jobs(old, *new))


def test_spawned_ranks_are_one_job_with_their_siblings_alone(machine: Machine) -> None:
    """Two scripts in one allocation of Slurm, of each of which one rank is left."""
    slurm = {"SLURM_JOB_ID": 7}
    shell = ("sh", "-c", '"$@"; true', "sh")
    ranks = [machine.rank(None, *shell, **slurm) for _ in range(2)]
    found = [
        FoundRank(rank.pid, number, None, number, 0, "", "") for number, rank in enumerate(ranks)
    ]
    assert len(JobGrouping().group(found)) == 2


def test_who_has_ended_is_in_no_job(machine: Machine) -> None:
    rank, other = machine.rank(0, **_NAMED), machine.rank(1, **_NAMED)
    found = rank.found
    rank.process.kill()
    rank.process.wait()
    assert not JobGrouping().group([found])
    assert [one.pid for one in ranks_at([rank.pid, other.pid])] == [other.pid]
    with pytest.raises(NoSuchProcess, match=str(rank.pid)):
        ranks_at([rank.pid])


def test_the_case_of_a_container_is_no_folder_of_the_host(machine: Machine, tmp_path: Path) -> None:
    """It may have a folder of its own at a path that another job's Case has here."""
    case = tmp_path / "case"
    (case / "hosts").mkdir(parents=True)
    words = {**_NAMED, "HANGLAB_CASE": case}
    container = machine.container()
    shared, inside = machine.rank(0, **words), container.rank(0, **words)
    assert [recorded_case([rank.found]) for rank in (shared, inside)] == [case, case]
    mount = ["mount", "-t", "tmpfs", "none", str(tmp_path)]
    subprocess.run([*container.inside, *mount], check=True, capture_output=True)
    assert [recorded_case([rank.found]) for rank in (shared, inside)] == [case, None]
