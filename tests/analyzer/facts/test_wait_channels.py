"""The table of wait channels, by functions that kernels and drivers have."""

from __future__ import annotations

import pytest

from hanglab.analyzer.facts.wait_channels import Channel, channel_of, is_gpu_device


@pytest.mark.parametrize(
    ("wchan", "channel"),
    [
        ("poll_schedule_timeout.constprop.0", Channel.POLL),
        ("ep_poll", Channel.POLL),
        ("do_epoll_wait", Channel.POLL),
        ("request_wait_answer", Channel.STORAGE),
        ("nfs_wait_bit_killable", Channel.STORAGE),
        ("rpc_wait_bit_killable", Channel.STORAGE),
        ("folio_wait_bit_common", Channel.STORAGE),
        ("io_schedule", Channel.STORAGE),
        ("ll_file_read_iter", Channel.STORAGE),
        ("cl_sync_io_wait", Channel.STORAGE),
        ("xfs_buf_lock", Channel.STORAGE),
        ("uvm_page_tree_get_ptes_async", Channel.GPU_DRIVER),
        ("os_acquire_rwlock_write", Channel.GPU_DRIVER),
        ("nvidia_unlocked_ioctl", Channel.GPU_DRIVER),
        ("_nv013207rm", Channel.GPU_DRIVER),
        ("dma_fence_default_wait", Channel.GPU_DRIVER),
        ("sk_wait_data", Channel.NETWORK),
        ("wait_woken", Channel.NETWORK),
        ("unix_stream_read_generic", Channel.NETWORK),
        ("inet_csk_accept", Channel.NETWORK),
        ("futex_do_wait", Channel.LOCK),
        ("futex_wait_queue_me", Channel.LOCK),
        ("do_semtimedop", Channel.LOCK),
        ("locks_lock_inode_wait", Channel.FILE_LOCK),
        ("anon_pipe_read", Channel.PIPE_READ),
        ("pipe_write", Channel.PIPE_WRITE),
        ("do_wait", Channel.CHILD),
        ("hrtimer_nanosleep", Channel.SLEEP),
        ("do_signal_stop", Channel.STOPPED),
        ("__refrigerator", Channel.FROZEN),
        ("do_freezer_trap", Channel.FROZEN),
        ("do_syscall_64", None),
        ("", None),
        ("0", None),
    ],
)
def test_what_a_kernel_s_function_waits_for(wchan: str, channel: Channel | None) -> None:
    assert channel_of(wchan) is channel


@pytest.mark.parametrize(
    ("target", "gpu"),
    [("/dev/nvidia3", True), ("/dev/nvidia-uvm", True), ("/dev/dri/card0", True),
     ("/dev/sda", False), ("/data/dev/nvidia3", False)],
)  # fmt: skip
def test_a_gpu_s_device_file(target: str, gpu: bool) -> None:
    assert is_gpu_device(target) is gpu
