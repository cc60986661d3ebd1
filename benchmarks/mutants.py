"""Measures how many mutants of ten training scripts are found, by cause, rank and line.

    python benchmarks/mutants.py [--limit N] [--out DIR] [--write docs/accuracy.md] [SCRIPT ...]
    python benchmarks/mutants.py --stored DIR ... [--write docs/accuracy.md]

Runs ``hanglab mutate`` on each script below ``training_scripts`` with 4 ranks, two jobs at a
time, prints the figures by script and by operator and each miss, and puts them into the page
between its two marks.  A script whose original is not healthy counts as such.  ``--stored``
analyzes and judges the Cases of earlier runs again, each of the script of its folder's name, in the
place of jobs; of several folders of one script the later ones replace mutants by their operators.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec

from hanglab.analyzer.engine import analyze
from hanglab.harness.jobs.run_folder import JobFolder
from hanglab.harness.mutation.judgement import Fate, MutantJudgement, judge
from hanglab.harness.mutation.mutant import choose_mutations, mutant_name, named_mutant
from hanglab.harness.mutation.observation import observe
from hanglab.harness.mutation.operator import MutationTarget, own_operators
from hanglab.harness.mutation.pace import chance_share
from hanglab.harness.mutation.results import make_report
from hanglab.harness.mutation.source import Script
from hanglab.harness.mutation.statement_counts import Profile
from hanglab.harness.mutation.table import MutationReport, count, count_by_operator, markdown_table

WORLD_SIZE = 4
SCRIPTS = Path(__file__).with_name("training_scripts")
BEGIN, END = "<!-- mutants: begin -->", "<!-- mutants: end -->"
#: Operators whose mutants only cost time; what of it can be seen depends on the machine.
SLOWING = ("slow_section_1.2", "slow_section_1.5", "slow_section_3", "intermittent_stall")


def run(script: Path, limit: int, folder: Path, *options: str) -> MutationReport | None:
    """The report of one script; None where its original does not run or is not healthy.

    ``options`` are further ones of ``hanglab mutate``.
    """
    words = ["mutate", str(script), "--limit", str(limit), "--out", str(folder), *options]
    code = subprocess.run([sys.executable, "-m", "hanglab.harness.cli", *words]).returncode
    report = folder / "report.json"
    if code in (3, 64) or not report.exists():
        return None
    return msgspec.json.decode(report.read_bytes(), type=MutationReport)


def judge_again(script: Path, folder: Path) -> MutationReport:
    """The report of an earlier run by today's analyzer, and what it must say by today's operators.

    Mutants that would be others today are left out, and said.
    """
    target = MutationTarget(Script(script), Profile.read(folder / "truth", WORLD_SIZE))
    earlier = msgspec.json.decode((folder / "report.json").read_bytes(), type=MutationReport)
    summaries = {one.mutant: one.summary for one in earlier.mutants}
    kinds = dict.fromkeys(one.operator for one in earlier.mutants)
    by_name = {one.name: one for one in own_operators()}
    operators = [by_name[kind] for kind in kinds if kind in by_name]
    control = JobFolder(folder / "jobs" / "original" / "control" / "0")
    chance = chance_share(control.case)
    mutants = []
    for number, (operator, mutation) in enumerate(
        choose_mutations(target, operators, len(earlier.mutants)), 1
    ):
        name = mutant_name(number, operator)
        if summaries.get(name) != mutation.summary:
            print(f"{folder}: {name} is another one today", file=sys.stderr)
            continue
        mutants.append(named_mutant(name, operator, mutation, target.script, folder / "mutants"))
    jobs = [JobFolder(folder / "jobs" / one.name / "fault" / "0") for one in mutants]
    with ProcessPoolExecutor() as pool:
        verdicts = pool.map(analyze, [job.case for job in jobs])
        judged = [
            judge(
                mutant,
                verdict,
                observe(job, folder / "truth", mutant.path, control),
                chance_share=chance,
            )
            for mutant, job, verdict in zip(mutants, jobs, verdicts, strict=True)
        ]
    return make_report(
        script.name,
        WORLD_SIZE,
        earlier.backend,
        judged,
        seconds=earlier.seconds,
        interrupted=False,
    )


def stored(folders: Sequence[Path]) -> dict[str, MutationReport | None]:
    """Reports of earlier runs, by the names of their folders."""
    reports: dict[str, MutationReport | None] = {}
    for folder in folders:
        name = folder.name
        report = judge_again(SCRIPTS / f"{name}.py", folder)
        before = reports.get(name)
        if before is not None:
            # What costs time is measured better where nothing else runs.
            kinds = {one.operator for one in report.mutants}
            kept = [one for one in before.mutants if one.operator not in kinds]
            report.mutants = [*kept, *report.mutants]
            report.seconds += before.seconds
        reports[name] = report
    return reports


def page(reports: dict[str, MutationReport | None]) -> str:
    """The figures in Markdown."""
    done = {name: report for name, report in reports.items() if report is not None}
    every = [one for report in done.values() for one in report.mutants]
    stopping = [one for one in every if one.operator not in SLOWING]
    slowing = [one for one in every if one.operator in SLOWING]
    by_script = [count(name, report.mutants) for name, report in done.items()]
    seconds = sum(report.seconds for report in done.values())
    failed = [name for name, report in reports.items() if report is None]
    lines = [
        f"{len(every)} mutants of {len(done)} scripts, 4 ranks each, on gloo; {os.cpu_count()} "
        f"cores, two jobs at a time, {seconds:.0f} s in all.",
        "",
        markdown_table([*by_script, count("all", every)], first="script"),
        "",
        markdown_table(
            [count("hang, fail or corrupt", stopping), count("cost time", slowing)],
            first="faults that",
        ),
        "",
        markdown_table(count_by_operator(every)),
        "",
        "Originals that were not healthy: " + (", ".join(failed) or "none") + ".",
        "",
        "### What was missed",
        "",
        "| script | mutant | what was done | expected | verdict | line |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        missed(name, one)
        for name, report in done.items()
        for one in report.mutants
        if one.fate is Fate.MISSED or one.accused
    ]
    return "\n".join(lines)


def missed(script: str, one: MutantJudgement) -> str:
    wrong = [
        word
        for word, right in (
            ("cause", one.cause_right),
            ("rank", one.rank_right),
            ("line", one.line_right is not False),
        )
        if not right
    ]
    causes = " or ".join(cause.value for cause in one.expected_causes)
    ranks = ", ".join(map(str, one.expected_culprits))
    place = (one.location or "-").rpartition(":")[2]
    accused = f"; innocent: {', '.join(map(str, one.accused))}" if one.accused else ""
    return (
        f"| {script} | {one.operator} | {one.summary} | {causes} by {ranks} | "
        f"{one.verdict}{accused} | {place} ({', '.join(wrong) or 'accused'} wrong) |"
    )


def write_into(target: Path, text: str, begin: str = BEGIN, end: str = END) -> None:
    """Puts a text between two marks of a page."""
    whole = target.read_text()
    before, _, rest = whole.partition(begin)
    _, _, after = rest.partition(end)
    target.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scripts", nargs="*", type=Path)
    parser.add_argument("--limit", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path("artifacts/mutants"))
    parser.add_argument("--write", type=Path)
    parser.add_argument("--stored", nargs="+", type=Path, default=[])
    options = parser.parse_args()
    reports = stored(options.stored)
    scripts = options.scripts or sorted(SCRIPTS.glob("*.py"))
    for script in [] if options.stored else scripts:
        folder = options.out / time.strftime(f"{script.stem}-%Y%m%d-%H%M%S")
        reports[script.stem] = run(script, options.limit, folder)
    text = page(reports)
    print(text)
    if options.write:
        write_into(options.write, text)


if __name__ == "__main__":
    main()
