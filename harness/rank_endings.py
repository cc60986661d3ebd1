"""Ends of ranks as Python functions of scripts that are written: each does the real thing."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from hanglab.analyzer.recorded_endings import EndingKind, RecordedEnding

_TEXTS: Final[dict[EndingKind, tuple[tuple[str, ...], str]]] = {
    EndingKind.EXITS: (
        ("os", "sys"),
        """
def leave(code, how):
    if how == "os._exit" or (code and not how):
        os._exit(code)
    sys.exit(code)
""",
    ),
    EndingKind.KILLED: (
        ("os",),
        """
def be_killed(number):
    os.kill(os.getpid(), number)
""",
    ),
    EndingKind.RAISES: (
        ("builtins",),
        """
def fail(name, message):
    raise error_of(name, message)
""",
    ),
    EndingKind.HANDLES: (
        ("builtins", "traceback"),
        """
def report(name, message):
    try:
        raise error_of(name, message)
    except Exception:
        traceback.print_exc()
""",
    ),
    EndingKind.FILLS_DISK: (
        (),
        """
def fill_disk():
    with open("/dev/full", "wb", buffering=0) as file:
        file.write(b"more")
""",
    ),
    EndingKind.WAITS_FOR_FULL_DISK: (
        ("threading", "time", "traceback"),
        """
def write_to_full_disk():
    time.sleep(1)  # the last thing that the rank does, however busy the host is
    try:
        with open("/dev/full", "wb", buffering=0) as file:
            file.write(b"more")
    except OSError:
        traceback.print_exc()


def wait_for_full_disk():
    written = threading.Event()
    threading.Thread(target=write_to_full_disk).start()
    written.wait()
""",
    ),
    EndingKind.FORKS_WITH_LOCK: (
        ("multiprocessing", "threading"),
        """
def acquire(lock):
    with lock:
        pass


def fork_with_lock():
    lock = threading.Lock()
    with lock:
        child = multiprocessing.get_context("fork").Process(target=acquire, args=(lock,))
        child.start()
    child.join()
""",
    ),
    EndingKind.KEEPS_STORE: (
        ("os", "sys", "time"),
        """
def keep_store(clients):
    agreed = dist.distributed_c10d._get_default_store()
    store = dist.TCPStore(os.environ["MASTER_ADDR"], 0, is_master=True, wait_for_workers=False)
    agreed.set("kept_store", str(store.port))
    while store.add("clients", 0) < clients:
        time.sleep(0.01)
    sys.exit()
""",
    ),
    EndingKind.ASKS_STORE: (
        ("os", "time"),
        """
def ask_store():
    agreed = dist.distributed_c10d._get_default_store()
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(agreed.get("kept_store")))
    store.add("clients", 1)
    while True:
        store.add("asked", 1)
        time.sleep(0.01)
""",
    ),
    EndingKind.SETS_KEY: (
        (),
        """
def set_key(key):
    dist.distributed_c10d._get_default_store().set(key, "set")
""",
    ),
    EndingKind.WAITS_FOR_KEY: (
        (),
        """
def wait_for_key(key):
    dist.distributed_c10d._get_default_store().get(key)
""",
    ),
    EndingKind.POLLS_FOR_KEY: (
        ("time",),
        """
def poll_for_key(key):
    store = dist.distributed_c10d._get_default_store()
    while not store.check([key]):
        time.sleep(0.01)
""",
    ),
    EndingKind.WAITS_AT_EXIT: (
        ("sys", "threading"),
        """
def wait_at_exit():
    threading.Thread(target=threading.Event().wait).start()
    sys.exit()
""",
    ),
    EndingKind.HOLDS_FILE_LOCK: (
        ("fcntl", "os"),
        """
def hold_file_lock():
    fcntl.flock(os.open(__file__, os.O_RDONLY), fcntl.LOCK_EX)
""",
    ),
    EndingKind.WAITS_FOR_FILE_LOCK: (
        ("fcntl", "os", "time"),
        """
def wait_for_file_lock():
    file = os.open(__file__, os.O_RDONLY)
    try:
        while True:  # until its holder has it
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(file, fcntl.LOCK_UN)
            time.sleep(0.01)
    except BlockingIOError:
        fcntl.flock(file, fcntl.LOCK_EX)
""",
    ),
    EndingKind.STOPPED: (
        ("os", "signal"),
        """
def be_stopped():
    os.kill(os.getpid(), signal.SIGSTOP)
""",
    ),
    EndingKind.HOLDS_GIL: (
        ("ctypes",),
        """
def hold_interpreter():
    while True:
        ctypes.PyDLL(None).pause()
""",
    ),
    EndingKind.SPINS: (
        (),
        """
def spin():
    while True:
        pass
""",
    ),
    EndingKind.WAITS_FOR_LOCK: (
        ("threading",),
        """
def wait_for_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
""",
    ),
    EndingKind.WAITS_FOR_LOADER: (
        ("time", "torch.utils.data"),
        """
class WithoutSamples(torch.utils.data.Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        while True:
            time.sleep(1)


def wait_for_loader():
    for _ in torch.utils.data.DataLoader(WithoutSamples(), num_workers=1):
        pass
""",
    ),
}

#: What both functions that make an exception need.
_ERROR_OF: Final = """
def error_of(name, message):
    kind = getattr(builtins, name.rpartition(".")[2], None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        kind = type(name.rpartition(".")[2], (Exception,), {})
    try:
        return kind(message)
    except TypeError:
        return type(kind.__name__, (Exception,), {})(message)
"""
_WITH_ERRORS: Final = frozenset({EndingKind.RAISES, EndingKind.HANDLES})
_OF_KEYS: Final = frozenset(
    {EndingKind.SETS_KEY, EndingKind.WAITS_FOR_KEY, EndingKind.POLLS_FOR_KEY}
)


def function_of(kind: EndingKind) -> str | None:
    """Name of the function that ends a rank so; None where it has to stand elsewhere for it."""
    if kind not in _TEXTS:
        return None
    return _TEXTS[kind][1].rpartition("\ndef ")[2].partition("(")[0]


def arguments_of(ending: RecordedEnding) -> list[int | str]:
    """Arguments of that function."""
    if ending.kind is EndingKind.EXITS:
        return [ending.number, ending.how]
    if ending.kind in (EndingKind.KILLED, EndingKind.KEEPS_STORE):
        return [ending.number]
    if ending.kind in _WITH_ERRORS:
        return [ending.how, ending.text]
    if ending.kind in _OF_KEYS:
        return [ending.text]
    return []


def call_of(ending: RecordedEnding) -> tuple[str, ...]:
    """Function and arguments as Python writes them."""
    name = function_of(ending.kind)
    assert name is not None
    return (name, *map(ascii, arguments_of(ending)))


def imports_of(kinds: Collection[EndingKind]) -> list[str]:
    """Modules that the functions need, in order."""
    return sorted({module for kind in kinds if kind in _TEXTS for module in _TEXTS[kind][0]})


def definitions_of(kinds: Collection[EndingKind]) -> Iterator[str]:
    """Texts of the functions, each once."""
    if not _WITH_ERRORS.isdisjoint(kinds):
        yield _ERROR_OF.strip("\n")
    for kind in EndingKind:
        if kind in kinds and kind in _TEXTS:
            yield _TEXTS[kind][1].strip("\n")


__all__ = ["arguments_of", "call_of", "definitions_of", "function_of", "imports_of"]
