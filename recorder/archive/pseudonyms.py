"""Names that tell nothing, the same one for the same thing throughout a Case.

What is public stays: file names of torch and the standard library, their
functions, torch's own group names.  A heuristic that knows those finds them.
"""

from __future__ import annotations

import os
import re

from hanglab.recorder.case.records import Python

_FROZEN = re.compile(r"<frozen [a-z_]+(\.[a-z_]+)*>|<string>|<stdin>")
#: Groups' names that torch gives by itself; the name of a group may be a number.
_GROUP = re.compile(r"\d{1,6}|default_pg|undefined|")
_THREADS = re.compile(
    r"MainThread|Dummy-\d+|Thread-\d+|ThreadPoolExecutor-\d+_\d+|QueueFeederThread"
    r"|asyncio_\d+|pt_[a-z_0-9]+|python3?(\.\d+)?|torchrun|bash|sh|"
)
_KERNEL = re.compile(r"\d+\.\d+(\.\d+)?")

#: Roots of what stays recognisable.
STDLIB = "/usr/lib/python3.0"
SITE = f"{STDLIB}/site-packages"
TORCH = f"{SITE}/torch"
OWN, USER = "/hanglab", "/user"


class Pseudonyms:
    """Remembers what it has replaced."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._roots: list[tuple[str, str]] = []

    def learn(self, python: Python) -> None:
        """Learn from a rank's own words which folders hold public code."""
        roots = dict(self._roots)
        for folder in python.stdlib:
            roots[_folder(folder)] = STDLIB
        for folder in python.site:
            roots[_folder(folder)] = SITE
        for folder in python.own:
            roots[_folder(folder)] = f"{OWN}/{os.path.basename(folder.rstrip('/'))}"
        if python.torch:
            roots[_folder(python.torch)] = TORCH
        for site in python.site:
            roots[_folder(os.path.join(site, "torch"))] = TORCH
        # The innermost folder decides: packages may lie below the standard library.
        self._roots = sorted(roots.items(), key=lambda root: -len(root[0]))

    def python(self, python: Python) -> Python:
        """Folders laid out alike below the new roots."""
        return Python(
            version=python.version if re.fullmatch(r"[\d.]*", python.version) else "",
            stdlib=[STDLIB] if python.stdlib else [],
            site=[SITE] if python.site else [],
            own=sorted({f"{OWN}/{os.path.basename(own.rstrip('/'))}" for own in python.own}),
            torch=TORCH if python.torch else None,
            torch_version=python.torch_version,
        )

    def file(self, path: str) -> str:
        """A file of code."""
        if not path or _FROZEN.fullmatch(path):
            return path
        root, rest = self._root_of(path)
        if root in (TORCH, STDLIB) or root.startswith(OWN):
            return f"{root}/{rest}"
        if root == SITE:
            return f"{SITE}/{self._next('package', rest)}.py"
        # A name without folder, as C++ frames have, stays one.
        return f"{USER}/{self._next('file', path)}.py"

    def function(self, name: str, file: str) -> str:
        """A function in a file, by the file's original path."""
        root, _ = self._root_of(file)
        public = root in (TORCH, STDLIB) or root.startswith(OWN) or bool(_FROZEN.fullmatch(file))
        if not name or public or re.fullmatch(r"<[a-z]+>", name):
            return name
        # py-spy says Class.method where others say method: they must stay equal.
        return self._next("function", name.rpartition(".")[2])

    def path(self, path: str) -> str:
        """Any other path: where it leads below the usual mount points can be told, no more."""
        if path in ("", "/", "/tmp", "/dev/shm", "/proc", "/sys"):
            return path
        for top in ("/dev/shm", "/tmp"):
            if path.startswith(f"{top}/"):
                return f"{top}/{self._next('path', path)}"
        parent = os.path.dirname(path.rstrip("/"))
        return f"{'' if parent in ('', '/') else self.path(parent)}/{self._next('path', path)}"

    def host(self, name: str) -> str:
        return self._next("host", name) if name else name

    def group(self, name: str) -> str:
        return name if _GROUP.fullmatch(name) else self._next("group", name)

    def section(self, name: str) -> str:
        return name if name in ("", "dataloader", "optimizer") else self._next("section", name)

    def thread(self, name: str) -> str:
        return name if _THREADS.fullmatch(name) else self._next("thread", name)

    def kernel(self, release: str) -> str:
        found = _KERNEL.match(release)
        return found[0] if found else ""

    def value(self, value: str) -> str:
        """A setting: small numbers and switches stay, the rest only stays comparable."""
        if re.fullmatch(r"\d{0,6}|true|false|True|False|INFO|WARN|DETAIL|OFF", value):
            return value
        return self._next("value", value)

    def address(self, address: str) -> str:
        """``address:port``; loopback and unspecified addresses stay."""
        host, colon, port = address.rpartition(":")
        bare = host.strip("[]")
        if not colon or not port.isdecimal():
            return self._next("address", address)
        if re.fullmatch(r"127(\.\d+){3}|::1?|0\.0\.0\.0|(::ffff:)?127(\.\d+){3}", bare):
            return address
        number = self._next("address", bare).removeprefix("address")
        return f"192.0.2.{int(number) % 255}:{port}" if int(number) < 255 else f"h{number}:{port}"

    def _root_of(self, path: str) -> tuple[str, str]:
        for folder, root in self._roots:
            if path.startswith(folder):
                return root, path[len(folder) :]
        return "", path

    def _next(self, kind: str, original: str) -> str:
        key = kind, original
        if key not in self._given:
            count = 1 + sum(1 for known, _ in self._given if known == kind)
            self._given[key] = f"{kind}{count}"
        return self._given[key]


def _folder(path: str) -> str:
    return path.rstrip("/") + "/"
