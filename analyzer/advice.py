"""Advice on what to do next, by cause."""

from __future__ import annotations

from hanglab.analyzer.verdict import Cause

_ADVICE: dict[Cause, str] = {
    Cause.COLLECTIVE_MISMATCH: "Compare the culprit's line with its peers': all ranks must issue "
    "the same operations in the same order; look for a branch on rank, data or time.",
    Cause.SKIPPED_COLLECTIVE: "Find the branch that lets the culprit leave the operation out, and "
    "make every rank take part, with a neutral value where it has nothing to give.",
    Cause.UNEVEN_INPUTS: "Give every rank the same number of batches (drop_last, padding, a "
    "DistributedSampler), or wrap the loop in DistributedDataParallel.join().",
    Cause.MISSING_RANK: "Look at the line that the culprit is at; take a stack of it "
    "(py-spy dump) if none was captured.",
    Cause.SIZE_MISMATCH: "Print the tensor's shape on the culprit and on a peer before the "
    "operation; pad, or exchange the sizes first.",
    Cause.DTYPE_MISMATCH: "Cast to one dtype on all ranks before the operation.",
    Cause.ROOT_MISMATCH: "Pass the same root on every rank; compute it from data that all share.",
    Cause.SPLIT_MISMATCH: "Exchange the split sizes first, so that what one rank sends is what "
    "the other expects.",
    Cause.GROUP_ORDER: "Let all ranks enter the groups in one fixed order.",
    Cause.GROUP_CREATION: "Call new_group on every rank of the job, in the same order and with "
    "the same ranks, members or not.",
    Cause.P2P_DEADLOCK: "Break the cycle: let one side receive first, or use batch_isend_irecv.",
    Cause.P2P_UNMATCHED: "Pair every send with a receive from the same peer, in the same order.",
    Cause.INPUT_STARVED: "Speed the input up: more loader workers, prefetching, faster storage, "
    "cheaper preprocessing.",
    Cause.LOADER_STUCK: "Look at the loader worker's stack in the evidence; set timeout= on the "
    "DataLoader so that it fails instead of waiting.",
    Cause.LOADER_WORKER_DIED: "See why the worker died: memory, shared memory, or a crash in "
    "the dataset's code; run with num_workers=0 to get its traceback.",
    Cause.SLOW_INPUT: "Compare the culprit's storage, sampler and preprocessing with its peers'.",
    Cause.CPU_THROTTLED: "Raise the CPU limit, or lower the number of threads to fit it.",
    Cause.MEMORY_PRESSURE: "Give the job more memory, or lower its batch and cache sizes.",
    Cause.OOM_KILLED: "Raise the memory limit, or lower batch size, workers and prefetching.",
    Cause.GPU_OOM: "Lower the batch size or activation memory on the culprit.",
    Cause.SHM_EXHAUSTED: "Enlarge /dev/shm (docker --shm-size), or use fewer loader workers.",
    Cause.DISK_FULL: "Free space on the disk that the traceback names.",
    Cause.FD_EXHAUSTED: "Raise ulimit -n, and look for files or sockets that are never closed.",
    Cause.PIDS_EXHAUSTED: "Raise the limit of processes and threads, or start fewer.",
    Cause.PROCESS_FROZEN: "Find who stopped the process (debugger, job control, freezer) and "
    "continue it with SIGCONT.",
    Cause.IO_BLOCKED: "Check the file system that the process waits for.",
    Cause.PARTITION: "Check routes and firewalls between the hosts named in the evidence.",
    Cause.SLOW_LINK: "Check the link between the hosts named in the evidence.",
    Cause.RENDEZVOUS: "Check MASTER_ADDR, MASTER_PORT and WORLD_SIZE, and whether every rank "
    "was started.",
    Cause.STORE_LOST: "Keep the process that hosts the store alive until all ranks are done.",
    Cause.EXCEPTION: "Fix the error in the culprit's traceback; the other ranks only wait for it.",
    Cause.CRASH: "See the culprit's exit code or signal and the end of its stderr; look for a "
    "core dump.",
    Cause.PYTHON_DEADLOCK: "See who holds the lock that the culprit waits for, in the stacks of "
    "its other threads.",
    Cause.GIL_HELD: "The C code on the culprit's stack must release the GIL while it waits.",
    Cause.BUSY_LOOP: "See why the condition that the culprit polls never comes true.",
    Cause.RANK0_WORK: "Let the other ranks wait with a longer timeout, or share the work out.",
    Cause.FORK_DEADLOCK: "Start the child with spawn or forkserver, or before threads and locks.",
    Cause.TEARDOWN: "See what the culprit waits for at its exit: a thread to join, a process "
    "group to destroy.",
    Cause.HOST_SYNC: "Do not wait for the device between launches that depend on each other.",
    Cause.SLOW_COMPUTE: "Compare the culprit's work with its peers' in the section named.",
    Cause.SLOW_HOST: "Compare the culprit's host with the others: clocks, neighbours, cooling.",
    Cause.GC_PAUSE: "Collect garbage on all ranks at the same step, or freeze long-lived objects.",
    Cause.IMBALANCE: "Balance the work: sort or pack by sequence length.",
    Cause.GPU_FAULT: "Drain the host and check the GPU's Xid messages.",
    Cause.GPU_THROTTLED: "Check the GPU's power, temperature and clocks.",
    Cause.FABRIC_STALLED: "Check the fabric and the communication library's version.",
}


def advice_for(cause: Cause) -> str:
    return _ADVICE[cause]
