"""Causes of the category ``software``: errors of one rank's own program."""

from __future__ import annotations

from hanglab.harness.report.explanation.causes.cause_text import CauseText

_PY_SPY = "https://github.com/benfred/py-spy"
_FAULTHANDLER = "https://docs.python.org/3/library/faulthandler.html"

TEXTS = {
    "exception": CauseText(
        says=("{Who} raised {told}{at}", "{Who} raised an exception{at}"),
        what="An error ended a rank, or ended one of its threads, or was swallowed; its peers wait "
        "for it or fail because it is gone.",
        proof="A traceback in the rank's own record or stderr, earlier than those of its peers. "
        "Errors that only say that a peer was lost are consequences, by a table of error texts.",
        mistaken_for={
            "partition": "its peers report connections closed: a consequence of its end",
            "crash": "there no exception was recorded",
        },
        mend=("Fix the error at {place}; what its peers met follows from it.",),
        commands=("stderr",),
        references=("https://docs.pytorch.org/docs/stable/elastic/errors.html",),
    ),
    "crash": CauseText(
        says=("{Who} crashed: {told}{at}", "{Who} crashed{at}"),
        what="A process ended by a signal or an exit code of its own, without an exception.",
        proof="The exit code or signal of its process, before its peers failed.",
        mistaken_for={
            "oom_killed": "the kernel ends with SIGKILL for want of memory, and logs it",
            "exception": "needs a traceback",
            "loader_worker_died": "there the process that ended is a child",
        },
        mend=("Find the native code that failed with the core dump or `-X faulthandler`.",),
        commands=("stderr", "core_dump", "kernel_log"),
        references=(_FAULTHANDLER,),
    ),
    "python_deadlock": CauseText(
        says=(
            "{Who} keep{s} {held_ranks} waiting {kept} and wait{s} for {whom} meanwhile{at}",
            "{Who} {own_wait}{at}",
            "{Who} wait{s} for a lock that nobody releases{at}",
        ),
        what="Threads or tasks of one rank wait for each other: locks, queues, futures, joins.",
        proof="The main thread's wait has no timeout, every other thread that could end it waits "
        "too, and nothing of the process moved.",
        mistaken_for={
            "gil_held": "there the process does not answer at all",
            "fork_deadlock": "there the lock is held by a thread that fork did not copy",
            "loader_stuck": "there it waits for its loader's worker",
        },
        mend=(
            "Before {place} let {held_ranks} go on, which wait{one_held} {kept}: nobody comes to "
            "{place} before.",
            "At {place} it {own_wait}: see what was to end that, and wait with a timeout; in an "
            "event loop await what it has to complete itself.",
            "At {place} take locks in one order on all threads, none twice on one (``__del__`` "
            "and handlers of signals run on it, too), and hold none while a thread waits for "
            "something else; in an event loop await what it has to complete itself.",
        ),
        commands=("stack", "native_stack"),
        references=(_PY_SPY, "https://docs.python.org/3/library/threading.html"),
    ),
    "gil_held": CauseText(
        says=("{Who} {is_} inside C code that holds the interpreter lock (GIL){at}",),
        what="A thread waits or works in C without releasing the interpreter lock, so that no "
        "Python of its process runs, that which would dump or give up included.",
        proof="The process runs or sleeps and does not answer the in-rank recorder, and py-spy "
        "shows one thread that owns the lock in all samples.",
        mistaken_for={
            "process_frozen": "there the process is stopped (state T)",
            "python_deadlock": "there other threads of the process still run",
        },
        mend=(
            "Release the lock in the extension that {place} calls (Py_BEGIN_ALLOW_THREADS, "
            "`with nogil`, py::gil_scoped_release; ctypes.CDLL in place of PyDLL); of a regular "
            "expression that tries for ever, change the pattern.",
        ),
        commands=("native_stack", "kernel_stack"),
        references=(
            "https://docs.python.org/3/c-api/init.html#thread-state-and-the-global-interpreter-lock",
            "pytorch/pytorch#117312",
        ),
    ),
    "busy_loop": CauseText(
        says=("{Who} spin{s}{at} without getting anywhere",),
        what="A rank uses a whole core and gets nowhere: it polls for what never comes.",
        proof="A full core for more than ten times its longest earlier pause, no counter moved, "
        "and every stack sample in the same loop.",
        mistaken_for={
            "rank0_work": "there the stack moves",
            "slow_compute": "there steps go on",
            "missing_rank": "before ten times the longest pause nobody can tell",
        },
        mend=("Bound the loop at {place} with a deadline, and raise when it has passed.",),
        commands=("stack", "threads"),
        references=(_PY_SPY,),
    ),
    "rank0_work": CauseText(
        says=("{Who} work{s} alone{at}",),
        once=True,
        what="One rank does long work of its own (saving, evaluating, uploading) while the others "
        "wait for it: slow, and hung only once a timeout strikes.",
        proof="The culprit's stack or counters move, outside of any operation, while its peers "
        "wait in one.",
        mistaken_for={
            "busy_loop": "there nothing moves",
            "missing_rank": "there nothing is known of what it does",
        },
        mend=(
            "Share the work at {place} out over the ranks, move it to a thread, or give the group "
            "that waits a longer timeout= for it.",
        ),
        commands=("stack",),
        references=("https://docs.pytorch.org/docs/stable/distributed.checkpoint.html",),
    ),
    "fork_deadlock": CauseText(
        says=("{Who} wait{s} for a child process that was forked with a lock held{at}",),
        what="fork copies memory and one thread: a lock that another thread held stays locked in "
        "the child for ever.",
        proof="A child of the rank waits for a lock, and has no other thread that could hold it.",
        mistaken_for={
            "loader_stuck": "a loader's worker is such a child; the lock is what tells",
            "python_deadlock": "there the lock is in the rank itself",
        },
        mend=(
            "Start the child that is at {place} with spawn or forkserver "
            "(multiprocessing_context=...), or before threads and locks.",
        ),
        commands=("children", "stack"),
        references=(
            "https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods",
        ),
    ),
    "teardown": CauseText(
        says=("{Who} {is_} shutting down and {does} not get through{at}",),
        what="The job's work is done, and a rank does not end: it joins a thread that does not, or "
        "destroys a process group whose peers are gone.",
        proof="Its stack is inside the interpreter's shutdown, an exit handler or "
        "destroy_process_group, and nothing of it moves.",
        mistaken_for={"uneven_inputs": "there its peers are still in their loop"},
        mend=(
            "End what {place} waits for before leaving: close loaders and pools, make threads "
            "daemons, call destroy_process_group on all ranks.",
            "End what it waits for before leaving: close loaders and pools, make threads daemons, "
            "call destroy_process_group on all ranks.",
        ),
        commands=("stack", "native_stack"),
        references=("https://docs.pytorch.org/docs/stable/distributed.html#shutdown",),
    ),
    "host_sync": CauseText(
        says=("{Who} wait{s} for {its} device{at} before launching what would free it",),
        what="The host waits for the device, the device for a peer, and the peer for what this "
        "host would launch next.",
        proof="The main thread is in a synchronizing call, and the operation that its device is in "
        "waits for a part that the same host has not launched yet.",
        mistaken_for={
            "group_order": "there streams or groups are crossed",
            "gpu_fault": "there the device itself has stopped",
        },
        mend=(
            "Take the wait at {place} (.item(), .cpu(), synchronize()) behind the last of the "
            "launches that depend on each other.",
        ),
        commands=("stack", "entries"),
        references=("https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution",),
    ),
}
