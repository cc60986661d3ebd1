from collections.abc import Callable
from mmap import mmap
from types import TracebackType

class Span:
    @property
    def began(self) -> int: ...
    @property
    def wall(self) -> int: ...
    @property
    def cpu(self) -> int: ...
    def __enter__(self) -> None: ...
    def __exit__(
        self,
        type_: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

class Writer:
    """Tables are (offset, capacity, record size); slots those of a step, which is followed by
    when it began and how many there were, of the latest event, and of the totals in use."""

    written: bool

    def __new__(
        cls,
        buffer: mmap,
        sections: tuple[int, int, int],
        totals: tuple[int, int, int],
        open: tuple[int, int, int],
        steps: tuple[int, int, int],
        slots: tuple[int, int, int],
        text: Callable[[str], int],
        read_text: Callable[[int], str],
        full: Callable[[], None],
    ) -> Writer: ...
    def __call__(self, name: str, kind: int = 0) -> Span: ...
    def step(self, number: int | None = None) -> None: ...
    def write_totals(self) -> None: ...
    def innermost(self, thread: int, /) -> str: ...
    def leave(self) -> None: ...
