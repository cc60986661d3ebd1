"""Causes of slow jobs: the same lateness, filled by different things.

Jobs are simulated (tests/analyzer/facts/arrival_builders.py), and what the
recorder notes beside operations is added; whole jobs are run by the scenarios.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from arrival_builders import START, Simulated

from hanglab.analyzer.causes.straggler.slow_job import slow_job
from hanglab.analyzer.facts.host import HostView
from hanglab.analyzer.facts.sampled_lines import busiest_line
from hanglab.analyzer.verdict import Cause
from hanglab.recorder.case.host_records import HostSample, RankLoad
from hanglab.recorder.case.progress_records import (
    Batch,
    Fetches,
    Pause,
    SectionEvent,
    SectionTotal,
    Usage,
)
from hanglab.recorder.case.records import Clock, LineCount

WORLD = {"0": (0, 1, 2, 3)}
STEPS = 60


def at(ms):
    return START + round(ms * 1e6)


class Job:
    """Steps of about 10 ms; ``late`` adds to a rank's own time of a step, in milliseconds."""

    def __init__(self, late=lambda rank, step: 0.0, members=WORLD, steps=STEPS):
        chance = random.Random(1)
        simulated = Simulated.of(members)
        #: Moments at which each rank began its steps.
        self.begins = {rank: [] for rank in simulated.now}
        for step in range(steps):
            for rank, now in simulated.now.items():
                self.begins[rank].append(now)
            simulated.work(lambda rank, step=step: 10 + chance.random() + late(rank, step))
            for group in members:
                simulated.meet(group)
        self.end = max(simulated.now.values())
        self.known = simulated.evidence()

    def uses(self, cpu: Mapping[int, float], waited: Mapping[int, float] | None = None):
        """Processor time of a whole step, and time without a processor, by rank; ms."""
        steps = len(self.begins[0])
        for rank, view in self.known.ranks.items():
            view.progress.usage = [
                Usage(
                    at_ns=at(self.end * i / 50),
                    cpu_ns=round(cpu.get(rank, 8.0) * 1e6 * steps * i / 50),
                    waited_ns=round((waited or {}).get(rank, 0.5) * 1e6 * steps * i / 50),
                    involuntary=0,
                )
                for i in range(51)
            ]
        return self

    def section(self, name, kind, ms, cpu_ms):
        """A section at the beginning of each step; ``ms(rank, step)`` long."""
        for rank, view in self.known.ranks.items():
            events = [
                SectionEvent(
                    name,
                    at(begin),
                    round(ms(rank, step) * 1e6),
                    round(cpu_ms(rank, step) * 1e6),
                    step,
                )
                for step, begin in enumerate(self.begins[rank])
            ]
            view.progress.section_events += events
            view.progress.section_totals.append(
                SectionTotal(
                    name,
                    kind,
                    len(events),
                    sum(e.wall_ns for e in events),
                    sum(e.cpu_ns for e in events),
                )
            )
        return self

    def verdicts(self):
        return {p.finding.cause: p.finding for p in slow_job(self.known)}


def late_by(ms, *ranks):
    return lambda rank, step: ms if rank in ranks else 0.0


def test_more_processor_time_is_slow_compute():
    job = Job(late_by(8, 2)).uses({2: 16})
    job.section("a", "", lambda r, s: 12 if r == 2 else 5, lambda r, s: 12 if r == 2 else 5)
    job.section("b", "", lambda r, s: 3, lambda r, s: 3)
    found = job.verdicts()
    assert list(found) == [Cause.SLOW_COMPUTE]
    finding = found[Cause.SLOW_COMPUTE]
    assert finding.culprits == [2]
    assert finding.victims == [0, 1, 3]
    assert finding.effect.section == "a"
    assert finding.effect.ms_per_step == pytest.approx(8, abs=0.7)
    assert finding.effect.share_of_step == pytest.approx(8 / 19, abs=0.05)


def test_two_culprits_of_one_cause():
    assert Job(late_by(8, 1, 2)).uses({1: 16, 2: 16}).verdicts()[Cause.SLOW_COMPUTE].culprits == [
        1,
        2,
    ]


@pytest.mark.parametrize(
    ("late", "cpu"),
    [
        (late_by(0), {}),  # nobody
        (late_by(0), {2: 16}),  # works more, but costs nobody anything
        (late_by(0.5), {2: 9}),  # too little
        (late_by(8, 2), {}),  # late, and nothing tells why
        (lambda rank, step: 2000.0 * ((rank, step) == (2, 30)), {2: 12}),  # once
    ],
    ids=["nobody", "no cost", "too little", "no reason", "once"],
)
def test_nobody_is_accused_without_both_cost_and_reason(late, cpu):
    assert Job(late).uses(cpu).verdicts() == {}


def test_noise_of_a_crowded_machine_is_no_slow_compute():
    """A fifth more processor time, and late now and then: seen on identical work."""
    chance = random.Random(5)
    job = Job(lambda rank, step: chance.choice((0, 0, 12)) if rank == 3 else chance.choice((0, 8)))
    assert job.uses({3: 9.6}).verdicts() == {}


def test_a_section_tells_a_small_excess_from_noise():
    """As little more work, but each entry of one section shows it, the quickest too."""
    chance = random.Random(5)
    job = Job(lambda rank, step: (2.2 if rank == 3 else 0) + chance.choice((0, 1)))
    job.uses({0: 12, 1: 12, 2: 12, 3: 14.2})
    assert job.verdicts() == {}
    spent = {3: 7.8}
    job.section(
        "x", "", lambda r, s: 9, lambda r, s: spent.get(r, 6.0) + chance.choice((0, 0, 2.0))
    )
    assert job.verdicts()[Cause.SLOW_COMPUTE].culprits == [3]


def test_garbage_collected_while_others_wait():
    def late(rank, step):
        return 20.0 if rank == 1 and step % 3 == 0 else 0.0

    job = Job(late).uses({1: 8 + 20 / 3})
    # Without the collections it would look like work.
    assert list(job.verdicts()) == [Cause.SLOW_COMPUTE]
    job.known.ranks[1].progress.pauses = [
        Pause(at(begin + 1), 20_000_000, 2, 0)
        for step, begin in enumerate(job.begins[1])
        if step % 3 == 0
    ]
    found = job.verdicts()
    assert list(found) == [Cause.GC_PAUSE]
    assert found[Cause.GC_PAUSE].culprits == [1]
    assert found[Cause.GC_PAUSE].location is None


def test_ranks_that_collect_garbage_in_turns():
    job = Job(lambda rank, step: 15.0 if step % 4 == rank else 0.0).uses({})
    assert job.verdicts() == {}
    for rank, view in job.known.ranks.items():
        view.progress.pauses = [
            Pause(at(begin + 1), 15_000_000, 2, 0)
            for step, begin in enumerate(job.begins[rank])
            if step % 4 == rank
        ]
    found = job.verdicts()
    assert list(found) == [Cause.GC_PAUSE]
    assert found[Cause.GC_PAUSE].culprits == [0, 1, 2, 3]


def test_garbage_collected_by_all_at_once_costs_nobody():
    job = Job(lambda rank, step: 15.0 if step % 4 == 0 else 0.0).uses({})
    for rank, view in job.known.ranks.items():
        view.progress.pauses = [
            Pause(at(begin + 1), 15_000_000, 2, 0)
            for step, begin in enumerate(job.begins[rank])
            if step % 4 == 0
        ]
    assert job.verdicts() == {}


def draw(job, elements):
    for rank, view in job.known.ranks.items():
        view.progress.batches = [
            Batch(at(begin), elements(rank, step)) for step, begin in enumerate(job.begins[rank])
        ]
    return job


def test_larger_batches_account_for_more_work():
    job = draw(Job(late_by(8, 1)).uses({1: 15}), lambda rank, step: 1900 if rank == 1 else 1000)
    found = job.verdicts()
    assert list(found) == [Cause.IMBALANCE]
    assert found[Cause.IMBALANCE].culprits == [1]


def test_batches_that_are_hardly_larger_do_not():
    """1.2 times the input does not make 2.5 times the work, even where work is quadratic."""
    job = draw(Job(late_by(12, 1)).uses({1: 20}), lambda rank, step: 1200 if rank == 1 else 1000)
    assert list(job.verdicts()) == [Cause.SLOW_COMPUTE]


def test_whoever_has_the_largest_batch_is_late():
    chance = random.Random(3)
    sizes = {rank: [chance.choice((500, 2500)) for _ in range(STEPS)] for rank in range(4)}
    job = Job(lambda rank, step: sizes[rank][step] / 150).uses({})
    found = draw(job, lambda rank, step: sizes[rank][step]).verdicts()
    assert list(found) == [Cause.IMBALANCE]
    shuffled = {rank: chance.sample(sizes[rank], STEPS) for rank in range(4)}
    assert draw(job, lambda rank, step: shuffled[rank][step]).verdicts() == {}


def placed(job, cpus):
    """Every rank's processors, as the host's samples have them."""
    loads = [RankLoad(rank, 0, 100 + rank, cpus=cpus[rank]) for rank in sorted(job.known.ranks)]
    for view in job.known.ranks.values():
        view.host = "one"
    job.known.hosts = {"one": HostView("one", [HostSample(at=Clock(START, 0), ranks=loads)])}
    return job


def test_kept_from_the_one_processor_that_it_may_use():
    job = Job(late_by(9, 1)).uses({1: 10}, waited={1: 9.5})
    found = placed(job, {0: "0-7", 1: "3", 2: "0-7", 3: "0-7"}).verdicts()
    assert list(found) == [Cause.SLOW_HOST]
    assert found[Cause.SLOW_HOST].culprits == [1]


def test_delay_on_processors_that_all_share_is_nobodys_fault():
    for steps in (STEPS, 40 * STEPS):
        job = Job(late_by(9, 1), steps=steps).uses({1: 8}, waited={1: 9.5})
        assert placed(job, dict.fromkeys(range(4), "0-7")).verdicts() == {}


def loader(job, ms, cpu_ms=lambda rank, step: 0.1):
    return job.section("dataloader", "input", ms, cpu_ms)


def test_one_rank_waits_for_its_input():
    late = late_by(20, 1)
    job = loader(Job(late).uses({}), lambda rank, step: 20.5 if rank == 1 else 0.5)
    found = job.verdicts()
    assert list(found) == [Cause.SLOW_INPUT]
    assert found[Cause.SLOW_INPUT].culprits == [1]
    assert found[Cause.SLOW_INPUT].effect.section == "dataloader"


def test_work_in_the_loader_of_the_rank_itself_is_input_not_compute():
    job = Job(late_by(20, 1)).uses({1: 28})
    loader(
        job,
        lambda rank, step: 20.5 if rank == 1 else 0.5,
        lambda rank, step: 20.0 if rank == 1 else 0.4,
    )
    assert list(job.verdicts()) == [Cause.SLOW_INPUT]


def test_where_all_starve_nobody_is_accused():
    chance = random.Random(2)
    waits = {rank: [chance.uniform(20, 45) for _ in range(STEPS)] for rank in range(4)}
    job = Job(lambda rank, step: waits[rank][step]).uses({})
    found = loader(job, lambda rank, step: waits[rank][step]).verdicts()
    assert list(found) == [Cause.INPUT_STARVED]
    assert found[Cause.INPUT_STARVED].culprits == [0, 1, 2, 3]
    assert found[Cause.INPUT_STARVED].victims == []


def test_a_third_of_a_second_of_waiting_is_no_starved_job() -> None:
    """Loaders that are kept from a processor for a moment, as a crowded machine does."""
    for steps, found in ((14, []), (60, [Cause.INPUT_STARVED])):
        job = Job(lambda rank, step: 12.0, steps=steps).uses({})
        assert list(loader(job, lambda rank, step: 12.0).verdicts()) == found


def test_a_starved_rank_and_a_slow_one_are_two_findings():
    job = Job(lambda rank, step: {1: 25.0, 2: 12.0}.get(rank, 0.0)).uses({2: 20})
    found = loader(job, lambda rank, step: 25.0 if rank == 1 else 0.5).verdicts()
    assert {cause: f.culprits for cause, f in found.items()} == {
        Cause.SLOW_INPUT: [1],
        Cause.SLOW_COMPUTE: [2],
    }


# A crowded machine.


def test_a_rank_that_is_kept_from_its_processor_is_not_slow_at_its_work():
    """As measured on a control among busy neighbours: a third more processor time, too."""
    job = Job(late_by(20, 0)).uses({rank: 12.3 if rank == 0 else 9.3 for rank in range(4)})
    job.section("a", "", lambda r, s: 25, lambda r, s: 8.3 if r == 0 else 6.5)
    assert job.verdicts()[Cause.SLOW_COMPUTE].culprits == [0]
    kept = Job(late_by(20, 0)).uses(
        {rank: 12.3 if rank == 0 else 9.3 for rank in range(4)}, waited={0: 20.5}
    )
    kept.section("a", "", lambda r, s: 25, lambda r, s: 8.3 if r == 0 else 6.5)
    assert kept.verdicts() == {}


def test_a_slow_processor_makes_every_section_slower():
    def job(update):
        job = Job(late_by(8, 2)).uses({2: 16})
        job.section("a", "", lambda r, s: 8, lambda r, s: 12 if r == 2 else 6)
        return job.section("b", "update", lambda r, s: 2, lambda r, s: update if r == 2 else 1)

    assert job(update=2).verdicts() == {}
    assert job(update=1.1).verdicts()[Cause.SLOW_COMPUTE].culprits == [2]


def test_a_burst_of_work_is_not_persistent():
    """Eight times the processor time, in a tenth of the time."""
    job = Job(lambda rank, step: 60.0 if rank == 2 and 20 <= step < 24 else 0.0).uses({})
    view = job.known.ranks[2].progress
    for i, look in enumerate(view.usage):
        look.cpu_ns += round(700e6 * min(1.0, max(0.0, (i - 20) / 5)))
    assert job.verdicts() == {}
    for i, look in enumerate(view.usage):
        look.cpu_ns += round(700e6 * i / 50)
    assert job.verdicts()[Cause.SLOW_COMPUTE].culprits == [2]


def seen(job, rank, line, count, below=""):
    job.known.ranks[rank].lines.append(LineCount("train.py", "step", line, count, below))


@pytest.mark.parametrize("kept", [False, True])
def test_a_rank_seen_at_a_line_of_its_own(kept):
    job = Job(late_by(9, 1)).uses({}, waited={1: 9.5} if kept else {})
    for rank in range(4):
        seen(job, rank, 7, 40)
    seen(job, 1, 9, 60)
    found = job.verdicts()
    if kept:
        assert found == {}
    else:
        assert found[Cause.SLOW_COMPUTE].location.line == 9


def test_a_line_of_its_own_in_a_job_that_took_longer_to_start() -> None:
    job = Job(late_by(9, 1)).uses({})
    for rank in range(4):
        seen(job, rank, 1, 200 + 3 * rank)  # the imports
        seen(job, rank, 7, 40)
    seen(job, 1, 9, 60)
    found = job.verdicts()[Cause.SLOW_COMPUTE]
    assert found.culprits == [1] and found.location is not None and found.location.line == 9


def test_a_line_that_a_late_rank_is_seldom_seen_at_accounts_for_nothing() -> None:
    """9 ms of each of 60 steps are 11 samples; five or less are not the main part of them."""
    for count, accused in ((1, []), (4, [1])):
        job = Job(late_by(9, 1)).uses({})
        for rank in range(4):
            seen(job, rank, 7, 40)
        for line in (9, 10):
            seen(job, 1, line, count)
        seen(job, 1, 11, 200, below="communication")
        assert [f.culprits for f in job.verdicts().values()] == [accused] * bool(accused)


@pytest.mark.parametrize(
    ("members", "waited", "culprits"),
    [
        (WORLD, 1.0, [2]),
        (WORLD, 0.1, []),
        ({"0": (0, 1), "1": (2, 3)}, 1.0, []),  # as stages, which nothing compares
    ],
)
def test_where_processors_lack_a_section_tells_and_nobody_is_said_to_wait(
    members: dict[str, tuple[int, ...]], waited: float, culprits: list[int]
) -> None:
    job = Job(members=members).uses({2: 14}, waited=dict.fromkeys(range(4), waited))
    job.section("a", "", lambda r, s: 9, lambda r, s: 12 if r == 2 else 6)
    found = list(job.verdicts().values())
    assert [f.culprits for f in found] == [culprits] * bool(culprits)
    for finding in found:
        assert "ranks wait for processors" in finding.summary
        assert "they wait for it" not in finding.summary
        assert finding.confidence >= 0.65


@pytest.mark.parametrize(
    ("count", "accused"),
    [(0, [1]), (5, []), (9, [1])],  # nobody took samples; they saw less than half of it; more
)
def test_what_a_rank_computes_more_is_found_where_it_was_seen(
    count: int, accused: list[int]
) -> None:
    """9 ms of each of 60 steps are 11 samples, and no section holds them."""
    job = Job(late_by(9, 1)).uses({1: 17})
    job.section("a", "", lambda r, s: 8, lambda r, s: 6)
    for rank in range(4) if count else ():
        seen(job, rank, 7, 40)
        seen(job, rank, 9, count if rank == 1 else 0)
    assert [f.culprits for f in job.verdicts().values()] == [accused] * bool(accused)


@pytest.mark.parametrize(("cpu", "accused"), [(17, []), (40, [1])])
def test_what_takes_many_times_the_processor_is_work_wherever_it_was_seen(
    cpu: int, accused: list[int]
) -> None:
    """Threads of the rank that take the interpreter's lock from it: no line holds what it lacks."""
    job = Job(late_by(9, 1)).uses({1: cpu})
    for rank in range(4):
        seen(job, rank, 7, 40)
        seen(job, rank, 9, 5)
    assert [f.culprits for f in job.verdicts().values()] == [accused] * bool(accused)


def test_a_late_rank_that_is_seen_here_and_there_as_its_peers_are_is_not_blocked() -> None:
    """Seen on a control: five samples at lines of its own, as many as each of its peers had."""
    for mine, accused in ((6, []), (18, [1])):
        job = Job(late_by(9, 1)).uses({})
        for rank in range(4):
            seen(job, rank, 7, 40)
            for line in range(2):
                seen(job, rank, 20 + 2 * rank + line, mine if rank == 1 else 6)
        assert [f.culprits for f in job.verdicts().values()] == [accused] * bool(accused)


@pytest.mark.parametrize("peers", [1, 2, 3])
def test_peers_that_wait_within_a_backward_pass_are_not_at_lines_of_their_own(peers: int) -> None:
    """A hook of one rank's gradient sleeps; the others are seen in the call that they wait in."""
    members = tuple(range(peers + 1))
    job = Job(late_by(9, 1), members={"0": members}).uses(dict.fromkeys(members, 2.0))
    for rank in members:
        seen(job, rank, 23, 1 if rank == 1 else 14)
    seen(job, 1, 10, 11)
    finding = job.verdicts()[Cause.SLOW_COMPUTE]
    assert finding.culprits == [1]
    assert finding.location is not None and finding.location.line == 10


@pytest.mark.parametrize(
    ("members", "slow"), [((0, 1, 2), {2}), ((0, 1, 2, 3), {0, 3}), ((0, 1, 2, 3, 4), {1, 4})]
)
def test_ranks_that_are_blocked_at_the_line_that_all_are_at(
    members: tuple[int, ...], slow: set[int]
) -> None:
    """28 % of the time, and no processor time: a remote call that takes them longer."""
    job = Job(late_by(4, *slow), members={"0": members}).uses(dict.fromkeys(members, 2.0))
    for rank in members:
        seen(job, rank, 7, 17 if rank in slow else 12)
    finding = job.verdicts()[Cause.SLOW_COMPUTE]
    assert set(finding.culprits) == slow
    assert finding.location is not None and finding.location.line == 7
    assert finding.effect is not None and finding.effect.ms_per_step == pytest.approx(4, abs=0.4)
    assert f"longer than {'its' if len(slow) == 1 else 'their'} peers, blocked" in finding.summary


def test_what_is_blocked_by_the_wait_for_a_peer_is_nobodys_own() -> None:
    """Rank 1 waits for a key that rank 0 sets when it is through with what keeps it."""
    job = Job(late_by(9, 0, 1)).uses({})
    for rank in range(4):
        seen(job, rank, 7, 40)
    seen(job, 0, 9, 11)
    seen(job, 1, 12, 11, below="communication")
    assert job.verdicts()[Cause.SLOW_COMPUTE].culprits == [0]


def test_operations_in_a_row_are_one_step() -> None:
    """Eight an iteration: 8 ms longer before the first of them are 1 ms an operation."""
    chance = random.Random(1)
    simulated = Simulated.of({"0": (0, 1, 2)})
    for _ in range(STEPS):
        simulated.work(lambda rank: 4 + chance.random() + (8 if rank == 1 else 0))
        for _ in range(8):
            simulated.work(lambda rank: 0.05 * chance.random())
            simulated.meet("0")
    job = object.__new__(Job)
    job.known, job.begins = simulated.evidence(), {0: [0.0] * STEPS}
    job.end = max(simulated.now.values())
    finding = job.uses({0: 5.0, 1: 13.0, 2: 5.0}).verdicts()[Cause.SLOW_COMPUTE]
    assert finding.culprits == [1]
    assert finding.effect is not None and finding.effect.ms_per_step == pytest.approx(8, abs=0.5)


def test_a_rank_without_progress_hides_no_other() -> None:
    job = Job(late_by(8, 2)).uses({2: 16})
    job.known.ranks[3].progress = None
    assert job.verdicts()[Cause.SLOW_COMPUTE].culprits == [2]
    job.known.ranks[2].progress = None
    assert job.verdicts() == {}


def test_garbage_that_all_collect_accounts_for_no_other_lateness():
    job = Job(lambda rank, step: 15.0 + (10.0 if rank == 3 else 0.0)).uses({}, waited={3: 10.5})
    for rank, view in job.known.ranks.items():
        view.progress.pauses = [
            Pause(at(begin + 1), 15_000_000, 2, 0) for begin in job.begins[rank]
        ]
    assert job.verdicts() == {}


@pytest.mark.parametrize("kept", [False, True])
def test_a_loader_whose_worker_is_kept_from_its_processor(kept):
    """Rank 2's batches take 18 ms where its peers' take 8: of work, or of waiting."""
    job = Job(late_by(10, 2)).uses({})
    job.section("dataloader", "input", lambda r, s: 10 if r == 2 else 0.1, lambda r, s: 0.1)
    for rank, view in job.known.ranks.items():
        took = 18_000_000 if rank == 2 else 8_000_000
        view.progress.fetches = [
            Fetches(
                worker=0,
                count=STEPS,
                wall_ns=STEPS * took,
                cpu_ns=STEPS * 7_000_000,
                first_ns=at(0),
                last_ns=at(job.end),
                waited_ns=STEPS * (10_000_000 if kept and rank == 2 else 0),
            )
        ]
    found = job.verdicts()
    if kept:
        assert found == {}
    else:
        assert found[Cause.SLOW_INPUT].culprits == [2]


def test_one_long_stretch_alone_is_no_slow_rank_however_much_it_computes() -> None:
    # It is a little late at other steps, too.
    job = Job(lambda rank, step: (rank == 2) * (9000.0 if step == 20 else 4.0))
    found = job.uses({2: 8.0 + 9000.0 / STEPS}).verdicts()
    assert list(found) == [Cause.RANK0_WORK] and found[Cause.RANK0_WORK].culprits == [2]


def test_stretches_alone_that_come_again_are_work_that_one_rank_does() -> None:
    """An evaluation of 4 s by one rank, every twentieth step: none of them is a third of all."""
    job = Job(lambda rank, step: 4000.0 if rank == 2 and step % 20 == 19 else 0.0)
    found = job.uses({2: 8.0 + 12_000.0 / STEPS}).verdicts()
    assert list(found) == [Cause.RANK0_WORK]
    assert found[Cause.RANK0_WORK].culprits == [2]
    assert "in 3 stretches" in found[Cause.RANK0_WORK].summary


def test_threads_that_compute_beside_each_other_are_no_time_that_peers_wait() -> None:
    found = Job(late_by(8, 2)).uses({2: 20.0}).verdicts()
    effect = found[Cause.SLOW_COMPUTE].effect
    assert effect is not None and 7 < effect.ms_per_step < 9


def test_all_long_stretches_of_a_rank_count_where_one_alone_would_do() -> None:
    job = Job(lambda rank, step: 9000.0 if rank == 2 and step in (20, 40) else 0.0)
    found = job.uses({2: 8.0 + 18_000.0 / STEPS}).verdicts()
    assert found[Cause.RANK0_WORK].culprits == [2]
    assert "18.0 s, in 2 stretches" in found[Cause.RANK0_WORK].summary


def test_who_takes_longer_for_what_its_peers_do_as_well_is_slow() -> None:
    """By as many seconds, each step."""
    job = Job(lambda rank, step: 4500.0 if rank == 2 else 1000.0).uses({2: 4500.0})
    assert list(job.verdicts()) == [Cause.SLOW_COMPUTE]


@pytest.mark.parametrize(
    ("seen", "line"),
    [
        # A line by chance, beside the one at which both are most of the time.
        ({18: (164, 165), 19: (1, 3)}, 18),
        ({18: (164, 165), 19: (1, 12)}, 19),
        ({18: (110, 165), 19: (1, 3)}, 18),
    ],
)
def test_a_few_samples_more_are_chance(seen: dict[int, tuple[int, int]], line: int) -> None:
    job = Job(members={"0": (0, 1)})
    for number, counts in seen.items():
        for rank, count in enumerate(counts):
            view = job.known.ranks[rank]
            view.lines.append(LineCount("train.py", "forward", number, count, section="forward"))
    found = busiest_line(job.known, 1, "forward")
    assert found is not None and found.line == line
