"""``hanglab explain``, and the texts of causes that it shows."""

from __future__ import annotations

import json
import string

import pytest

from hanglab.analyzer.catalogue import Cause
from hanglab.harness.cli import main
from hanglab.harness.report.explanation.cause_texts import TEXTS
from hanglab.harness.report.explanation.commands import COMMANDS

#: Fields that a template of a cause may have.
FIELDS = {
    *("Who", "who", "s", "es", "is_", "has", "does", "its", "it", "peers", "are", "at", "by_line"),
    *("place", "call", "message", "differing", "same", "next", "theirs", "told", "share"),
    *("in_section", "how_often", "mine", "shared", "members", "wait", "kept", "let_go", "more"),
    *("own_message", "pair", "missed"),
    *("stopped", "unstarted", "concluded", "outside", "by_size", "both", "miss", "misfit"),
    *("own_wait", "held_ranks", "one_held", "whom"),
    *(
        "stalled",
        "Ring",
        "any_rank",
        "made",
        "usual",
        "siblings",
        "blocked",
        "turns",
        "asked",
        "key_wait",
    ),
    *(f"{whose}_{what}" for whose in ("mine", "theirs") for what in ("sizes", "dtypes", "root")),
}


def test_every_cause_has_a_text_and_no_text_is_of_none() -> None:
    assert set(TEXTS) == {cause.value for cause in Cause}
    for name, text in TEXTS.items():
        assert text.says and text.what and text.proof and text.mend and text.references, name
        assert set(text.mistaken_for) <= {*TEXTS, "healthy"}, name
        assert set(text.commands) <= set(COMMANDS), name
        for template in (*text.says, *text.says_of_all, *text.mend):
            used = {field for _, field, _, _ in string.Formatter().parse(template) if field}
            assert used <= FIELDS, (name, used - FIELDS)
            assert not template.startswith("{at}") and template != "{", name


def test_no_command_is_of_no_cause() -> None:
    assert {name for text in TEXTS.values() for name in text.commands} == set(COMMANDS)


def test_a_cause_is_explained_with_what_it_is_taken_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["explain", "Loader-Stuck"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("loader_stuck (data_starvation; a job with it is hung)")
    for part in ("What it is", "How it is proved", "Often mistaken for", "References"):
        assert part in shown
    assert "loader_worker_died: there the worker is gone." in shown
    assert "https://github.com/pytorch/torchtitan/issues/3338" in shown


def test_without_a_cause_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    shown = capsys.readouterr().out
    assert all(cause.value in shown for cause in Cause)
    assert main(["explain", "--json"]) == 0
    assert [one["cause"] for one in json.loads(capsys.readouterr().out)] == [c.value for c in Cause]


def test_an_unknown_cause_gets_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "loader_stuk\x1b[31m"]) == 64
    told = capsys.readouterr().err
    assert "there is no cause named loader_stuk\\x1b[31m." in told and "Traceback" not in told
    assert "Did you mean loader_stuck" in told and "fabric_stalled" in told
