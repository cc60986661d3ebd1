"""The commands and their options, gathered."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hanglab.harness.cli.agent import agent
from hanglab.harness.cli.analyze import analyze
from hanglab.harness.cli.capture import capture
from hanglab.harness.cli.clean import clean
from hanglab.harness.cli.corpus import corpus
from hanglab.harness.cli.doctor import doctor
from hanglab.harness.cli.entries import entries
from hanglab.harness.cli.evaluate import evaluate
from hanglab.harness.cli.explain import explain
from hanglab.harness.cli.history import history
from hanglab.harness.cli.listing import list_scenarios
from hanglab.harness.cli.live import live
from hanglab.harness.cli.manifest import manifest
from hanglab.harness.cli.mcp import mcp
from hanglab.harness.cli.merge import merge
from hanglab.harness.cli.minimise import minimise
from hanglab.harness.cli.mutate import mutate
from hanglab.harness.cli.new import new
from hanglab.harness.cli.pack import pack
from hanglab.harness.cli.packs import packs
from hanglab.harness.cli.profile import profile
from hanglab.harness.cli.record import record
from hanglab.harness.cli.redact import redact
from hanglab.harness.cli.replay import replay
from hanglab.harness.cli.report import report
from hanglab.harness.cli.run import run
from hanglab.harness.cli.simulate import simulate
from hanglab.harness.cli.stragglers import stragglers
from hanglab.harness.cli.trace import trace
from hanglab.harness.cli.unpack import unpack
from hanglab.harness.cli.upload import upload
from hanglab.harness.cli.watch import watch


class Commands(TyperGroup):
    """Typer would turn Ctrl-C into an exit code without a word."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Abort() from None


app = typer.Typer(
    cls=Commands,
    help=(
        "Reproduces distributed-training hangs on purpose, records what the job left behind, "
        "and names the root cause."
    ),
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("list")(list_scenarios)
app.command()(packs)
app.command()(run)
app.command()(merge)
app.command()(history)
app.command(options_metavar="[OPTIONS] -- COMMAND ...")(record)
app.command()(live)
app.command()(capture)
app.command()(pack)
app.command()(unpack)
app.command()(redact)
app.command()(upload)
app.command()(watch)
app.command()(analyze)
app.command()(explain)
app.command()(entries)
app.command()(stragglers)
app.command()(report)
app.command()(trace)
app.command()(simulate)
app.command()(replay)
app.command("eval")(evaluate)
app.add_typer(corpus, name="corpus")
app.add_typer(new, name="new")
app.command()(minimise)
app.command()(mutate)
app.command()(profile)
app.command()(agent)
app.command()(mcp)
app.add_typer(manifest, name="manifest")
app.command()(clean)
app.command()(doctor)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(version("hanglab"))
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass
