"""The page as people use it, in a real browser."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.serve.browser.conftest import Visitor, serving

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "device_scale_factor": 2}
Visit = Callable[..., Visitor]


def pixels(page: Any, board: str) -> list[int]:
    """Some of the bytes of a picture."""
    return page.evaluate(
        """(board) => { const c = document.querySelector(`#${board} canvas`);
        return [...c.getContext("2d").getImageData(0, 0, c.width, c.height).data].filter((_, k) => k % 97 === 0); }""",
        board,
    )


def stroke(page: Any) -> None:
    """Paint from left to right."""
    box = page.locator("#input canvas").bounding_box()
    x, y, width, height = box["x"], box["y"], box["width"], box["height"]
    page.mouse.move(x + 0.1 * width, y + 0.2 * height)
    page.mouse.down()
    page.mouse.move(x + 0.9 * width, y + 0.3 * height, steps=6)
    page.mouse.up()


def wait_for_change(page: Any, board: str, before: list[int]) -> None:
    """Until a picture is another one."""
    page.wait_for_function(
        """([board, before]) => { const c = document.querySelector(`#${board} canvas`);
        const now = [...c.getContext("2d").getImageData(0, 0, c.width, c.height).data].filter((_, k) => k % 97 === 0);
        return now.length !== before.length || now.some((byte, k) => byte !== before[k]); }""",
        arg=[board, before],
    )


def test_draw_predict_solve_compare_and_send_the_link(visit: Visit, address: str) -> None:
    visitor = visit(address)
    page = visitor.open("/#/darcy")
    before = pixels(page, "surrogate")
    page.get_by_role("button", name="Clear").click()
    wait_for_change(page, "surrogate", before)
    before = pixels(page, "surrogate")
    stroke(page)
    wait_for_change(page, "surrogate", before)
    page.wait_for_function("() => performance.getEntriesByName('stroke to picture').length")
    assert "ms from stroke to picture" in page.locator("#surrogate .spent").inner_text()

    page.get_by_role("button", name="Ask the solver").click()
    page.locator("#verdict").wait_for(state="visible")
    assert "against" in page.locator("#verdict .times").inner_text()
    assert "Relative L2 error" in page.locator("#verdict").inner_text()
    # A run without training is far off, and says so.
    error = float(page.locator("#difference .time").inner_text().split()[0])
    assert error > 20
    marks = "() => ['surrogate', 'solver'].map((b) => document.querySelector(`#${b} .marks`).textContent)"
    scales = page.evaluate(marks)
    assert scales[0] == scales[1] != ""

    page.locator("#surrogate canvas").hover()
    page.wait_for_function(
        "() => document.querySelector('#difference .reading').textContent.includes('x ')"
    )
    visitor.look("darcy-solved", full=True)
    painted = pixels(page, "input")

    stroke_again = page.get_by_role("button", name="Clear")
    page.wait_for_function("() => location.hash.includes('d=')")
    link = page.evaluate("() => location.hash")
    colleague = visit(address)
    assert pixels(colleague.open("/" + link), "input") == painted

    stroke_again.click()
    page.locator("#verdict").wait_for(state="hidden")
    assert page.get_by_role("button", name="Ask again").is_visible()
    assert page.evaluate("() => location.hash") != ""


def test_resolution_cut_and_inside(visit: Visit, address: str) -> None:
    visitor = visit(address)
    page = visitor.open("/#/darcy")
    before = page.locator("#cut .curve").get_attribute("d")
    with page.expect_response(lambda reply: "/predict" in reply.url) as reply:
        page.get_by_label("Resolution").press("End")
    assert reply.value.json()["grid"] == [33, 33]
    end = page.get_by_role("button", name="End of the cut")
    end.press("Shift+ArrowUp")
    page.wait_for_function(
        "(before) => document.querySelector('#cut .curve').getAttribute('d') !== before", arg=before
    )
    page.locator("#inside summary").click()
    page.get_by_label("Map C, 4 by 4").wait_for(state="visible")
    assert page.locator("#inside .bases canvas").count() == 4
    visitor.look("darcy-inside", full=True)


def test_the_band_is_shown_and_an_unlike_input_is_warned_about(visit: Visit, address: str) -> None:
    visitor = visit(address)
    page = visitor.open("/#/banded")
    promise = page.locator("#surrogate .promise")
    assert "For 80\u00a0% of inputs like those of training" in promise.inner_text()
    assert page.locator("#cut .band").count() > 0
    before = pixels(page, "surrogate")
    page.get_by_label("Half width of its band").check()
    wait_for_change(page, "surrogate", before)
    assert "half width of the band" in page.locator("#surrogate .colourbar").inner_text()
    page.wait_for_function("() => location.hash.includes('b=1')")
    link = page.evaluate("() => location.hash")
    assert pixels(visit(address).open("/" + link), "surrogate") == pixels(page, "surrogate")
    page.get_by_label("Field", exact=True).check()
    page.get_by_role("button", name="Ask the solver").click()
    page.locator("#verdict").wait_for(state="visible")
    assert "the band at" in page.locator("#verdict").inner_text()

    def unlike(route: Any) -> None:
        said = {"unlike": 2.5, "warnings": ["this input is unlike the training data"]}
        route.fulfill(json=route.fetch().json() | said)

    page.route("**/predict*", unlike)
    page.get_by_role("button", name="Clear").click()
    page.get_by_text("This input is unlike the training data.").wait_for()
    assert "nothing is promised" in promise.inner_text()
    visitor.look("banded-unlike", full=True)
    page.locator("#inside summary").click()
    page.get_by_label("Strength of each wave").wait_for()
    page.get_by_label("Layer").press("End")
    page.get_by_label("The coefficient that the block has learned").wait_for()
    visitor.look("banded-inside", full=True)


def test_keyboard_alone_paints_and_solves(visit: Visit, address: str) -> None:
    visitor = visit(address)
    page = visitor.open("/#/darcy")
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("() => document.activeElement.matches('#input canvas')"):
            break
    before, field = pixels(page, "input"), pixels(page, "surrogate")
    for key in ("X", "ArrowLeft", "Shift+ArrowUp", "Space", "Enter", "Shift+ArrowRight", "Enter"):
        page.keyboard.press(key)
    wait_for_change(page, "surrogate", field)
    assert pixels(page, "input") != before
    painted = pixels(page, "input")
    page.keyboard.press("Control+z")
    wait_for_change(page, "input", painted)
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("() => document.activeElement.textContent === 'Ask the solver'"):
            break
    page.keyboard.press("Enter")
    page.locator("#verdict").wait_for(state="visible")
    assert "against" in page.locator("#status").text_content()


def test_other_editors_change_the_field(visit: Visit, address: str) -> None:
    page = visit(address).open("/#/elasticity")
    handle = page.get_by_role("slider", name="radii 1 of")
    before = pixels(page, "surrogate")
    handle.press("Shift+ArrowUp")
    wait_for_change(page, "surrogate", before)
    page.locator("#models").get_by_text("Burgers").click()
    page.wait_for_function("() => document.querySelector('#surrogate .curve')")
    curve = page.locator("#surrogate .curve").get_attribute("d")
    page.locator("#input svg.plot").press("Shift+ArrowUp")
    changed = "(before) => document.querySelector('#surrogate .curve').getAttribute('d') !== before"
    page.wait_for_function(changed, arg=curve)
    page.locator("#models").get_by_text("Few-shot").click()
    add = page.get_by_role("button", name="Add one")
    add.wait_for()
    pins = page.get_by_role("button", name="Observation")
    pins.first.wait_for()  # the button is there before the observations are drawn
    before = pins.count()
    add.click()
    pins.nth(before).wait_for()
    page.keyboard.press("Delete")
    pins.nth(before).wait_for(state="detached")
    assert pins.count() == before


def test_download_then_upload_of_a_mesh(visit: Visit, address: str, tmp_path: Path) -> None:
    visitor = visit(address)
    page = visitor.open("/#/waves")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download VTU").click()
    file = tmp_path / "again.vtu"
    download.value.save_as(file)
    assert b"height_predicted" in file.read_bytes()
    with page.expect_response(lambda reply: "/predict" in reply.url) as reply:
        page.locator("#upload").set_input_files(file)
    assert reply.value.status == 200
    assert page.locator(".drop .words").inner_text() == "again.vtu"
    visitor.look("own-uploaded")
    broken = tmp_path / "broken.vtu"
    broken.write_text("not a mesh")
    page.locator("#upload").set_input_files(broken)
    message = page.locator("#input .message")
    page.wait_for_function("() => document.querySelector('#input .message').textContent")
    assert "broken" not in message.inner_text()
    assert message.get_attribute("role") == "alert"


def test_a_refusal_is_told_in_words_where_it_happens(visit: Visit, address: str) -> None:
    visitor = visit(address)
    page = visitor.open("/#/darcy")
    said = {"detail": "permeability: expected 3 or 12, got 7; paint again"}
    page.route("**/predict*", lambda route: route.fulfill(status=422, json=said))
    page.get_by_role("button", name="Clear").click()
    page.get_by_text(said["detail"]).wait_for()
    page.unroute("**/predict*")
    page.get_by_role("button", name="Undo").click()
    page.get_by_text(said["detail"]).wait_for(state="hidden")


def test_a_service_that_vanishes_and_returns(visit: Visit, address: str) -> None:
    visitor = visit(address)
    page = visitor.open("/#/darcy")
    visitor.context.set_offline(True)
    page.get_by_role("button", name="Clear").click()
    page.get_by_text("The service does not answer. It may have ended").wait_for()
    visitor.look("offline")
    before = pixels(page, "surrogate")
    visitor.context.set_offline(False)
    with suppress(Exception):
        page.get_by_role("button", name="Try now").click(timeout=500)
    page.locator("#notice").wait_for(state="hidden")
    wait_for_change(page, "surrogate", before)


def test_solve_is_cancelled(visit: Visit, address: str) -> None:
    page = visit(address).open("/#/darcy")
    # A stream of events that does not end by itself.
    page.route("**/events*", lambda _: None)
    page.get_by_role("button", name="Ask the solver").click()
    with page.expect_request(lambda request: request.method == "DELETE"):
        page.get_by_role("button", name="Cancel").click()
    assert page.get_by_role("button", name="Ask the solver").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_phone_width_has_no_sideways_scrolling(visit: Visit, address: str, scheme: str) -> None:
    visitor = visit(address, color_scheme=scheme, **PHONE)
    page = visitor.open("/#/darcy")
    wide = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) <= 0
    visitor.look(f"phone-{scheme}", full=True)


NAMELESS = """() => [...document.querySelectorAll("button, input, select, canvas, svg[role]")]
  .filter((e) => e.checkVisibility() && !(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length))
  .map((e) => e.outerHTML)"""
PALE = """() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
  const ground = (e) => { for (; e; e = e.parentElement) { const c = numbers(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
  return [...document.querySelectorAll("main *, header *, footer *")]
    .filter((e) => e.checkVisibility() && !e.disabled && [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()))
    .map((e) => { const s = getComputedStyle(e); const [a, b] = [light(numbers(e instanceof SVGElement ? s.fill : s.color)), light(ground(e))].sort((p, q) => q - p); return [(a + 0.05) / (b + 0.05), e.outerHTML.slice(0, 120)]; })
    .filter(([contrast]) => contrast < 4.5);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_controls_have_names_and_all_text_has_contrast(
    visit: Visit, address: str, scheme: str
) -> None:
    page = visit(address, color_scheme=scheme).open("/#/darcy")
    assert page.evaluate(NAMELESS) == []
    assert page.evaluate(PALE) == []


@pytest.mark.full
def test_every_task_is_shown(visit: Visit, runs: Mapping[str, Path]) -> None:
    with serving(list(runs.values())) as (address, _):
        visitor = visit(address)
        for name in runs:
            visitor.page.goto("about:blank")
            page = visitor.open(f"/#/{name}")
            assert page.evaluate(
                "() => document.querySelector('#input .tools').children.length > 0"
            )
            assert page.locator("#input .message").inner_text() == ""
            visitor.look(f"task-{name}", full=True)
            page.emulate_media(color_scheme="dark")
            visitor.look(f"task-{name}-dark", full=True)
            page.emulate_media(color_scheme="light")


@pytest.mark.full
def test_a_service_that_is_started_again(visit: Visit, runs: Mapping[str, Path]) -> None:
    with serving([runs["darcy"]]) as (address, _):
        visitor = visit(address)
        page = visitor.open("/#/darcy")
    page.get_by_role("button", name="Clear").click()
    page.get_by_text("The service does not answer. It may have ended").wait_for()
    port = int(address.rsplit(":", 1)[1])
    with serving([runs["darcy"]], port):
        page.locator("#notice").wait_for(state="hidden")
