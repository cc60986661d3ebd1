"""Building the recorder's extension module, and installing hanglab without it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("hatchling")

ROOT = Path(__file__).parents[2]


def load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("native_build", ROOT / "tools" / "native.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


native = load_tool()


def can_build(folder: Path) -> bool:
    try:
        native.build(ROOT, folder)
    except native.NotBuilt:
        return False
    return True


def wheel(folder: Path, **environment: str) -> tuple[Path, str]:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    (path,) = folder.glob("*.whl")
    return path, done.stdout


def members(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


def test_without_a_compiler_there_is_a_pure_wheel_and_a_line_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    path, printed = wheel(tmp_path, PATH=str(tmp_path / "bin"))
    assert path.name.endswith("-py3-none-any.whl")
    names = members(path)
    assert "hanglab/recorder/rank/sections.py" in names
    assert not [name for name in names if name.endswith((".so", ".c", ".pyc"))]
    (line,) = (line for line in printed.splitlines() if "in Python" in line)
    assert line.strip().endswith("there is no C compiler")


def test_with_a_compiler_the_wheel_has_the_module_for_this_interpreter(tmp_path: Path) -> None:
    if not can_build(tmp_path):
        pytest.skip("the module cannot be built: install a C compiler and Python's headers")
    path, _ = wheel(tmp_path, PATH="/usr/bin:/bin")
    version = "cp{}{}".format(*sys.version_info)
    assert f"-{version}-{version}-linux" in path.name
    (module,) = (name for name in members(path) if name.endswith(".so"))
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    assert module == f"hanglab/recorder/rank/native/writer{suffix}"


def test_a_compiler_that_fails_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    broken = programs / "cc"
    broken.write_text("#!/bin/sh\necho 'error: no room' >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(native.NotBuilt, match=r"^cc ended with 3: error: no room$"):
        native.build(ROOT, tmp_path)
    assert list(tmp_path.iterdir()) == [programs]


def test_a_module_that_cannot_be_loaded_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    compiler = programs / "cc"
    compiler.write_text('#!/bin/sh\nfor last; do :; done\necho "no module" > "$last"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(native.NotBuilt, match="ImportError"):
        native.build(ROOT, tmp_path)
    assert list(tmp_path.iterdir()) == [programs]
