"""The ``hanglab`` command.  Whatever a command needs is imported when it runs."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and gives its exit code; errors are told, not raised."""
    try:
        return _run(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        print("hanglab: interrupted", file=sys.stderr)
        return 130


def _run(arguments: list[str]) -> int:
    import typer

    from hanglab.harness.cli.app import app
    from hanglab.harness.cli.sources import close_sources
    from hanglab.harness.errors import HanglabError
    from hanglab.recorder.case.file_system_space import NO_SPACE

    own, script_arguments = _split(arguments)
    try:
        code = app(args=own, prog_name="hanglab", standalone_mode=False, obj=script_arguments)
        sys.stdout.flush()
    except HanglabError as error:
        _tell(error)
        return error.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except OSError as error:
        if _lacks_temporary_folder(error):
            print("hanglab: no folder for temporary files can be written to", file=sys.stderr)
            print("  Free some space, or name one that has some in TMPDIR.", file=sys.stderr)
            return 4
        if error.errno not in NO_SPACE and error.errno != errno.EFBIG:
            raise
        print(f"hanglab: nothing more can be written: {error.strerror}", file=sys.stderr)
        print("  Free some space, or write to another disk.", file=sys.stderr)
        _drop_output()
        return 4
    except Exception as error:
        # Typer carries click within it or beside it; by name its errors are found in both.
        if not any(base.__name__ == "UsageError" for base in type(error).__mro__):
            raise
        error.show()  # type: ignore[attr-defined]
        if own[:1] == ["record"] and not script_arguments:
            print(
                "Put -- before the command: hanglab record [OPTIONS] -- COMMAND ...",
                file=sys.stderr,
            )
        return 64
    finally:
        close_sources()
    return int(code or 0)


def _lacks_temporary_folder(error: OSError) -> bool:
    """True for the words of ``tempfile`` where it can write nowhere, as on a full disk."""
    words = "No usable temporary directory found"
    return error.errno == errno.ENOENT and (error.strerror or "").startswith(words)


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Splits off the words after ``--``, which are for the user's script."""
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def _drop_output() -> None:
    """The interpreter flushes what is left when it ends, and would fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tell(error: Exception) -> None:
    from hanglab.harness.storage.origins import with_origins

    print(f"hanglab: {with_origins(str(error))}", file=sys.stderr)
    advice = getattr(error, "advice", "")
    if advice:
        print(f"  {with_origins(advice)}", file=sys.stderr)
