"""``hanglab history``: pass rates of scenarios over several runs, and which are flaky."""

from __future__ import annotations

from typing import Annotated

import typer

from hanglab.harness.cli.run_folders import RunFolders


def history(
    runs: RunFolders,
    everything: Annotated[
        bool, typer.Option("--all", help="Show scenarios without a failure, too.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON of all scenarios, and nothing else.")
    ] = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown, as for the page of a CI job.")
    ] = False,
) -> int:
    """Show how often each scenario passed, since when it fails, and which are flaky.

    A scenario is called flaky, always failing or changed only where its runs are enough for that.
    Those that need attention come first.
    """
    from hanglab.harness.errors import UsageError
    from hanglab.harness.evaluation.showing import print_tables, to_markdown
    from hanglab.harness.history.history import make_history
    from hanglab.harness.history.past_jobs import collect_past_jobs
    from hanglab.harness.history.tables import tables_of_history
    from hanglab.harness.jobs.stored_run import find_runs
    from hanglab.harness.report.panel import make_console

    if as_json and as_markdown:
        raise UsageError("--json and --markdown are two forms of one output.", "Give one of them.")
    found = make_history(collect_past_jobs(find_runs(runs)))
    if as_json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(found)).decode())
        return 0
    tables = tables_of_history(found, everything=everything)
    if as_markdown:
        print(to_markdown("hanglab: scenarios over time", tables), end="")
    else:
        print_tables(make_console(), tables)
    return 0
