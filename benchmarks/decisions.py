"""Measures for how many faults by a branch the verdict names the statement that parted the ranks.

    python benchmarks/decisions.py [--limit N] [--jobs N] [--out DIR] [--write docs/decisions.md]
    python benchmarks/decisions.py --stored DIR [--write docs/decisions.md]

Runs the mutants of ten training scripts (``training_scripts``) whose operator sends ranks two ways,
at most N of each script, and the scenarios on the first of gloo and the emulated NCCL that each is
for; all with recorded branches.  Prints by script, by operator and for the scenarios how many
decisions are right, absent and wrong, and each that is not right, and puts that into the page
between its two marks.  A mutant's right statement is one of those that it changed; a scenario's is
in the table below, and one that is named for any other scenario is wrong.  ``--stored`` analyzes
the Cases of an earlier run again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mutants import SCRIPTS, judge_again, run, write_into

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.verdict import Status, Verdict
from hanglab.harness.mutation.operator import own_operators
from hanglab.harness.mutation.table import MutationReport

MARKS = "<!-- decisions: begin -->", "<!-- decisions: end -->"
SCENARIOS = Path(__file__).parents[1] / "scenarios"
#: The statements that part the ranks of scenarios, as they begin: any of a scenario's is right.
PARTED_BY: Mapping[str, tuple[str, ...]] = {
    "abort_on_one_rank": ("if gives_up:", "if not restart:"),
    "any_source_unsent": ("elif not (job.faulty",),
    "batch_without_counterpart": ("if not (job.faulty",),
    "best_checkpoint_differs": ("if monitored >= self.best:",),
    "block_ahead": ("if not ahead:",),
    "cache_gate": ("if not cache.has_room(",),
    "cached_plan_split": ("if size not in self.cache:",),
    "checkpoint_not_seen": ("if not os.path.exists(path):",),
    "collective_mismatch": ("if overflowed:",),
    "combined_streams": ("for batch, _ in zip(", "try:"),
    "communicators_crossed": ("if job.faulty",),
    "compile_cache_differs": ("if rows not in self.traces:",),
    "crossed_on_device": ("if job.faulty",),
    "device_guessed": ("device = job.rank if job.faulty",),
    "drained_replica": ("if anybody_busy(",),
    "empty_shard_skipped": ("if shard.numel() == 0:",),
    "engine_not_in_second_world": ("if not (job.faulty",),
    "exception": ("if labels.max() >= CLASSES:",),
    "experts_without_tokens": ("if (chosen == number).any():",),
    "failure_told_too_early": ("if broken:",),
    "file_lock": ("if job.faulty",),
    "fork_after_threads": ("threads = 2 if job.faulty",),
    "fork_deadlock": ("if not (job.faulty",),
    "generation_ends_early": ("if tokens[-1] == END:",),
    "graph_replays_differ": ("if not (job.faulty",),
    "group_creation": ("if step == average_from:",),
    "group_order": ("if job.faulty",),
    "hidden_in_allocation": ("if job.faulty",),
    "host_far_ahead": ("if name != frozen:",),
    "idle_replica": ("if not (job.faulty",),
    "idle_watchdog": ("if step != self.loses:",),
    "io_blocked": ("if job.faulty",),
    "launch_queue_full": ("if step != self.loses:",),
    "lazy_gathers": ("if job.faulty",),
    "limit_of_subgroup": ("if not (job.faulty",),
    "logged_keys_differ": ("for name in sorted(metrics):",),
    "loop_beside_pool": ("if overtaken:",),
    "modality_skipped": ("if image is not None:",),
    "next_bucket": ("if job.faulty",),
    "no_gradients_early_return": ("if not gradients:",),
    "norm_in_evaluation_mode": ("if self.training:",),
    "own_clock_timeout": ("if batch:",),
    "p2p_deadlock": ("if send_first:",),
    "p2p_unmatched": ("elif not (padding",),
    "python_deadlock": ("if not (job.faulty",),
    "queue_drained_unevenly": ("while not self.updates.empty():",),
    "recomputed_on_one_rank": ("if job.faulty",),
    "saved_by_rank0_alone": ("if step % 5 == 4 and",),
    "skipped_after_restart": ("if not (job.faulty",),
    "skipped_collective": ("if not (job.faulty",),
    "split_left_out": ("if step == 5 and not (",),
    "stale_build_lock": ("if baton.try_acquire():",),
    "stopped_beside_saver": ("if job.faulty",),
    "teardown": ("if not (job.faulty",),
    "uneven_inputs": ("for _, (batch,) in zip(",),
    "unused_parameters": ("return loss + self.second(",),
    "version_not_announced": ("if job.rank == 0 and not (",),
    "wrong_group": ("if job.faulty",),
}


@dataclass
class Row:
    """Counts of decisions."""

    right: int = 0
    absent: int = 0
    wrong: int = 0

    def add(self, named: bool, right: bool) -> None:
        self.right += right
        self.absent += not named
        self.wrong += named and not right

    def cells(self) -> str:
        every = self.right + self.absent + self.wrong
        return f"{every} | {self.right} | {self.absent} | {self.wrong}"


@dataclass
class Miss:
    """A fault of which no statement is named, or another one."""

    where: str
    done: str
    verdict: str
    said: str


def run_mutants(folder: Path, limit: int, jobs: int) -> None:
    operators = ",".join(one.name for one in own_operators() if one.is_branch)
    for script in sorted(SCRIPTS.glob("*.py")):
        words = ("--operators", operators, "--jobs", str(jobs))
        run(script, limit, folder / script.stem, *words)


def run_scenarios(folder: Path, jobs: int) -> None:
    words = ["run", "--no-control", "--backend", "gloo,nccl-emulated", "--first-backend"]
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "hanglab.harness.cli", *words, "--jobs", str(jobs)]
    subprocess.run([*command, str(SCENARIOS)], cwd=folder)


def reason(verdict: Verdict) -> str:
    """The words of the verdict why no statement is named."""
    told = [one.detail for one in verdict.evidence if "is not named: " in one.detail]
    return told[0].rpartition("is not named: ")[2] if told else "nothing shows that one parted them"


def said(verdict: Verdict) -> str:
    decision = verdict.decision
    return reason(verdict) if decision is None else f"line {decision.line}: `{decision.text}`"


def short(verdict: Verdict) -> str:
    cause = verdict.cause.value if verdict.cause else verdict.status.value
    return f"{cause} by {', '.join(map(str, verdict.culprits)) or 'nobody'}"


def of_mutants(
    folder: Path, reports: Mapping[str, MutationReport], misses: list[Miss]
) -> tuple[dict[str, Row], dict[str, Row]]:
    """Counts by script, and by operator."""
    scripts: defaultdict[str, Row] = defaultdict(Row)
    operators: defaultdict[str, Row] = defaultdict(Row)
    for name, report in reports.items():
        for one in report.mutants:
            if one.branch_named is None:
                continue
            for row in (scripts[name], operators[one.operator]):
                row.add(one.branch_named, bool(one.branch_right))
            if not one.branch_right:
                verdict = analyze(folder / name / "jobs" / one.mutant / "fault" / "0" / "case")
                misses.append(Miss(name, one.summary, short(verdict), said(verdict)))
    return scripts, operators


def of_scenarios(folder: Path, misses: list[Miss]) -> dict[str, Row]:
    """Counts of those that a statement parts, and of all others that do not end well."""
    parted, others = Row(), Row()
    cases = sorted(folder.glob("runs/latest/**/fault/0/case"))
    with ProcessPoolExecutor() as pool:
        verdicts = pool.map(analyze, cases)
        for case, verdict in zip(cases, verdicts, strict=True):
            name = case.parents[2].name
            statements = PARTED_BY.get(name, ())
            if not statements and verdict.status in (Status.HEALTHY, Status.SLOW):
                continue
            text = verdict.decision.text if verdict.decision else ""
            right = text.startswith(statements) if statements else not text
            row = parted if statements else others
            row.add(bool(text) or right, right)
            if not right:
                done = "; ".join(statements) or "no statement parts them"
                misses.append(Miss(name, done, short(verdict), said(verdict)))
    return {"parted by a statement": parted, "all others: none is named": others}


def table(first: str, rows: Mapping[str, Row]) -> str:
    lines = [f"| {first} | faults | right | absent | wrong |", "|---|---:|---:|---:|---:|"]
    lines += [f"| {name} | {row.cells()} |" for name, row in rows.items()]
    return "\n".join(lines)


def total(rows: Iterable[Row]) -> Row:
    every = Row()
    for row in rows:
        every.right, every.absent = every.right + row.right, every.absent + row.absent
        every.wrong += row.wrong
    return every


def page(folder: Path) -> str:
    reports = {
        script.stem: judge_again(script, folder / script.stem)
        for script in sorted(SCRIPTS.glob("*.py"))
        if (folder / script.stem / "report.json").exists()
    }
    misses: list[Miss] = []
    scripts, operators = of_mutants(folder, reports, misses)
    scenarios = of_scenarios(folder / "scenarios", misses)
    lines = [
        (folder / "load").read_text().strip(),
        "",
        table("script", {**scripts, "all": total(scripts.values())}),
        "",
        table("operator", dict(sorted(operators.items()))),
        "",
        table("scenarios", scenarios),
        "",
        "| where | what parted them | verdict | named instead, or why none is |",
        "|---|---|---|---|",
    ]
    lines += [f"| {one.where} | {one.done} | {one.verdict} | {one.said} |" for one in misses]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=int, default=24)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("artifacts/decisions"))
    parser.add_argument("--stored", type=Path)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    folder = options.stored
    if folder is None:
        folder = options.out / time.strftime("%Y%m%d-%H%M%S")
        run_mutants(folder, options.limit, options.jobs)
        run_scenarios(folder / "scenarios", options.jobs)
        load = " ".join(f"{one:.1f}" for one in os.getloadavg())
        (folder / "load").write_text(
            f"4 ranks each on gloo, {os.cpu_count()} cores, {options.jobs} job(s) at a time; load "
            f"{load} at the end."
        )
    text = page(folder)
    print(text)
    if options.write:
        write_into(options.write, text, *MARKS)


if __name__ == "__main__":
    main()
