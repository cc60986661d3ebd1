"""Causes of the category ``synchronization``: ranks that do not do the same."""

from __future__ import annotations

from hanglab.harness.report.explanation.causes.cause_text import CauseText

_TUTORIAL = "https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html"
_DISTRIBUTED = "https://docs.pytorch.org/docs/stable/distributed.html"
_NCCL_GROUPS = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/communicators.html"

TEXTS = {
    "collective_mismatch": CauseText(
        says=(
            "Two threads of each rank use {turns}, and nothing orders them: {who} called "
            "{differing}{at} where {peers} called {theirs}",
            "{Who} called {differing}{at} where {peers} called {theirs}",
            "{Who} called {by_size}{at} with {mine_sizes} where {peers} passed {theirs_sizes}, "
            "which is another call",
            "{Who} called {same}{at}, {peers} from elsewhere in the program",
            "{Who}{by_line} issue{s} other operations than {peers}",
        ),
        what="Members of a group issue different operations under the same number. A group has no "
        "names for its operations: the nth of one rank meets the nth of every other, whatever "
        "they are.",
        proof="The buffers of at least two members show different operations, or different call "
        "sites, under one number of one group. The minority is named, or whoever leaves the order "
        "that the group kept before. The job is then simulated with and without the difference.",
        mistaken_for={
            "skipped_collective": "there the culprit's later operations go on in its peers' order "
            "with one left out; here they do not, or the buffer ends too soon to tell",
            "uneven_inputs": "there the culprit has left the loop that its peers are in",
            "group_order": "there each rank issues the right operations, of two groups in turns",
        },
        mend=(
            "Make {place} issue the operation that {peers} issue: find the branch on rank, data or "
            "time that leads there.",
        ),
        commands=("entries", "stack"),
        references=(_TUTORIAL, "pytorch/pytorch#77562", "huggingface/accelerate#3250"),
    ),
    "skipped_collective": CauseText(
        says=(
            "{Who} left out {missed} and went on to {next}",
            "{Who}{by_line} left an operation out that {members} issued",
            "{Who}{by_line} left an operation out that {peers} issued",
        ),
        what="A rank goes past an operation that its peers issue: a branch, an early return or a "
        "swallowed error kept it from the call. From there on its operations meet the wrong ones "
        "of its peers, or it waits for nobody and they wait for it.",
        proof="At the first number at which a group's members differ, the culprit's later "
        "operations continue its peers' order with one or some removed; or its stack shows that "
        "it is past the call, with as many steps and fewer operations.",
        mistaken_for={
            "collective_mismatch": "without operations after the difference the two look alike",
            "missing_rank": "there nothing tells what the culprit left out",
            "uneven_inputs": "there it did fewer steps, not fewer operations in as many",
        },
        mend=(
            "Let every rank reach the operation before {place}: take it out of the branch, or out "
            "of the reach of an exception that is caught on the way (except, suppress, finally), "
            "and give a neutral value (zeros) where a rank has nothing to contribute.",
        ),
        commands=("entries", "stack"),
        references=(_TUTORIAL, _DISTRIBUTED, "pytorch/pytorch#77562"),
    ),
    "uneven_inputs": CauseText(
        says=(
            "{Who}{by_line} {has} {more} {peers}, and {is_} in a loop that they have left",
            "{Who}{by_line} left the loop that {peers} {are} still in, after fewer steps",
        ),
        what="A rank has fewer batches than its peers, so it ends its loop while they issue one "
        "more step's operations and wait for it; or it has more, and its peers go on without it.",
        proof="The culprit's stack is past the loop that its peers' stacks are in, and its step "
        "counter is behind theirs; or the other way round, where most have left the loop.",
        mistaken_for={
            "skipped_collective": "there as many steps were done",
            "missing_rank": "there nothing shows that it left its peers' loop",
        },
        mend=(
            "Give every rank the same number of batches (drop_last=True, padding, "
            "DistributedSampler), or wrap the training loop in "
            "`with Join([model]):` (torch.distributed.algorithms.join).",
        ),
        commands=("stack", "entries"),
        references=(
            "https://docs.pytorch.org/tutorials/advanced/generic_join.html",
            "pytorch/pytorch#38174",
        ),
    ),
    "missing_rank": CauseText(
        says=(
            "The device of {who} has stopped in {stopped}, which others are done with",
            "The device of {who} has not begun {unstarted}, and nothing older on it is open",
            "The device of {who} has stopped in {concluded}, or what passes there between "
            "{stalled} does not come through",
            "The device of {who} has stopped in {concluded}: nothing else explains what is open",
            "{Who}{by_line} {key_wait}{outside}",
            "{Who} {is_} not in any operation{outside} but at {place}",
            "{pair} has not entered, and nothing tells which of them is wrong",
            "{Who} never entered what {peers} {wait} in{at}",
            "{Who} did not come",
        ),
        what="A rank does not enter the operation that the others wait in, and the evidence shows "
        "where it is, not why.",
        proof="It is the root under every reading of what is unknown: nobody else's arrival would "
        "free those that wait, and it waits for nobody itself. It is said only where those who "
        "wait are at least as many as those who are away.",
        mistaken_for={
            "busy_loop": "needs a stack at one place and a full core for ten times the longest "
            "earlier pause",
            "rank0_work": "needs a stack that moves",
            "process_frozen": "needs the state of the process",
            "partition": "there the rank did enter the operation",
        },
        mend=(
            "Find what stopped the device of {who} in {stopped}: a kernel of the job's own that "
            "does not end, or a fault of the device.",
            "Find what keeps the device of {who} from {unstarted}: a kernel of the job's own that "
            "does not end, or a fault of the device.",
            "Find what {concluded} waits for: the link between {stalled}, which a test of these "
            "alone shows, or a kernel of the job's own that does not end on the device of {who}.",
            "Find what stopped the device of {who} in {concluded}: a kernel of the job's own that "
            "does not end, or a fault of the device.",
            "Look at what {place} does or waits for: bound it in time, or move it to where no peer "
            "waits.",
        ),
        commands=("stack", "native_stack", "kernel_stack", "state"),
        references=(_TUTORIAL, "ByteDance-Seed/VeOmni#1176"),
    ),
    "size_mismatch": CauseText(
        says=(
            "{Who} called {mine}{at} with {mine_sizes} where {peers} passed {theirs_sizes}",
            "{Who} called {shared}{at} with tensors of another size than {members}",
        ),
        what="Ranks pass tensors of different sizes to one operation. gloo compares and raises; "
        "NCCL waits for bytes that never come, or writes past what it was given.",
        proof="The buffers show the same operation and call site under one number, with other "
        "sizes on the minority.",
        mistaken_for={
            "partition": "on NCCL it looks like a dead network: everybody is in one operation",
            "split_mismatch": "there the lists of all_to_all differ, which no buffer records",
        },
        mend=(
            "Before {place} pad to a common size, or exchange the sizes first (all_gather of "
            "shape), and let every rank allocate the largest.",
        ),
        commands=("entries",),
        references=(_DISTRIBUTED, "pytorch/pytorch#143536", "NVIDIA/nccl#1417"),
    ),
    "dtype_mismatch": CauseText(
        says=(
            "{Who} called {mine}{at} with {mine_dtypes} where {peers} passed {theirs_dtypes}",
            "{Who} called {shared}{at} with tensors of another dtype than {members}",
        ),
        what="Ranks pass tensors of different dtypes to one operation, so that they expect "
        "different numbers of bytes.",
        proof="The buffers show the same operation and call site under one number, with another "
        "dtype on the minority.",
        mistaken_for={"size_mismatch": "there the shapes differ"},
        mend=("Cast to one dtype before {place} on every rank.",),
        commands=("entries",),
        references=(_DISTRIBUTED, "NVIDIA/nccl#147"),
    ),
    "reduction_mismatch": CauseText(
        says=("{Who} called {shared}{at} with another reduce operation than {members}",),
        what="Ranks reduce with different operations (a sum here, a maximum there). As many bytes "
        "go the same ways, so nobody waits, and what comes out is undefined.",
        proof="The recorder's own record of arguments shows another reduce operation under one "
        "number; Flight Recorder has none.",
        mistaken_for={"healthy": "the job goes on: only the recorder's record shows it"},
        mend=("Pass the same op= at {place} on every rank.",),
        commands=("entries",),
        references=(_DISTRIBUTED,),
    ),
    "root_mismatch": CauseText(
        says=(
            "{Who} called {shared}{at} with {mine_root} where {members} passed {theirs_root}",
            "{Who} called {shared}{at} with another root than {members}",
        ),
        says_of_all=("The ranks called {shared}{at} with different roots",),
        what="Ranks name different roots for one broadcast, reduce, gather or scatter: two send "
        "where one should, or nobody does.",
        proof="The recorder's own record of arguments shows another root under one number; Flight "
        "Recorder has none.",
        mistaken_for={"missing_rank": "without recorded roots everybody seems to wait for nobody"},
        mend=("Pass the same src= or dst= at {place}, computed from what all ranks share.",),
        commands=("entries",),
        references=(_DISTRIBUTED, "NVIDIA/nccl#147"),
    ),
    "split_mismatch": CauseText(
        says=("{Who} called {shared}{at} with split sizes that do not fit {misfit}",),
        what="What one rank sends to another in all_to_all is not what that one expects.",
        proof="The recorder's own record of the lists: entry j of rank i's input splits is not "
        "entry i of rank j's output splits.",
        mistaken_for={
            "partition": "without recorded lists everybody is in one operation and nobody moves",
            "size_mismatch": "the sizes of the whole tensors may differ by right in all_to_all",
        },
        mend=(
            "Before {place} exchange the counts (all_to_all_single of the input splits), and use "
            "what came as output_split_sizes.",
        ),
        commands=("entries",),
        references=(_DISTRIBUTED, "deepspeedai/DeepSpeed#7998"),
    ),
    "group_order": CauseText(
        says=("{Who}{by_line} entered the groups in another order than {peers}",),
        what="Ranks enter two groups in opposite order, and each waits in the one for a rank that "
        "waits in the other.",
        proof="The wait-for graph has a ring over at least two groups. Who left the order that all "
        "kept before is named; where nothing tells, all of the ring are.",
        mistaken_for={
            "collective_mismatch": "there two ranks differ within one group",
            "p2p_deadlock": "there the ring is of sends and receives",
        },
        mend=(
            "Let {place} enter the groups in the order of {peers}: sort them by one key that all "
            "ranks share.",
        ),
        commands=("entries", "stack"),
        references=(_NCCL_GROUPS, "NVIDIA/nccl#195", "meta-pytorch/torchrec#4149"),
    ),
    "group_creation": CauseText(
        says=("{asked}", "{Who}{by_line} did not call new_group as others did"),
        says_of_all=("The ranks did not all call new_group with the same members in one order",),
        what="new_group is a collective of the whole job, members or not: some ranks left it out, "
        "or called it in another order or with other members.",
        proof="Stacks inside new_group on some ranks and elsewhere on others, or groups of one "
        "name with other members.",
        mistaken_for={
            "rendezvous": "there the job itself never formed",
            "missing_rank": "there the others wait in an operation, not in new_group",
        },
        mend=(
            "Call new_group on every rank of the job, in one order and with the same lists, before "
            "the branch at {place}.",
            "Call new_group on every rank of the job, in one order and with the same lists.",
        ),
        commands=("stack",),
        references=(_DISTRIBUTED + "#groups", "pytorch/pytorch#130102"),
    ),
    "p2p_deadlock": CauseText(
        says=(
            "{Ring} wait for each other in sends and receives{at}, and {who} alone could have let "
            "all go on",
            "{Who} wait for each other in sends and receives{at}",
        ),
        what="Each rank of a ring waits in a send or receive for the next one, which cannot come "
        "before its own is done.",
        proof="The wait-for graph has a ring of sends and receives alone. Nobody of it did more "
        "wrong than the others: whichever goes first frees all.",
        mistaken_for={
            "p2p_unmatched": "there the other half is never issued at all",
            "group_order": "there the ring is of collectives",
        },
        mend=(
            "At {place} let one of each two that wait for each other send while the other "
            "receives, or issue both as dist.batch_isend_irecv([...]).",
        ),
        commands=("entries", "stack"),
        references=(_DISTRIBUTED + "#point-to-point-communication", "pytorch/pytorch#172668"),
    ),
    "p2p_unmatched": CauseText(
        says=(
            "{Who}{by_line} {let_go} {peers} {wait} for",
            "{both} send and receive past each other, by {miss}",
            "{any_rank}",
            "{Who} called {made} where {siblings}, in its place in other replicas, called {usual}",
            "{Who}{by_line} issued {own_message}, whose other half nobody issues",
            "{Who}{by_line} did not issue the other half of {message}",
            "{Who}{by_line} did not issue the other half of a send or receive",
        ),
        what="A send without its receive, or a receive without its send: left out, meant for "
        "another rank, with another tag or group, or let go before it was sent.",
        proof="The counts of messages between the two ends differ up to an operation of both, or "
        "the other end is past the place where its half belongs.",
        mistaken_for={
            "p2p_deadlock": "there both halves are in the program, in an order that cannot go on",
            "skipped_collective": "there a collective was left out",
        },
        mend=(
            "Find why {who} did not call there what {siblings} called: {usual}.",
            "Pair the message before {place}: same peer, tag and group on both ends, in the same "
            "order.",
        ),
        commands=("entries", "stack"),
        references=(_DISTRIBUTED + "#point-to-point-communication", "NVIDIA/Megatron-LM#5100"),
    ),
}
