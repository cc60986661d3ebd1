"""What is known of backends, and by which names."""

from __future__ import annotations

import pytest

from hanglab.harness.capabilities import capability
from hanglab.recorder.case.backends import DEFAULT_BACKEND, RUNNABLE, backend_of, backends_in


def test_a_setting_names_a_backend_for_each_device() -> None:
    assert [one.name for one in backends_in("gloo")] == ["gloo"]
    assert [one.name for one in backends_in("cpu:gloo,cuda:nccl")] == ["gloo", "nccl"]
    assert backends_in("cuda:ncclx")[0].enqueued


def test_nothing_is_taken_for_granted_of_an_unknown_backend() -> None:
    unknown = backend_of("mpi")
    assert not unknown.blocking and not unknown.enqueued and not unknown.needs_gpu
    assert unknown.keeps_state is None and unknown.records_p2p and not unknown.counts_p2p


@pytest.mark.parametrize("name", RUNNABLE)
def test_what_jobs_can_be_started_on_is_known_and_has_a_capability(name: str) -> None:
    backend = backend_of(name)
    assert backend.blocking != backend.enqueued
    assert backend.keeps_state is not None
    assert capability(name).name == name


def test_without_a_word_no_gpu_is_needed() -> None:
    assert not backend_of(DEFAULT_BACKEND).needs_gpu
