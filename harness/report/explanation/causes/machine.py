"""Causes of the categories ``resource``, ``network`` and ``hardware``: what a rank runs on."""

from __future__ import annotations

from hanglab.harness.report.explanation.causes.cause_text import CauseText

_CGROUP = "https://docs.kernel.org/admin-guide/cgroup-v2.html"
_PROC = "https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html"
_XID = "https://docs.nvidia.com/deploy/xid-errors/index.html"
_NCCL_TROUBLE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
_ELASTIC = "https://docs.pytorch.org/docs/stable/elastic/run.html"

RESOURCE = {
    "cpu_throttled": CauseText(
        says=("{Who} {is_} throttled to {its} processor quota",),
        what="A control group's processor quota is used up before its period ends, and all of it "
        "stands still until the next.",
        proof="cpu.stat: throttled periods and time, over the time that the job was sampled.",
        mistaken_for={
            "slow_host": "there it waits for a processor without a quota",
            "slow_compute": "there it computes longer",
        },
        mend=("Raise the quota (cpu.max, docker --cpus, limits.cpu), or use fewer threads.",),
        commands=("cpu_quota", "threads"),
        references=(_CGROUP + "#cpu", "dmlc/xgboost#7653"),
    ),
    "memory_pressure": CauseText(
        says=("{Who} {is_} at {its} memory limit and read{s} back what was dropped",),
        what="A control group at its memory limit drops pages and reads them again, slower and "
        "slower, before it is killed or while it is not.",
        proof="memory.current at memory.max, with refaults and stalls (PSI) a second.",
        mistaken_for={
            "oom_killed": "that is what often follows",
            "slow_input": "there no memory limit is met",
        },
        mend=("Raise the limit, or lower batch size, workers and prefetch_factor.",),
        commands=("memory_limit",),
        references=(_CGROUP + "#memory", "https://docs.kernel.org/accounting/psi.html"),
    ),
    "oom_killed": CauseText(
        says=("The kernel killed {who} for want of memory",),
        what="The kernel ends a process with SIGKILL: its control group, or the host, had no "
        "memory left.",
        proof="SIGKILL, and the kernel's log or the control group's oom_kill counter.",
        mistaken_for={
            "crash": "without log and counter a SIGKILL is anybody's",
            "gpu_oom": "there the device's memory ran out, and an exception says so",
        },
        mend=("Raise the memory limit, or lower batch size, workers and prefetch_factor.",),
        commands=("oom_log", "memory_limit"),
        references=(_CGROUP + "#memory", "pytorch/pytorch#8976"),
    ),
    "host_lost": CauseText(
        says=("The cluster took the host of {who} away",),
        what="A scheduler or a node's own agent ends all that runs on a host: evicted for want of "
        "room, preempted for others, or the node is gone.",
        proof="The cluster's own record of how it ended (`pod.json`).",
        mistaken_for={
            "missing_rank": "there nothing says why a rank is not there",
            "oom_killed": "there the limit of the job's own memory was met",
            "partition": "there the host lives, and cannot be reached",
        },
        mend=("Start again from the last checkpoint; ask for room or priority that is kept.",),
        commands=("stderr",),
        references=(
            "https://kubernetes.io/docs/concepts/scheduling-eviction/",
            "https://kubernetes.io/docs/concepts/workloads/pods/disruptions/",
        ),
    ),
    "gpu_oom": CauseText(
        says=("{Who} ran out of GPU memory{at}",),
        what="The device had no memory for an allocation.",
        proof="The exception that torch or NCCL raised, earlier than its peers'.",
        mistaken_for={"oom_killed": "there the host's memory ran out"},
        mend=("Lower batch size or activation memory (checkpointing) before {place}.",),
        commands=("gpu_memory", "stderr"),
        references=("https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management",),
    ),
    "shm_exhausted": CauseText(
        says=("{Who} found no room in shared memory (/dev/shm){at}",),
        what="/dev/shm is full: loaders pass batches through it, and NCCL its buffers.",
        proof="The error that was raised, and the room left in the file system at that moment.",
        mistaken_for={
            "loader_worker_died": "a worker dies of it (SIGBUS): look for the room first",
            "disk_full": "there the path is not below /dev/shm",
        },
        mend=("Enlarge /dev/shm (docker --shm-size=8g), or use fewer workers.",),
        commands=("shared_memory",),
        references=(
            "https://docs.pytorch.org/docs/stable/multiprocessing.html",
            "pytorch/pytorch#1355",
        ),
    ),
    "disk_full": CauseText(
        says=("{Who} found a full disk{at}",),
        what="A write failed for want of room or of inodes.",
        proof="The error that was raised, and the room left in the file system at that moment.",
        mistaken_for={"shm_exhausted": "there the path is below /dev/shm"},
        mend=("Free space, or write somewhere else at {place}.", "Free space, or write elsewhere."),
        commands=("disks", "inodes"),
        references=("pytorch/pytorch#29097",),
    ),
    "fd_exhausted": CauseText(
        says=("{Who} ran out of file descriptors{at}",),
        what="A process has as many files and sockets open as it may.",
        proof="EMFILE or ENFILE, and as many descriptors open as the limit allows.",
        mistaken_for={"rendezvous": "sockets that cannot be opened look like a lost network"},
        mend=("Close what {place} opens, or raise `ulimit -n`.", "Raise `ulimit -n`."),
        commands=("descriptors", "limits"),
        references=(
            "https://man7.org/linux/man-pages/man2/getrlimit.2.html",
            "pytorch/pytorch#11201",
        ),
    ),
    "pids_exhausted": CauseText(
        says=("{Who} could not start another process or thread{at}",),
        what="The limit of processes and threads, of the user or the control group, is met.",
        proof="EAGAIN at a start, and pids.current at pids.max or the limit of the user.",
        mistaken_for={"fd_exhausted": "there descriptors ran out"},
        mend=(
            "Start fewer threads at {place} (OMP_NUM_THREADS, num_workers), or raise pids.max.",
            "Start fewer threads (OMP_NUM_THREADS, num_workers), or raise pids.max.",
        ),
        commands=("task_limit", "threads"),
        references=(_CGROUP + "#pid",),
    ),
    "process_frozen": CauseText(
        says=("{Who} {is_} stopped by a signal or a freezer{at}",),
        what="A process does not run because somebody stopped it: SIGSTOP, job control, a debugger "
        "or a control group's freezer.",
        proof="State T or t in every sample at the capture, or a frozen control group.",
        mistaken_for={
            "gil_held": "there the process runs or sleeps",
            "io_blocked": "there it is uninterruptible (state D)",
            "partition": "from its peers both look alike",
        },
        mend=("Find who stopped it before it happens again: a debugger, a freezer, job control.",),
        commands=("tracer", "continue"),
        references=(_PROC, _CGROUP + "#freezer"),
    ),
    "io_blocked": CauseText(
        says=("{Who} {is_} blocked in the kernel",),
        what="A process waits uninterruptibly for a file system or block device: a hung NFS "
        "server, a lost disk.",
        proof="State D in all samples, in a kernel function of file systems or block devices.",
        mistaken_for={
            "process_frozen": "there the state is T",
            "gpu_fault": "there the function is the GPU driver's",
        },
        mend=("Mount with a timeout (NFS: soft,timeo=), or copy data to a local disk first.",),
        commands=("kernel_stack", "blocked_tasks", "mounts"),
        references=(_PROC, "nfs-ganesha/nfs-ganesha#1327"),
    ),
}

NETWORK = {
    "partition": CauseText(
        says=(
            "The network does not carry what {who} and {peers} send each other",
            "The network between the ranks is cut",
        ),
        what="Packets between hosts are dropped, one way or both.",
        proof="All are in one matched operation, and sockets of both ends show bytes that are sent "
        "again and never acknowledged.",
        mistaken_for={
            "missing_rank": "there one rank has not entered the operation",
            "fabric_stalled": "there the sockets are sound",
            "size_mismatch": "on NCCL arguments that differ look alike",
        },
        mend=(
            "Open the path between the hosts: routes, firewall, the interface that is used "
            "(GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME).",
        ),
        commands=("sockets", "routes"),
        references=("https://man7.org/linux/man-pages/man8/ss.8.html",),
    ),
    "slow_link": CauseText(
        says=("The link of {who} is slow: {told}", "The link of {who} is slow"),
        what="One link carries less, or later, than the others.",
        proof="Delivery rate, round trips and retransmissions of the sockets of both ends; between "
        "GPUs the times of what two ranks sent each other, against the like of it elsewhere.",
        mistaken_for={
            "slow_host": "there the processor is short",
            "partition": "there nothing moves",
        },
        mend=("Check cable, duplex, shaping and congestion of the link.",),
        commands=("sockets", "link", "fabric"),
        references=("https://man7.org/linux/man-pages/man8/ss.8.html",),
    ),
    "rendezvous": CauseText(
        says=("The job never formed: {who} did not join it{at}", "The job never formed"),
        what="Ranks do not find each other at the start: wrong address or port, a port in use, an "
        "interface that others cannot reach, a rank that was not started.",
        proof="Stacks or errors in init_process_group, and where each rank's sockets lead.",
        mistaken_for={
            "store_lost": "there the job had formed",
            "group_creation": "there a group of a formed job is missing",
        },
        mend=(
            "Give every rank the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE, an address that "
            "all hosts reach, and start all of them.",
        ),
        commands=("environment", "listeners"),
        references=(_ELASTIC, "pytorch/pytorch#129367"),
    ),
    "store_lost": CauseText(
        says=(
            "{Who} kept the job's store and came to {its} end while others needed it",
            "The job's store is gone",
        ),
        what="The process that hosts the key-value store ended, and everybody who asked it failed.",
        proof="The end of the rank that served the store, before errors of the store elsewhere.",
        mistaken_for={
            "exception": "errors of the store are consequences",
            "partition": "there the process that kept the store lives",
        },
        mend=(
            "Let rank 0 wait for all (a barrier, or destroy_process_group on all ranks) before "
            "it ends.",
        ),
        commands=("stderr", "listeners"),
        references=(
            "https://docs.pytorch.org/docs/stable/distributed.html#distributed-key-value-store",
            "xorbitsai/inference#4421",
        ),
    ),
}

HARDWARE = {
    "gpu_fault": CauseText(
        says=("The GPU of {who} has a fault: {told}", "The GPU of {who} has stopped"),
        what="A device does not finish what its peers' devices finished, or reported an error.",
        proof="An Xid in the kernel's log, an error that is sticky, a process that waits in the "
        "driver, or, where its host is seen to live, a device that alone has not begun what its "
        "peers' wait in (NCCL). Of one that dumps alone show to have stopped it is missing_rank.",
        mistaken_for={
            "fabric_stalled": "there no device is singled out",
            "host_sync": "there the host has not launched what is missing",
        },
        mend=("Drain the host; reset or replace the GPU.",),
        commands=("xid", "gpu_state"),
        references=(_XID, "NVIDIA/nccl#968"),
    ),
    "gpu_throttled": CauseText(
        says=("The GPU of {who} is throttled: {told}",),
        what="A device lowers its clock for heat or power.",
        proof="Clocks, temperature and power of NVML beside those of its peers, and its kernels' "
        "times.",
        mistaken_for={"slow_compute": "there the work differs, not the clock"},
        mend=("Mend cooling or the power limit of the host.",),
        commands=("gpu_clocks",),
        references=("https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html",),
    ),
    "fabric_stalled": CauseText(
        says=(
            "Every rank is inside {call} with the same arguments, and nothing of it finishes",
            "Every rank is inside one operation, and nothing of it finishes",
        ),
        what="Everybody entered the same operation, the hosts and the network between them are "
        "sound, and it does not finish: NVLink, InfiniBand, the switch, or the library.",
        proof="By exclusion: matched operations and arguments, processes that run, sockets that "
        "are sound; or an event of a port in the library's log.",
        mistaken_for={
            "partition": "there sockets show it",
            "gpu_fault": "there one device is singled out",
            "size_mismatch": "arguments that no buffer records cannot be excluded",
        },
        mend=("Check the fabric's ports and the library's version with its maintainers' table.",),
        commands=("nccl_debug", "fabric", "xid"),
        references=(_NCCL_TROUBLE, "NVIDIA/nccl#905"),
    ),
}
