"""Causes of the categories ``data_starvation`` and ``straggler``: input, and who is slow."""

from __future__ import annotations

from hanglab.harness.report.explanation.causes.cause_text import CauseText

_LOADER = "https://docs.pytorch.org/docs/stable/data.html"
_TUNING = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
_STRAGGLERS = "arXiv:2505.05713"

DATA_STARVATION = {
    "input_starved": CauseText(
        says=("All ranks wait for their input{in_section}, {share} of the time",),
        what="Every rank's loader is too slow, so all wait, each in its turn.",
        proof="Time in the loaders of all ranks, and loaders that are busy, over the steps.",
        mistaken_for={
            "slow_input": "there one rank alone waits",
            "slow_compute": "there loaders are idle",
        },
        mend=("More loader workers, prefetch_factor, faster storage, cheaper preprocessing.",),
        commands=("stragglers", "stack"),
        references=(_LOADER, _TUNING),
    ),
    "loader_stuck": CauseText(
        says=("{Who} get{s} no data{at}",),
        what="A data loader does not deliver: its worker waits or loops, and so does the rank.",
        proof="The rank's stack is in its loader, batches are asked for and none is ready, and its "
        "worker's stack does not move.",
        mistaken_for={
            "loader_worker_died": "there the worker is gone",
            "fork_deadlock": "there the worker waits for a lock that fork copied",
            "slow_input": "there batches come, later",
            "io_blocked": "there the worker is in the kernel (state D)",
        },
        mend=(
            "Mend what the worker waits for at {place}; give the DataLoader a timeout= so that "
            "it fails and does not wait.",
            "Give the DataLoader a timeout= so that it fails and does not wait.",
        ),
        commands=("workers", "stack"),
        references=(_LOADER, "pytorch/torchtitan#3338"),
    ),
    "loader_worker_died": CauseText(
        says=("{Who} lost a data loader worker{at}",),
        what="A worker process of a data loader ended: memory, shared memory, or a crash in the "
        "dataset's code.",
        proof="The end of a child of the rank, or torch's own error about it.",
        mistaken_for={
            "shm_exhausted": "what often kills it (SIGBUS)",
            "oom_killed": "what often kills it (SIGKILL)",
        },
        mend=(
            "See what ended it: of a signal 9 the memory of the host, of an exception the "
            "traceback of the dataset's code, which num_workers=0 gives.",
        ),
        commands=("stderr", "shared_memory", "oom_log"),
        references=(_LOADER, "pytorch/pytorch#8976"),
    ),
    "slow_input": CauseText(
        says=("{Who} get{s} {its} input later than {peers}{in_section}",),
        what="One rank's input is slower than its peers', and they wait for it in every step.",
        proof="Time for a batch beside its peers', and who arrives last by its own doing.",
        mistaken_for={
            "slow_compute": "there the step's own work is longer",
            "loader_stuck": "there nothing comes",
            "input_starved": "there all ranks wait",
        },
        mend=(
            "Compare storage, sampler and preprocessing of {who} with its peers' at {place}.",
            "Compare storage, sampler and preprocessing of {who} with its peers'.",
        ),
        commands=("stragglers", "stack"),
        references=(_LOADER, _STRAGGLERS),
    ),
}

STRAGGLER = {
    "slow_compute": CauseText(
        says=(
            "{Who} {is_} {blocked} longer than {peers}{how_often}{in_section}{at}",
            "{Who} take{s} longer than {peers}{how_often}{in_section}{at}",
        ),
        what="One rank's own work takes longer than its peers', and they wait for it.",
        proof="Who enters operations last by its own doing, its own time a step beside its peers', "
        "and processor or device time that shows work, or a line of its own that blocks it.",
        mistaken_for={
            "slow_host": "there it does no more work but gets less of the processor",
            "imbalance": "there its batches are larger",
            "gc_pause": "there it collects garbage",
            "slow_input": "there it waits for its input",
        },
        mend=(
            "Find what {who} wait{s} for at {place}, such as a thread of its own, a file or a "
            "service: {it} {is_} {blocked} there, and do{es} not compute.",
            "Compare what {place} does on {who} with its peers.",
            "Compare the work of {who} with its peers'; with the step's parts as sections "
            "(recorder.section) the next run tells which of them it is.",
        ),
        commands=("stragglers", "flame", "stack"),
        references=(_STRAGGLERS, "arXiv:2410.12588"),
    ),
    "slow_host": CauseText(
        says=("{Who} do{es} no more work than {peers} and get{s} less of {its} processor",),
        what="A host gives a rank less: a neighbour on its cores, pinning, a low clock.",
        proof="Time runnable without a processor, or the same work in more processor time.",
        mistaken_for={
            "slow_compute": "there it does more work",
            "cpu_throttled": "there a quota is used up",
        },
        mend=("Free its cores: affinity, neighbours, frequency governor.",),
        commands=("affinity", "pressure", "stragglers"),
        references=("https://docs.kernel.org/accounting/psi.html", "NVIDIA/nccl#1017"),
    ),
    "gc_pause": CauseText(
        says=("{Who} collect{s} garbage for longer than {peers}",),
        what="Python's cyclic garbage collector stops a rank at moments of its own.",
        proof="Collections that the recorder timed, beside the time that its peers lost.",
        mistaken_for={"slow_compute": "collections are timed; without them they look like work"},
        mend=(
            "Call gc.freeze() once what lives long is built: it is searched no more. Else "
            "gc.disable(), and gc.collect() on all ranks at the same step.",
        ),
        commands=("stragglers",),
        references=("https://docs.python.org/3/library/gc.html", "pytorch/torchtitan#148"),
    ),
    "imbalance": CauseText(
        says=("{Who} get{s} larger batches than {peers} and compute{s} longer",),
        says_of_all=(
            "Whichever rank has the largest batch is late: ranks wait for each other {share} "
            "of the time",
        ),
        what="Batches differ in size, so that whoever has the largest is late.",
        proof="Elements a batch beside the time of its own a step, over ranks and steps.",
        mistaken_for={"slow_compute": "there its batches are as large as its peers'"},
        mend=("Balance what ranks get: sort or pack by length, a sampler by tokens.",),
        commands=("stragglers",),
        references=(_STRAGGLERS,),
    ),
}
