"""The table of wait channels: what a thread sleeps for, by its function in /proc/PID/wchan.

The whole name counts, or its beginning: a part of one may mean anything (``poll_schedule_timeout``
holds the ``ll_`` of Lustre).  What the compiler appends (``.constprop.0``) is no part of a name.
"""

from __future__ import annotations

import re
from enum import Enum


class Channel(str, Enum):
    STORAGE = "storage"
    GPU_DRIVER = "the GPU's driver"
    NETWORK = "the network"
    #: Of threads, or of processes that share memory.
    LOCK = "a lock"
    FILE_LOCK = "a lock on a file"
    POLL = "any of several files"
    CHILD = "a child process"
    PIPE_READ = "a pipe to be filled"
    PIPE_WRITE = "a pipe to be emptied"
    SLEEP = "a time"
    STOPPED = "a signal to go on"
    FROZEN = "its control group to be thawed"


#: Beginnings of names.  Sources: linux/fs, mm, net, kernel; NVIDIA/open-gpu-kernel-modules
#: (kernel-open/nvidia/os-interface.c, nvidia-uvm); drivers/gpu/drm.
_ROWS: tuple[tuple[Channel, str], ...] = (
    (Channel.FILE_LOCK, r"(?:locks|flock|posix)_lock_inode_wait|fcntl_setlk"),
    (Channel.LOCK, r"(?:__)?futex_|(?:__)?do_semtimedop|sem_wait|do_sem"),
    (Channel.POLL, r"poll_schedule_timeout|do_poll|do_select|do_epoll_wait|ep_poll"),
    (Channel.CHILD, r"do_wait|kernel_wait4"),
    (Channel.PIPE_WRITE, r"(?:anon_)?pipe_write"),
    (Channel.PIPE_READ, r"(?:anon_)?pipe_read|wait_for_partner"),
    (Channel.SLEEP, r"hrtimer_nanosleep|do_nanosleep|common_nsleep"),
    (Channel.STOPPED, r"do_signal_stop|ptrace_stop"),
    (Channel.FROZEN, r"__refrigerator|do_freezer_trap"),
    (
        Channel.GPU_DRIVER,
        r"nvidia_|nv_|nvkms_|nvlink_|nvswitch_|uvm_|_nv\d+rm|rm_ioctl"
        r"|os_(?:acquire|cond_acquire|schedule|delay)|amdgpu_|kfd_|drm_|dma_fence_|dma_resv_|ttm_",
    ),
    (
        Channel.STORAGE,
        r"fuse_|request_wait_answer|nfs|rpc_wait|ceph_|lustre_|ll_|cl_sync|osc_|ptlrpc_|gpfs|zfs_"
        r"|cv_wait_common|folio_wait|wait_on_page|__lock_page|filemap_|io_schedule|bit_wait_io"
        r"|jbd2_|ext4_|xfs_|btrfs_|sb_start_write|percpu_rwsem_wait|blk_|(?:__)?wait_on_buffer"
        r"|smb2?_|cifs_|p9_|bio_|submit_bio_wait|balance_dirty_pages",
    ),
    (
        Channel.NETWORK,
        r"sk_wait_data|wait_woken|inet_|tcp_|unix_|skb_|__skb_wait|ib_|rdma_|uverbs_|mlx5_",
    ),
)
_PATTERNS = tuple((channel, re.compile(pattern)) for channel, pattern in _ROWS)
#: Devices of GPUs: a system call on one is inside its driver.
_GPU_DEVICE = re.compile(r"/dev/(?:nvidia|kfd|dri/)")


def channel_of(wchan: str) -> Channel | None:
    """Kind of thing that a thread waits for in this kernel function; None where unknown."""
    return next((channel for channel, pattern in _PATTERNS if pattern.match(wchan)), None)


def is_gpu_device(target: str) -> bool:
    """True if a path is that of a GPU's device file."""
    return _GPU_DEVICE.match(target) is not None
