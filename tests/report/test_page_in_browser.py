"""Pages as a browser shows them: no error, no request, charts that answer, readable by all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import entry_of_each_cause, page_of, unpacked
from test_page import hostile_dumps

#: Six causes whose pages have all that pages have.
SIX = (
    "skipped_collective",
    "p2p_deadlock",
    "process_frozen",
    "slow_compute",
    "loader_stuck",
    "exception",
)
#: Milliseconds; a page is drawn in one to three seconds on an idle core.
PATIENCE = 120_000


class Shown:
    """A page in the browser, with what it said and asked for."""

    def __init__(self, browser: Any, file: Path, **options: Any) -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri())
        if options.get("java_script_enabled", True):
            self.page.wait_for_selector("html[data-drawn]", state="attached")

    def check_quiet(self) -> None:
        assert self.said == []
        # Its own file, and what it has in itself.
        assert [url for url in self.asked[1:] if not url.startswith(("data:", "blob:"))] == []


Opener = Callable[..., Shown]


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Opener]:
    opened: list[Shown] = []

    def shown(page: str, **options: Any) -> Shown:
        file = tmp_path / f"{len(opened)}.html"
        file.write_text(page, encoding="utf-8")
        opened.append(Shown(browser, file, **options))
        return opened[-1]

    yield shown
    for one in opened:
        one.context.close()


@pytest.fixture(scope="module")
def skipped(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("skipped")
    return page_of(unpacked("local/skipped_collective.fault", folder))


def test_the_verdict_is_visible_without_scripts(show: Opener, skipped: str) -> None:
    one = show(skipped, java_script_enabled=False)
    assert one.page.locator("#verdict h1").is_visible()
    assert "rank 1" in one.page.locator("#verdict").inner_text()
    assert one.page.locator("#stacks summary").first.is_visible() or (
        one.page.locator("#stacks .leaf").first.is_visible()
    )
    one.check_quiet()


def test_timeline_and_tree_answer(show: Opener, skipped: str) -> None:
    one = show(skipped, viewport={"width": 1280, "height": 900})
    page = one.page
    assert page.locator("#timeline-chart .scatterlayer .trace").count() > 3
    # A click on what had not ended.
    where = page.evaluate(
        """() => {
            const chart = document.getElementById("timeline-chart");
            chart.scrollIntoView({ block: "center" });
            const { xaxis, yaxis } = chart._fullLayout, box = chart.getBoundingClientRect();
            const open = (trace) => trace.name.includes("default_pg, not ended");
            const trace = chart.data.find((trace) => trace.customdata && open(trace));
            const at = trace.y.findIndex((y) => y === 1) + 1;
            const x = xaxis._offset + xaxis.d2p(trace.x[at]);
            return [box.x + x, box.y + yaxis._offset + yaxis.d2p(trace.y[at])];
        }"""
    )
    page.mouse.move(*where)
    page.mouse.click(*where)
    details = page.locator("#timeline-details")
    details.wait_for(state="visible")
    assert "rank 1: broadcast #11 of default_pg" in details.inner_text()
    assert "rank 0 all_reduce" in details.inner_text()
    # Search, and the way through what was found.
    page.fill("#timeline-search", "broadcast")
    found = page.locator("#timeline-found").inner_text()
    assert int(found.split()[0]) > 10
    page.click("#timeline-next")
    assert "broadcast" in details.inner_text()
    page.fill("#timeline-search", "#11")
    assert page.locator("#timeline-found").inner_text().split()[0] == "8"
    page.fill("#timeline-search", "")
    # Keys.
    page.focus("#timeline-chart")
    before = page.evaluate("document.getElementById('timeline-chart').layout.xaxis.range")
    page.keyboard.press("+")
    after = page.evaluate("document.getElementById('timeline-chart').layout.xaxis.range")
    assert after[1] - after[0] < before[1] - before[0]
    page.keyboard.press("0")
    page.keyboard.press(".")
    assert details.inner_text()
    # The tree.
    page.click("#stacks-close")
    assert page.evaluate("document.querySelectorAll('.stack details[open]').length") == 0
    page.click("#stacks-open")
    assert page.locator("#stacks .leaf").first.is_visible()
    one.check_quiet()


@pytest.mark.parametrize("width", [1280, 480])
@pytest.mark.parametrize("entry", ["p2p_deadlock", "skipped_collective"])
def test_no_label_of_a_wait_lies_on_another(
    entry: str, width: int, show: Opener, tmp_path: Path
) -> None:
    one = show(
        page_of(unpacked(f"local/{entry}.fault", tmp_path)),
        viewport={"width": width, "height": 900},
    )
    boxes = one.page.evaluate(
        """() => [...document.querySelectorAll("#waits-chart .textpoint text")].map((text) => {
            const { left, right, top, bottom } = text.getBoundingClientRect();
            return [left, right, top, bottom];
        })"""
    )
    assert len(boxes) >= 2
    for number, (left, right, top, bottom) in enumerate(boxes):
        assert left >= 0 and right <= width
        for other in boxes[:number]:
            apart = right <= other[0] or other[1] <= left or bottom <= other[2] or other[3] <= top
            assert apart, "two labels overlap"


def test_stretches_are_cut_to_what_is_in_view(show: Opener, skipped: str) -> None:
    page = show(skipped).page
    count = "document.getElementById('timeline-chart').data.reduce((n, t) => n + t.x.length, 0)"
    page.click("#timeline-whole")
    whole = page.evaluate(count)
    page.focus("#timeline-chart")
    for _ in range(8):
        page.keyboard.press("ArrowRight")
    assert page.evaluate(count) < whole


@pytest.mark.slow
@pytest.mark.parametrize(
    "cause", [*SIX[:2], *(pytest.param(cause, marks=pytest.mark.long) for cause in SIX[2:])]
)
def test_pages_of_six_causes_are_readable_by_all(cause: str, show: Opener, tmp_path: Path) -> None:
    """axe-core finds nothing serious, at two widths and in both themes."""
    axe = pytest.importorskip("axe_playwright_python", reason="axe-core is not installed")
    (script,) = Path(axe.__file__).parent.rglob("axe.min.js")
    text = page_of(unpacked(entry_of_each_cause()[cause], tmp_path))
    for width, theme in ((1280, "light"), (480, "dark")):
        # What checks a page is no part of it, and needs a way round its policy.
        tested = show(
            text,
            viewport={"width": width, "height": 900},
            color_scheme=theme,
            bypass_csp=True,
        )
        wide = tested.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{wide} wide in {width}"
        tested.check_quiet()
        tested.page.add_script_tag(path=str(script))
        found = tested.page.evaluate("axe.run()")["violations"]
        grave = [
            (one["id"], one["nodes"][0]["html"])
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
        assert grave == []


@pytest.mark.long
@pytest.mark.parametrize("cause", sorted(entry_of_each_cause()))
def test_the_page_of_every_cause_opens(cause: str, show: Opener, tmp_path: Path) -> None:
    one = show(page_of(unpacked(entry_of_each_cause()[cause], tmp_path)))
    assert one.page.locator("#verdict h1").is_visible()
    one.page.evaluate("document.querySelectorAll('.chart.small').forEach((c) => drawSmall(c))")
    one.check_quiet()


def test_charts_of_hosts_are_drawn_when_somebody_comes_near(show: Opener, skipped: str) -> None:
    one = show(skipped, viewport={"width": 1280, "height": 900})
    chart = one.page.locator("#hosts .chart").first
    chart.scroll_into_view_if_needed()
    chart.locator(".scatterlayer .trace").first.wait_for(state="attached")
    assert "Processor used by each rank" in chart.inner_text()
    one.check_quiet()


def test_the_theme_can_be_chosen(show: Opener, skipped: str) -> None:
    page = show(skipped, color_scheme="light").page
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.click("#theme")
    assert page.evaluate(ground) != light
    assert page.locator("#theme").inner_text() == "Light"


@pytest.mark.slow
def test_paper_is_light(show: Opener, skipped: str) -> None:
    page = show(skipped, color_scheme="dark").page
    ground = "getComputedStyle(document.body).backgroundColor"
    letters = "getComputedStyle(document.querySelector('#waits-chart .textpoint text')).fill"
    dark, on_dark = page.evaluate(ground), page.evaluate(letters)
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    page.wait_for_function(f"{letters} === 'rgb(27, 36, 48)'")
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(ground) == dark != "rgb(255, 255, 255)"
    page.wait_for_function(f"{letters} === '{on_dark}'")
    plain = show(skipped, color_scheme="dark", java_script_enabled=False).page
    plain.emulate_media(media="print", color_scheme="dark")
    assert plain.evaluate(ground) == "rgb(255, 255, 255)"


def test_names_of_strangers_do_nothing(show: Opener, tmp_path: Path) -> None:
    one = show(page_of(hostile_dumps(tmp_path / "dumps")))
    one.page.on("dialog", lambda dialog: one.said.append(dialog.message))
    assert one.page.locator("main img").count() == 0
    assert one.page.locator("main script").count() == 0
    assert "<script>alert(1)</script>" in one.page.locator("#timeline-chart").inner_text()
    one.check_quiet()


@pytest.mark.slow
def test_data_can_be_saved(show: Opener, skipped: str, tmp_path: Path) -> None:
    page = show(skipped).page
    with page.expect_download() as saving:
        page.click("#save")
    saving.value.save_as(tmp_path / "data.json")
    assert json.loads((tmp_path / "data.json").read_text())["schema"] == "hanglab.page/1"
