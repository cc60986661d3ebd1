"""Beginning and end of every replay's script; IMPORTS and LAST stand for lines of its own."""

from typing import Final

HEAD: Final = '''"""Makes the calls of a recorded job; written by `hanglab replay`."""

IMPORTS
PROGRAM = json.loads(Path(__file__).with_name("program.json").read_text())
DEVICE = torch.device("cpu")
if PROGRAM["backend"] == "nccl":
    DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(DEVICE)
DTYPES = {
    "Float": torch.float32, "Double": torch.float64, "Half": torch.float16,
    "BFloat16": torch.bfloat16, "Long": torch.int64, "Int": torch.int32,
    "Byte": torch.uint8, "Char": torch.int8, "Bool": torch.bool,
}


class Call:
    """Arguments of one call: tensors of the rank's own size, and of the whole group."""

    def __init__(self, group, members, numel, dtype, root, peer, reduction, splits, way):
        self.group = group
        self.way = way
        self.root = None if root is None else members[root]
        self.peer = None if peer is None else members[peer]
        self.own = torch.zeros(numel, dtype=DTYPES.get(dtype, torch.uint8), device=DEVICE)
        self.whole = torch.zeros(numel * len(members), dtype=self.own.dtype, device=DEVICE)
        self.other = torch.zeros_like(self.whole)
        self.reduction = getattr(dist.ReduceOp, reduction.upper())
        self.sends, self.receives = splits or (None, None)
        if splits:
            self.whole = self.whole.new_zeros(sum(self.sends))
            self.other = self.whole.new_zeros(sum(self.receives))
        at_root = self.root == int(os.environ["RANK"])
        self.parts = list(self.whole.chunk(len(members))) if at_root and numel else None
        self.result = [torch.zeros_like(self.own) for _ in members]

    def issued(self, work):
        """Wait as the job did, within the line that makes the call."""
        if self.way == "waits":
            work.wait()
        return work


'''
TAIL: Final = '''

def main():
    rank = int(os.environ["RANK"])
    dist.init_process_group(PROGRAM["backend"])
    groups = [None] * len(PROGRAM["groups"])
    if PROGRAM["default"] is not None:
        groups[PROGRAM["default"]] = dist.group.WORLD
    for place in PROGRAM["created"][rank]:
        members, description = PROGRAM["groups"][place]
        groups[place] = dist.new_group(members, group_desc=description)
    if PROGRAM["backend"] != "gloo":
        # Communicators are made in the first call, and the job's had been made long before.
        for group, (members, _) in zip(groups, PROGRAM["groups"]):
            if rank in members and group is not None:
                dist.barrier(group=group)
    mine = RankCalls(rank, groups)
    mine.begin()
    for step, *row in PROGRAM["calls"][rank]:
        mine.make(*row)
LAST    mine.end()


class RankCalls:
    """The calls of one rank, and what it does in place of the next."""

    def __init__(self, rank, groups):
        self.groups = groups
        self.running = []
        self.left = []
        self.made = 0
        self.ending, self.besides = PROGRAM["endings"][rank], PROGRAM["before_stop"][rank]
        self.began = time.monotonic()

    def begin(self):
        # Of a rank that makes no call: it never came to its peers' loop, and has not left it.
        if self.ending and self.ending["turn"] == -1:
            self.do_besides(0)
            ENDINGS[self.ending["name"]](*self.ending["arguments"])

    def make(self, site, group, numel, dtype, root, peer, reduction, splits, way, at, thread):
        turn, ending = self.made, self.ending
        members = PROGRAM["groups"][group][0]
        call = Call(self.groups[group], members, numel, dtype, root, peer, reduction, splits, way)
        time.sleep(max(0.0, self.began + at - time.monotonic()))
        self.do_besides(turn)
        work = in_thread(SITES[site], call) if thread else SITES[site](call)
        if way == "stands":
            # Within the loop that a peer has left, also where hosts only enqueue.
            wait_for([(call, work)])
        elif way != "waits":
            (self.running if way == "goes on" else self.left).append((call, work))
        if ending and turn == ending["turn"]:
            wait_for(self.running)
            self.do_besides(turn + 1)
            ENDINGS[ending["name"]](*ending["arguments"])
        self.made += 1

    def do_besides(self, turn):
        # What the rank did before that call that is no call.
        for one in self.besides:
            if one["turn"] == turn:
                ENDINGS[one["name"]](*one["arguments"])

    def end(self):
        wait_for(self.running)
        # That of a call was done behind the call.
        if self.ending and self.ending["turn"] is None:
            ENDINGS[self.ending["name"]](*self.ending["arguments"])


def in_thread(function, *arguments):
    found = []
    thread = threading.Thread(target=lambda: found.append(function(*arguments)))
    thread.start()
    thread.join()
    return found[0]


def wait_for(running):
    for _, work in running:
        work.wait()
    if DEVICE.type == "cuda":
        # Asked, as a host that the device holds up would be to blame by itself.
        done = torch.cuda.Event()
        done.record()
        while not done.query():
            time.sleep(0.01)


main()
'''
