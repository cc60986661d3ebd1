"""From a page's data to HTML in one piece."""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hanglab.analyzer.plain_text import shown
from hanglab.harness.errors import MissingExtra
from hanglab.harness.jobs.run_folder import ArtifactsError
from hanglab.harness.report.output_file import check_target
from hanglab.harness.report.page.records import PageData
from hanglab.harness.report.page.shown_text import LONGEST, shown_everywhere
from hanglab.harness.report.rank_ranges import named, ranges

if TYPE_CHECKING:
    import jinja2

_ASSETS = Path(__file__).with_name("assets")


def render_page(data: PageData) -> str:
    """The page of one job.  Raises MissingExtra without jinja2 and plotly."""
    library = _plotly()
    plain = shown_everywhere(data)
    return _fill(
        "page.html.jinja",
        ("theme.js", "page.js", "timeline.js", "charts.js"),
        plain,
        library=library,
        page=plain,
        named=named,
        ranges=ranges,
    )


def render_run_page(data: msgspec.Struct) -> str:
    """The page of a run.  Raises MissingExtra without jinja2."""
    plain = shown_everywhere(data)
    return _fill("run.html.jinja", ("theme.js", "run.js"), plain, page=plain, ranges=ranges)


def _fill(
    template: str, scripts: tuple[str, ...], data: Any, *, library: str = "", **values: Any
) -> str:
    script = "\n".join((_ASSETS / name).read_text() for name in scripts)
    compressed = ""
    hashes = [_hash(script)]
    if library:
        hashes.append(_hash(library))
        packed = gzip.compress(library.encode(), 9, mtime=0)
        compressed = base64.b64encode(packed).decode()
    return (
        _environment()
        .get_template(template)
        .render(
            style=_markup((_ASSETS / "page.css").read_text()),
            script=_markup(script),
            library=_markup(compressed),
            # Nothing is fetched from anywhere, and no script runs but these, whatever a text holds.
            policy=_markup(
                f"default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; "
                f"script-src {' '.join(hashes)}; base-uri 'none'; form-action 'none'"
            ),
            data=_markup(_json(data)),
            **values,
        )
    )


def _json(data: Any) -> str:
    """JSON that no text in it can end: what HTML could take for a tag is escaped."""
    text = msgspec.json.encode(data).decode()
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _markup(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)


def _environment() -> jinja2.Environment:
    try:
        import jinja2
    except ImportError as error:
        raise _missing("jinja2") from error
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_ASSETS),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: shown(value, LONGEST) if type(value) is str else value,
    )


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise _missing("plotly") from error
    return str(get_plotlyjs())


def _missing(package: str) -> MissingExtra:
    return MissingExtra(
        f"A page needs {package}, which is not installed.", "pip install 'hanglab[report]'"
    )


def write_page(text: str, target: Path, *, force: bool) -> None:
    """Writes a page, whole or not at all.

    Raises FileExists where there is a file and ``force`` is not given, ArtifactsError where it
    cannot be written.
    """
    check_target(target, force=force)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(target)
    except OSError as failure:
        temporary.unlink(missing_ok=True)
        raise ArtifactsError(
            f"{target} cannot be written: {failure.strerror or failure}"
        ) from failure
