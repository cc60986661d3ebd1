"""``hanglab stragglers`` on Cases whose windows are known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hanglab.analyzer.engine import analyze
from hanglab.harness.cli import main
from hanglab.harness.corpus.entries import unpack_entry
from hanglab.harness.report.stragglers.history import load_history
from hanglab.recorder.rank.progress_file import ProgressFile
from hanglab.recorder.rank.sections import section_type
from hanglab.recorder.slowness import InputWait, Summary, summarize
from hanglab.recorder.straggler.window import SectionWindow, TimingWindow
from tools.corpus.__main__ import CORPUS


def summary(milliseconds: float) -> Summary:
    found = summarize([milliseconds + 0.01 * (n % 7) for n in range(50)])
    assert found is not None
    return found


def rank_folder(case: Path, rank: int) -> Path:
    folder = case / "hosts" / "here" / "ranks" / f"{rank}.0"
    folder.mkdir(parents=True)
    return folder


def case_of_windows(case: Path, slow_rank: int | None = 2, ranks: int = 4) -> Path:
    for rank in range(ranks):
        lines = []
        for number in (1, 2, 3):
            work = {"forward": 20.0 if rank == slow_rank else 10.0, "empty": 0.001 * (rank % 4 + 1)}
            window = TimingWindow(
                number,
                rank,
                "here",
                1000.0,
                {name: SectionWindow(summary(ms), "wall") for name, ms in work.items()},
                input=InputWait(0.5 if rank == 1 else 0.01, 1.0 if rank == 1 else 0.1),
            )
            at = {"wall_ns": 10**18 + number * 10**9, "mono_ns": 0}
            lines.append({"kind": "window", "at": at, **json.loads(window.to_json())})
        path = rank_folder(case, rank) / "straggler.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return case


def test_the_slow_rank_stands_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = case_of_windows(tmp_path)
    assert main(["stragglers", str(case)]) == 0
    printed = capsys.readouterr().out
    rows = {line.split()[0]: line for line in printed.splitlines() if line.strip()}
    assert "20.0 ms 0.50!" in rows["2"] and "10.0 ms 1.00 " in rows["3"]
    assert printed.count("!") == 2  # the rank, and the legend
    assert "the input of rank 1 is too slow" in printed


@pytest.mark.slow
def test_many_ranks_take_one_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = case_of_windows(tmp_path, slow_rank=717, ranks=1024)
    assert main(["stragglers", str(case)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 10 and max(map(len, lines)) <= 150
    rows = {line.split()[0]: line for line in lines if line.strip()}
    assert "20.0 ms 0.50!" in rows["717"]
    assert list(rows)[:3] == ["rank", "717", "0-716,"]
    assert "10.0 ms 1.00 " in rows["0-716,"]
    assert any("1,023 ranks that stand out less are one line" in line for line in lines)


def test_windows_are_read_back_as_they_were(tmp_path: Path) -> None:
    history = load_history(case_of_windows(tmp_path, slow_rank=3))
    assert [window.number for window in history.windows] == [1, 2, 3]
    assert history.windows[2].at_s - history.windows[0].at_s == pytest.approx(2.0)
    assert history.windows[0].work["forward"][3] == summary(20.0)
    assert history.slow() == {("forward", 3): 3}
    assert history.sections == ["forward", "empty"]


def test_a_job_without_a_detector(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(3):
        progress = ProgressFile(rank_folder(tmp_path, rank) / "progress.bin")
        progress.identify(rank, 0, 3)
        section = section_type(progress)
        for step in range(40):
            progress.step(step)
            with section("work"):
                sum(range(100_000 if rank == 1 else 20_000))
    assert main(["stragglers", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "from progress.bin" in printed and "No straggler detector ran" in printed
    history = load_history(tmp_path)
    medians = history.medians("work")
    assert medians[1] > 2 * medians[0] and medians[1] > 2 * medians[2]


def test_names_of_sections_are_shown_and_not_obeyed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = case_of_windows(tmp_path)
    name = json.dumps("\x1b[31m\u202erw</b>[bold]" + "x" * 10_000)
    for path in case.rglob("straggler.jsonl"):
        path.write_text(path.read_text().replace('"forward"', name))
    assert main(["stragglers", str(case)]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed and "\u202e" not in printed
    joined = "".join(printed.split())
    assert "\\x1b[31m\\u202erw</b>[bold]" in joined and "morecharacters" in joined
    assert max(map(len, printed.splitlines())) <= 150 and len(printed) < 4000


@pytest.mark.parametrize("kind", ["fault", "control"])
def test_it_says_what_the_verdict_says(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unpack_entry(CORPUS, f"local/slow_forward_slightly.{kind}", tmp_path / "job")
    case = tmp_path / "job"
    verdict = analyze(case)
    assert main(["stragglers", str(case)]) == 0
    printed = capsys.readouterr().out
    if kind == "fault":
        assert f"Verdict: slow_compute: {verdict.summary}" in printed
    else:
        assert "Verdict: no rank is slow.\nspeed: " in printed


def test_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    case = case_of_windows(tmp_path / "case")
    target = tmp_path / "scores.png"
    assert main(["stragglers", str(case), "--plot", str(target)]) == 0
    data = target.read_bytes()
    assert data.startswith(b"\x89PNG") and len(data) > 10_000
    assert main(["stragglers", str(case), "--plot", str(tmp_path / "no" / "x.png")]) == 4
    assert "cannot be written" in capsys.readouterr().err


def test_what_is_no_case_of_sections(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stragglers", str(tmp_path)]) == 4
    assert "is no Case" in capsys.readouterr().err
    rank_folder(tmp_path, 0)
    assert main(["stragglers", str(tmp_path)]) == 4
    error = capsys.readouterr().err
    assert "holds no section of any rank" in error and "recorder.section" in error
    assert main(["stragglers"]) == 64
