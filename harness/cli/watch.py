"""``hanglab watch``: a service that finds jobs, learns their pace, and captures those that stop."""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hanglab.harness.cli.number_checks import finite

if TYPE_CHECKING:
    from hanglab.harness.watching.history import WatchHistory
    from hanglab.harness.watching.metrics import MetricsServer
    from hanglab.harness.watching.service import WatchService
    from hanglab.harness.watching.telling import Teller
    from hanglab.harness.watching.webhook import Webhook


def watch(
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR|URL",
            help="Folder of the Cases; without it below --state. Cases are sent below a URL, such "
            "as s3://bucket/name, and stay here, too.",
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of the history; without it /var/lib/hanglab for root, for others "
            "~/.local/state/hanglab.",
        ),
    ] = None,
    then: Annotated[
        Literal["kill", "leave"],
        typer.Option(help="What to do with a job that hangs, once it has been captured."),
    ] = "leave",
    least: Annotated[
        float,
        typer.Option(
            min=1.0,
            callback=finite,
            metavar="SECONDS",
            help="No pause in which nobody computes is unusual that is shorter; other limits are "
            "in proportion.",
        ),
    ] = 120.0,
    keep: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            callback=finite,
            metavar="DAYS",
            help="Remove this host's Cases after so many days; without it they stay.",
        ),
    ] = None,
    below: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="PID",
            help="Watch only jobs below this process, such as a container's first one.",
        ),
    ] = None,
    webhook: Annotated[
        str | None,
        typer.Option(
            metavar="URL|@FILE",
            help="Send each event there as JSON; @FILE has the URL where that is a secret itself.",
        ),
    ] = None,
    webhook_secret_file: Annotated[
        Path | None, typer.Option(help="File with the token that the webhook is to be shown.")
    ] = None,
    webhook_ca: Annotated[
        Path | None, typer.Option(help="Certificate (PEM) to trust at the webhook besides.")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="[ADDRESS:]PORT",
            help="Offer metrics for Prometheus there; loopback without an address. Without a "
            "token only this user and root are answered; beyond loopback it takes one, and TLS.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File whose content whoever reads metrics must show.")
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="Certificate (PEM) to speak TLS with; needs --tls-key.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key (PEM).")] = None,
    opentelemetry: Annotated[
        bool,
        typer.Option(
            "--opentelemetry",
            help="Send each verdict as an event, as `hanglab analyze --opentelemetry` does.",
        ),
    ] = False,
    until_idle: Annotated[
        float | None,
        typer.Option(
            min=1.0,
            callback=finite,
            metavar="SECONDS",
            help="End once no job has run here for so long.",
        ),
    ] = None,
    print_unit: Annotated[
        Literal["systemd", "slurm"] | None,
        typer.Option(help="Watch nothing: print a unit of systemd, or a prolog of Slurm."),
    ] = None,
    history: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            callback=finite,
            metavar="DAYS",
            help="Watch nothing: print the hosts that were culprits in so many days.",
        ),
    ] = None,
) -> int:
    """Watch the jobs of this host: learn the pace of each, and capture those that stop.

    Jobs are found among the processes that this user may look into (root: all),
    whether hanglab records them or not, and go on untouched. One that makes a
    pause as it has made none so far is captured into a Case, and judged. Runs
    until Ctrl-C or SIGTERM.
    """
    from hanglab.harness.errors import HanglabError, UsageError
    from hanglab.harness.watching.capturing import cases_here
    from hanglab.harness.watching.followups import Followups
    from hanglab.harness.watching.history import WatchHistory
    from hanglab.harness.watching.pace import PaceLimits
    from hanglab.harness.watching.places import state_folder
    from hanglab.harness.watching.retention import CaseRetention
    from hanglab.harness.watching.service import WatchService, WatchSettings
    from hanglab.harness.watching.telling import Teller

    if print_unit is not None:
        from hanglab.harness.watching.units import unit

        print(unit(print_unit), end="")
        return 0
    place = (state or state_folder()).absolute()
    if history is not None:
        return _show_history(WatchHistory(place / "watch.sqlite"), history)
    if (tls_certificate is None) != (tls_key is None):
        raise UsageError("TLS needs a certificate and its key.", "Give both, or neither.")
    url, folder = _places(out, place)
    if opentelemetry:
        from hanglab.harness.report.machines.opentelemetry_event import need_sdk

        need_sdk()
    limits = PaceLimits() if least == PaceLimits().still_s else PaceLimits().scaled(least)
    teller = Teller(_say, url=url, opentelemetry=opentelemetry)
    try:
        teller.history = WatchHistory(place / "watch.sqlite")
    except HanglabError as error:
        _say(f"{error} {error.advice}")
    teller.webhook = _webhook(webhook, webhook_secret_file, webhook_ca)
    settings = WatchSettings(folder, limits, end_jobs=then == "kill", below=below)
    if url is not None or opentelemetry:
        teller.followups = Followups(_say)
    retention = None
    if keep is not None:
        retention = CaseRetention(cases_here(folder), keep, _say, lambda: teller.unsent)
    service = WatchService(settings, teller.tell, _say, retention)
    server = _metrics(metrics, service, teller, token_file, tls_certificate, tls_key)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    offered = f"; metrics at port {server.port}" if server is not None else ""
    _say(f"watching this host's jobs; Cases go below {folder}{offered}")
    try:
        service.run(
            lambda: (
                stop.is_set()
                or (until_idle is not None and service.idle_s(time.monotonic()) > until_idle)
            )
        )
    finally:
        if server is not None:
            server.close()
        teller.close()
    return 0


def _places(out: str | None, state: Path) -> tuple[str | None, Path]:
    """The URL to send Cases to, if any, and the folder that they are written in."""
    from hanglab.harness.storage.locations import is_url, place_of

    if out is not None and "://" in out and is_url(out):
        place_of(out)  # says now what it lacks
        return out, state / "cases"
    return None, Path(out).absolute() if out is not None else state / "cases"


def _webhook(url: str | None, secret_file: Path | None, authority: Path | None) -> Webhook | None:
    from hanglab.harness.errors import UsageError
    from hanglab.harness.watching.webhook import Webhook

    if url is None:
        return None
    secret = None
    try:
        if url.startswith("@"):
            url = Path(url[1:]).read_text(encoding="utf-8").strip()
        if secret_file is not None:
            secret = secret_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The webhook's file cannot be read: {error}.") from None
    return Webhook(url, secret, authority, _say)


def _metrics(
    place: str | None,
    service: WatchService,
    teller: Teller,
    token_file: Path | None,
    certificate: Path | None,
    key: Path | None,
) -> MetricsServer | None:
    from hanglab.harness.errors import UsageError
    from hanglab.harness.recording.endpoints import read_token
    from hanglab.harness.watching.metrics import MetricsServer

    if place is None:
        return None
    address, _, port = place.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"{place} is no port.", "Give one such as 9477, or 127.0.0.1:9477.")
    return MetricsServer(
        address.strip("[]") or "127.0.0.1",
        int(port),
        lambda: teller.metrics(service.jobs, service.suspicions),
        read_token(token_file),
        certificate,
        key,
    )


def _show_history(history: WatchHistory, days: float) -> int:
    import datetime

    from rich.table import Table

    from hanglab.harness.report.panel import make_console

    hosts = history.culprit_hosts(days)
    if not hosts:
        print(f"No host was a culprit in {days:g} days.")
        return 0
    table = Table("host", "times", "jobs", "last", "causes", box=None)
    for one in hosts:
        last = datetime.datetime.fromtimestamp(one.last).isoformat(" ", "minutes")
        table.add_row(one.host, str(one.times), str(one.jobs), last, one.causes)
    make_console().print(table)
    return 0


def _say(text: str) -> None:
    print(f"hanglab: {text}", file=sys.stderr, flush=True)
