"""Scenario files are read as text: what they declare, and what is said of those that cannot be."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from hanglab.analyzer.verdict import Cause, Status
from hanglab.harness.errors import UsageError
from hanglab.harness.faults.conditions import Operations
from hanglab.harness.faults.freeze import Freeze
from hanglab.harness.jobs.plan import Options, requests_of
from hanglab.harness.jobs.reproduction import command
from hanglab.harness.scenarios import discovery
from hanglab.harness.scenarios.declaration import Expect, Scenario
from hanglab.harness.scenarios.discovery import Found

HEADER = "from hanglab.harness import Cause, Expect, Freeze, Operations, Status, scenario\n"


def read(tmp_path: Path, text: str, header: str = HEADER) -> Found:
    path = tmp_path / "some_scenario.py"
    path.write_text(header + text)
    return discovery.read_file(path)


def only(found: Found) -> Scenario:
    assert not found.broken, [broken.describe() for broken in found.broken]
    assert len(found.scenarios) == 1
    return found.scenarios[0]


def reason(found: Found) -> str:
    assert not found.scenarios
    assert len(found.broken) == 1
    return found.broken[0].reason


def test_reads_a_declaration_without_running_the_file(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        """
raise RuntimeError("this file must not be run")

@scenario(
    world_size=6,
    expect=Expect(Cause.SKIPPED_COLLECTIVE, culprits={1, 3}, group="default_pg"),
    reference="somewhere#1",
    needs=("root",),
)
def leaves_one_out(job):
    '''What happens here.

    More of it.
    '''
    if not job.faulty:  # FAULT
        pass
    after()  # SEEN here
""",
    )
    scenario = only(found)
    assert scenario.name == "leaves_one_out"
    assert scenario.function == "leaves_one_out"
    assert scenario.world_size == 6
    assert scenario.expect == Expect(Cause.SKIPPED_COLLECTIVE, culprits={1, 3}, group="default_pg")
    assert scenario.description == "What happens here."
    assert scenario.category == "synchronization"
    assert scenario.needs == ("root",)
    lines = scenario.source.read_text().splitlines()
    assert [lines[line - 1].strip() for line in scenario.fault_lines] == [
        "if not job.faulty:  # FAULT"
    ]
    assert [lines[line - 1].strip() for line in scenario.seen_lines] == ["after()  # SEEN here"]


HELPER = """
def reduce_unless(skipped):
    if not skipped:  # FAULT
        step()
    wait()  # SEEN
"""
ONE = """
@scenario(expect=Expect(Cause.SKIPPED_COLLECTIVE, culprits={{1}}))
def {name}(job):
    reduce_unless(job.faulty){mark}
"""


def marked(scenario: Scenario, lines: tuple[int, ...]) -> list[str]:
    text = scenario.source.read_text().splitlines()
    return [text[line - 1].strip() for line in lines]


def test_all_marks_of_a_file_are_its_only_scenarios(tmp_path: Path) -> None:
    """Also those in a function or a class beside it, and in its own body at the same time."""
    own = ONE.format(name="one", mark="  # FAULT")
    scenario = only(read(tmp_path, HELPER + own))
    assert marked(scenario, scenario.fault_lines) == [
        "if not skipped:  # FAULT",
        "reduce_unless(job.faulty)  # FAULT",
    ]
    assert marked(scenario, scenario.seen_lines) == ["wait()  # SEEN"]


def test_of_several_scenarios_each_has_the_marks_in_itself_before_shared_ones(
    tmp_path: Path,
) -> None:
    own = ONE.format(name="one", mark="  # FAULT of its own")
    found = read(tmp_path, HELPER + own + ONE.format(name="other", mark=""))
    assert not found.broken
    one, other = found.scenarios
    assert marked(one, one.fault_lines) == ["reduce_unless(job.faulty)  # FAULT of its own"]
    assert marked(other, other.fault_lines) == ["if not skipped:  # FAULT"]
    assert marked(one, one.seen_lines) == marked(other, other.seen_lines) == ["wait()  # SEEN"]


def test_culprit_is_seen_at_the_fault_unless_said_otherwise(tmp_path: Path) -> None:
    scenario = only(
        read(
            tmp_path,
            "@scenario(expect=Expect(Cause.BUSY_LOOP, culprits={0}))\n"
            "def spins(job):\n"
            "    while True: pass  # FAULT\n",
        )
    )
    assert scenario.seen_lines == scenario.fault_lines != ()


def test_marks_in_strings_are_no_marks(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "@scenario(expect=Expect(Cause.BUSY_LOOP, culprits={0}))\n"
        "def spins(job):\n"
        "    print('# FAULT')\n",
    )
    assert "no line is marked" in reason(found)


def test_each_of_two_scenarios_has_its_own_marks(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        """
def helper():
    spin()  # SEEN

@scenario(expect=Expect(Cause.BUSY_LOOP, culprits={0}))
def first(job):
    one()  # FAULT

@scenario(expect=Expect(Cause.BUSY_LOOP, culprits={0}))
def second(job):
    two()  # FAULT
    three()  # SEEN
""",
    )
    first, second = found.scenarios
    assert (first.fault_lines, first.seen_lines) == ((8,), (4,))
    assert (second.fault_lines, second.seen_lines) == ((12,), (13,))


def test_faults_from_outside(tmp_path: Path) -> None:
    scenario = only(
        read(
            tmp_path,
            """
@scenario(
    expect=Expect(Cause.PROCESS_FROZEN, culprits={2}, location=None),
    faults=[Freeze(rank=2, at_step=5), Freeze(rank=1, when=Operations(rank=0, at_least=9))],
)
def frozen(job): ...
""",
        )
    )
    assert scenario.faults == (
        Freeze(rank=2, at_step=5),
        Freeze(rank=1, when=Operations(rank=0, at_least=9)),
    )
    assert scenario.smallest_world == 3


@pytest.mark.parametrize(
    "header, prefix",
    [
        ("import hanglab.harness\n", "hanglab.harness."),
        ("import hanglab.harness as hl\n", "hl."),
        ("from hanglab import harness\n", "harness."),
    ],
)
def test_names_by_other_imports(tmp_path: Path, header: str, prefix: str) -> None:
    text = (
        "@{0}scenario(expect={0}Expect({0}Cause.CRASH, {{0}}, location=None, "
        "status={{'gloo': {0}Status.FAILED}}))\ndef dies(job): ...\n"
    )
    scenario = only(read(tmp_path, text.format(prefix), header))
    assert scenario.expect is not None
    assert scenario.expect.status_on("gloo") is Status.FAILED


def test_scripts_are_declared_with_or_without_a_function(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nloop()  # FAULT\n")
    (tmp_path / "sound.py").write_text("import torch\n")
    found = read(
        tmp_path,
        """
@scenario(script="train.py", expect=Expect(Cause.BUSY_LOOP, {0}), arguments=["--epochs", "2"])
def as_function(): ...

scenario(script="train.py", control_script="sound.py", expect=Expect(Cause.BUSY_LOOP, {0}))
""",
    )
    assert not found.broken
    first, second = found.scenarios
    assert (first.name, first.function, first.program) == (
        "as_function",
        None,
        tmp_path / "train.py",
    )
    assert first.arguments == ("--epochs", "2")
    assert first.seen_lines == (2,)
    assert (second.name, second.control_program) == ("train", tmp_path / "sound.py")


@pytest.mark.parametrize(
    "declaration, complaint",
    [
        ("@scenario(expect=Expect(Cause.NO_SUCH, {0}))", "Cause.NO_SUCH"),
        ("@scenario(expect=Expect(Cause.CRASH, {RANK}))", "`RANK` is no literal"),
        ("@scenario(expect=Expect(Cause.CRASH, {0}, colour=1))", "colour"),
        ("@scenario(world_size=4)", "expect"),
        ("@scenario(expect=Expect(Cause.CRASH, {0}), sizes=4)", "sizes"),
        ("@scenario(expect=Expect(Cause.CRASH, {0}), worldsize=4)", "world_size= is near"),
        ("@scenario(expect=Expect(Cause.CRASH, {0}, colour=1))", "are cause=, culprits="),
        (f"@scenario(expect=Expect(Cause.CRASH, {{0}}), name='{'n' * 300}')", "300 bytes"),
        ("@scenario", "needs arguments, at least expect="),
        ("@scenario(expect=Expect(Cause.CRASH, {4}, location=None))", "at least 5 ranks"),
        ("@scenario(expect=Expect(Cause.CRASH, {0}), backends=['mpi'])", "'mpi'"),
        ("@scenario(expect=Expect(Cause.CRASH, {0}), needs=['dokcer'])", "docker"),
        ("@scenario(expect=Expect(Cause.CRASH, {0}), script='none.py')", "none.py does not exist"),
        (
            "@scenario(expect=Expect(Cause.CRASH, {0}), faults=[Freeze(rank=1)])",
            "exactly one of at_step=, after_s= and when=",
        ),
        ("@scenario(expect=Expect(Cause.CRASH, {0}, **more))", "`**more`"),
        ("@scenario(world_size=100000000, expect=Expect(Cause.CRASH, {0}))", "from 1 to 4096"),
        ("@scenario(world_size=0, expect=Expect(Cause.CRASH, {0}))", "from 1 to 4096, not 0"),
        ("@scenario(world_size=1e400, expect=Expect(Cause.CRASH, {0}))", "numbers from 1 to 4096"),
        ("@scenario(world_size=True, expect=Expect(Cause.CRASH, {0}))", "not True"),
        ("@scenario(world_size='4', expect=Expect(Cause.CRASH, {0}))", "world_size= takes"),
        ("@scenario(world_sizes=[4, 1e9], expect=Expect(Cause.CRASH, {0}))", "world_sizes= takes"),
        ("@scenario(nodes=-1, expect=Expect(Cause.CRASH, {0}))", "nodes= takes"),
        ("@scenario(hang_after=1e400, expect=Expect(Cause.CRASH, {0}))", "hang_after= takes"),
        ("@scenario(expect=Expect(Cause.CRASH, {True}))", "culprits are ranks"),
        ("@scenario(expect=Expect(Cause.CRASH, {-1}))", "culprits are ranks"),
        ("@scenario(expect=open('file'))", "`open` is not offered"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(
    tmp_path: Path, declaration: str, complaint: str
) -> None:
    found = read(tmp_path, f"\n{declaration}\ndef body(job):\n    pass  # FAULT\n")
    assert complaint in reason(found)
    assert found.broken[0].line == 3


DECLARED = "@scenario(expect=Expect(Cause.CRASH, {0}, location=None))"


@pytest.mark.parametrize(
    "text, line, complaint",
    [
        (f"{DECLARED}\nasync def body(job): ...\n", 2, "body() is async; a scenario is"),
        (f"{DECLARED}\nclass Body: ...\n", 2, "class Body cannot be a scenario"),
        (f"class Tests:\n  {DECLARED}\n  def body(job): ...\n", 3, "body() stands inside"),
        (f"if True:\n  {DECLARED[1:]}\n", 3, "at the top of the file"),
        (f"crash = {DECLARED[1:]}\n@crash\ndef body(job): ...\n", 2, "at the top of the file"),
        ("class Tests:\n  @scenario\n  def body(job): ...\n", 3, "needs arguments"),
    ],
)
def test_a_declaration_that_is_not_read_is_told_and_not_passed_over(
    tmp_path: Path, text: str, line: int, complaint: str
) -> None:
    found = read(tmp_path, text)
    assert complaint in reason(found)
    assert found.broken[0].line == line and not found.plain
    beside = read(tmp_path, text + f"{DECLARED}\ndef other(job): ...\n")
    assert [scenario.name for scenario in beside.scenarios] == ["other"]
    assert [broken.line for broken in beside.broken] == [line]


@pytest.mark.parametrize("text", ["def broken(:\n", "x = '\n", "\0", "é = 1".encode("latin-1")])
def test_a_file_that_does_not_parse_is_broken(tmp_path: Path, text: str | bytes) -> None:
    path = tmp_path / "broken.py"
    path.write_bytes(b"import hanglab\n" + (text if isinstance(text, bytes) else text.encode()))
    found = discovery.read_file(path)
    assert len(found.broken) == 1
    assert not found.scenarios


def test_plain_scripts_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("import torch\n")
    assert discovery.read_file(path).plain == [path]
    path.write_text("from hanglab import recorder\nrecorder.step()\n")
    assert discovery.read_file(path).plain == [path]


def test_an_unknown_name_brings_the_nearest(tmp_path: Path) -> None:
    project = read(
        tmp_path,
        "@scenario(expect=Expect(Cause.BUSY_LOOP, {0}, location=None))\ndef busy_loop(job): ...\n",
    )
    with pytest.raises(UsageError) as caught:
        discovery.select(["bsy_loop"], project)
    assert "busy_loop" in caught.value.advice
    assert caught.value.exit_code == 64


def test_namesakes_are_refused_and_repeats_are_not(tmp_path: Path) -> None:
    text = HEADER + (
        "@scenario(expect=Expect(Cause.BUSY_LOOP, {0}, location=None))\ndef same(job): ...\n"
    )
    first, second = tmp_path / "one.py", tmp_path / "two.py"
    first.write_text(text)
    second.write_text(text)
    assert len(discovery.select([str(first), str(tmp_path / "." / "one.py")]).scenarios) == 1
    with pytest.raises(UsageError, match=r"one\.py:2 and .*two\.py:2"):
        discovery.select([str(first), str(second)])


TWO = "".join(
    f"@scenario(expect=Expect(Cause.BUSY_LOOP, {{0}}, location=None))\ndef {name}(job): ...\n"
    for name in ("first", "second")
)


@pytest.mark.slow
def test_one_of_several_scenarios_of_a_file_is_named_after_it(tmp_path: Path) -> None:
    path = tmp_path / "both.py"
    path.write_text(HEADER + TWO)
    chosen = discovery.select([f"{path}::second"])
    assert [scenario.name for scenario in chosen.scenarios] == ["second"]
    assert len(discovery.select([f"{path}::second", str(path)]).scenarios) == 2
    with pytest.raises(UsageError, match="declares no scenario 'third'") as caught:
        discovery.select([f"{path}::third"])
    assert "first, second" in caught.value.advice
    with pytest.raises(UsageError, match="cannot be read"):
        discovery.select([f"{tmp_path / 'none.py'}::first"])
    path.write_text(HEADER + TWO + "@scenario(sizes=3)\ndef third(job): ...\n")
    assert not discovery.select([f"{path}::second"]).broken
    assert discovery.select([f"{path}::third"]).broken


@pytest.mark.parametrize(
    "options, further",
    [
        (Options(), []),
        (Options(hang_after_s=9, deadline_s=300.5), ["--hang-after", "9", "--deadline", "300.5"]),
    ],
)
def test_a_job_is_repeated_by_itself_and_as_it_was(
    tmp_path: Path, options: Options, further: list[str]
) -> None:
    path = tmp_path / "both.py"
    path.write_text(HEADER + TWO)
    second = discovery.read_file(path).scenarios[1]
    words = shlex.split(command(requests_of(second, options)[0]))
    assert words[:3] == ["hanglab", "run", f"{path}::second"]
    assert words[3:] == ["--seed", "0", "--backend", "gloo", "--world-size", "4", *further]
    (again,) = discovery.select([words[2]]).scenarios
    assert again == second


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        discovery.select([str(tmp_path / "none.py")])


def test_a_folder_without_scenarios_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    with pytest.raises(UsageError, match="declares a scenario"):
        discovery.select([str(tmp_path)])


def test_a_name_must_fit_into_a_path(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("loop()  # FAULT\n")
    found = read(
        tmp_path,
        "scenario(script='train.py', name='../up', expect=Expect(Cause.BUSY_LOOP, {0}))\n",
    )
    assert "cannot name a folder" in reason(found)


def test_a_healthy_scenario_marks_no_fault(tmp_path: Path) -> None:
    text = "@scenario(expect=Expect.healthy())\ndef calm(job):\n    job.batch(1){mark}\n"
    (calm,) = read(tmp_path, text.format(mark="")).scenarios
    assert (calm.is_healthy, calm.category, calm.expect) == (True, "healthy", Expect.healthy())
    assert "has no fault" in reason(read(tmp_path, text.format(mark="  # FAULT")))


def test_a_scenario_may_be_undecidable(tmp_path: Path) -> None:
    (one,) = read(
        tmp_path, "@scenario(expect=Expect.inconclusive())\ndef tie(job):\n    job.batch(1)\n"
    ).scenarios
    assert (one.is_healthy, one.category) == (False, "inconclusive")


def test_every_scenario_of_the_project_can_be_read() -> None:
    found = discovery.read_project()
    assert [broken.describe() for broken in found.broken] == []
    names = [scenario.name for scenario in found.scenarios]
    assert len(set(names)) == len(names) >= 14
    for scenario in found.scenarios:
        assert scenario.reference, scenario.name
        assert scenario.description, scenario.name
        assert scenario.source.parent.name == scenario.category, scenario.name
