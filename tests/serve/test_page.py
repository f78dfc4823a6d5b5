"""The page in a real Chromium: what a person does with mouse and keyboard, and what the page then says."""

import json
import math
import shutil

import pytest
from PIL import Image

from .conftest import serving
from .test_security import TOKEN, Policy

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
expect = sync_api.expect
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed: apt-get install chromium")
PATIENCE = 20_000  # milliseconds; an answer takes a few of them on an idle machine

# Two drawings of each, in a square of side 1.
HOUSE = [[(0.2, 0.9), (0.2, 0.45), (0.5, 0.1), (0.8, 0.45), (0.8, 0.9), (0.2, 0.9)], [(0.2, 0.45), (0.8, 0.45)]]
HOUSE_AGAIN = [
    [(0.3, 0.82), (0.28, 0.5), (0.5, 0.22), (0.74, 0.48), (0.73, 0.8), (0.29, 0.81)],
    [(0.3, 0.5), (0.72, 0.49)],
]
RING = [[(0.5 + 0.3 * math.cos(t / 3), 0.5 + 0.35 * math.sin(t / 3)) for t in range(20)]]
RING_AGAIN = [[(0.45 + 0.25 * math.cos(1 + t / 3), 0.5 + 0.27 * math.sin(1 + t / 3)) for t in range(20)]]


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        camera = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *camera])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser, client):
    """Opens pages in one context, so that they are tabs of one browser; any error on them fails the test."""
    errors = []
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE)
    expect.set_options(timeout=PATIENCE)

    def open_page(path="/", **options):
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.goto(f"http://127.0.0.1:{client.port}{path}")
        page.wait_for_selector("body[data-ready]")
        return page

    yield open_page
    context.close()
    assert not errors


def draw(page, strokes):
    page.bring_to_front()  # a tab in the background gets few frames a second
    box = page.locator("#paper").bounding_box()
    for stroke in strokes:
        points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in stroke]
        page.mouse.move(*points[0])
        page.mouse.down()
        for point in points[1:]:
            page.mouse.move(*point, steps=4)
        page.mouse.up()


def choose(page, name):
    page.get_by_role("tab", name=name).click()


def teach(page, label):
    page.locator("#label").fill(label)
    page.locator("#label").press("Enter")


def says(page, text):
    expect(page.locator("#answer .name")).to_contain_text(text)


def knows(page, *labels):
    expect(page.locator("#classes .open .grow")).to_have_count(len(labels))
    for label in labels:
        expect(page.locator("#classes")).to_contain_text(label)


def test_draw_teach_ask_correct_undo_forget_reload_two_tabs(open_page):
    page = open_page()
    choose(page, "Draw")
    draw(page, HOUSE)
    says(page, "I don't know")
    teach(page, "house")
    knows(page, "house")
    says(page, "house")

    draw(page, RING)  # the paper is new after a teaching
    expect(page.locator("#answer figure")).to_have_count(2)
    teach(page, "ring")
    knows(page, "house", "ring")

    other = open_page()
    choose(other, "Draw")
    knows(other, "house", "ring")

    draw(page, HOUSE_AGAIN)
    says(page, "house")
    expect(page.locator("#answer figcaption")).to_contain_text(["yours", "remembered: house"])
    page.get_by_role("button", name="Clear").click()
    draw(page, RING_AGAIN)
    says(page, "ring")
    expect(page.locator("#answer .bar")).to_have_count(2)

    # It is no ring: one click corrects it, one takes that back.
    page.locator("#answer .bar", has_text="house").click()
    says(page, "house")
    expect(other.locator("#classes li", has_text="house")).to_contain_text("2 examples")
    page.locator("#toast").get_by_role("button", name="Undo").click()
    says(page, "ring")
    expect(other.locator("#classes li", has_text="house")).to_contain_text("1 example")
    expect(other.locator("#history li").first).to_contain_text("Took back 1 example")

    page.get_by_role("button", name="Forget ring").click()
    page.locator("#dialog").get_by_role("button", name="Forget", exact=True).click()
    knows(page, "house")
    knows(other, "house")

    page.reload()
    page.wait_for_selector("body[data-ready]")
    knows(page, "house")  # and the same tab is open
    draw(page, HOUSE_AGAIN)
    says(page, "house")


def test_text_with_why_rename_merge_export_and_import(open_page, client, tmp_path):
    page = open_page()
    choose(page, "Text")
    page.locator("#question").fill("the machine ate my card")
    teach(page, "swallowed")
    page.locator("#question").fill("a thief has my card")
    teach(page, "stolen")
    knows(page, "swallowed", "stolen")

    page.locator("#question").fill("this machine ate the card")
    page.locator("#question").press("Enter")
    says(page, "swallowed")
    because = page.locator("#answer .because li").first
    expect(because).to_contain_text("“the machine ate my card” is swallowed")
    expect(because).to_contain_text("taught just now")
    page.locator("#question").fill("entirely different words here")
    page.locator("#question").press("Enter")
    says(page, "I don't know")
    expect(page.locator("#unsure")).to_contain_text("entirely different words here")
    page.locator("#question").fill("the machine ate it\nmy card thief")
    page.locator("#question").press("Enter")
    expect(page.locator("#answers li")).to_have_count(2)
    page.get_by_role("button", name="Why? my card thief").click()
    says(page, "stolen")
    expect(page.locator("#teach-button")).to_have_text("Teach")  # the one that is shown, not both
    page.locator("#question").press("Enter")
    expect(page.locator("#teach-button")).to_have_text("Teach all 2")
    page.locator("#label").fill("seen")
    page.locator("#label").press("Enter")
    knows(page, "swallowed", "stolen", "seen")
    expect(page.locator("#answers .chip")).to_contain_text(["seen", "seen"])
    page.locator("#toast").get_by_role("button", name="Undo").click()
    knows(page, "swallowed", "stolen")

    page.get_by_role("button", name="Rename stolen").click()
    page.locator("#dialog-input").fill("theft")
    page.locator("#dialog-input").press("Enter")
    knows(page, "swallowed", "theft")
    page.get_by_role("button", name="Rename theft").click()
    page.locator("#dialog-input").fill("swallowed")
    page.locator("#dialog-input").press("Enter")
    page.locator("#dialog").get_by_role("button", name="Merge").click()
    knows(page, "swallowed")
    page.locator("#history").get_by_role("button", name="Undo").first.click()
    knows(page, "swallowed", "theft")

    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    download.value.save_as(tmp_path / "all.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert [(line["example"], line["label"]) for line in lines] == [
        ("a thief has my card", "theft"),
        ("the machine ate my card", "swallowed"),
    ]

    page.get_by_role("button", name="Forget theft").click()
    page.locator("#dialog").get_by_role("button", name="Forget", exact=True).click()
    knows(page, "swallowed")
    page.locator("#import-file").set_input_files(tmp_path / "all.jsonl")
    knows(page, "swallowed", "theft")
    expect(page.locator("#history li").first).to_contain_text("imported from all.jsonl")
    page.locator("#toast").get_by_role("button", name="Undo").click()
    knows(page, "swallowed")
    (tmp_path / "bad.jsonl").write_text('{"example": "no label"}\n')
    page.locator("#import-file").set_input_files(tmp_path / "bad.jsonl")
    expect(page.locator("#toast")).to_contain_text("Line 1 of bad.jsonl")


def test_a_picture_is_taught_from_one_file(open_page, tmp_path):
    page = open_page()
    choose(page, "Pictures")
    for name, colour in (("apple", "red"), ("sky", "blue"), ("another", "darkred")):
        Image.new("RGB", (300, 200), colour).save(tmp_path / f"{name}.png")
        page.locator("#file").set_input_files(tmp_path / f"{name}.png")
        expect(page.locator("#photo")).to_be_visible()
        if name != "another":
            expect(page.locator("#answer .name")).to_be_visible()
            teach(page, name)
            expect(page.locator("#classes")).to_contain_text(name)
    says(page, "apple")
    expect(page.locator("#classes img")).to_have_count(2)
    page.locator("#file").set_input_files([tmp_path / "apple.png", tmp_path / "sky.png"])
    expect(page.locator("#answers .chip")).to_contain_text(["apple", "sky"])
    for image in page.locator("#classes img").all():
        assert image.evaluate("async image => { await image.decode(); return image.naturalWidth; }") == 300


def test_the_camera_takes_a_picture(open_page):
    page = open_page()
    choose(page, "Pictures")
    page.get_by_role("button", name="Use the camera").click()
    page.locator("#video").evaluate("v => v.videoWidth || new Promise((ready) => { v.onloadeddata = () => ready(); })")
    page.get_by_role("button", name="Take the picture").click()
    says(page, "I don't know")
    teach(page, "test card")
    knows(page, "test card")
    expect(page.locator("#video")).to_be_hidden()


def test_all_of_it_by_keyboard(open_page):
    page = open_page()
    page.get_by_role("tab", name="Text").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Draw")).to_have_attribute("aria-selected", "true")
    page.locator("#paper").focus()
    for key in ("Space", *["ArrowRight"] * 6, *["ArrowDown"] * 6, *["ArrowLeft"] * 6, "Space"):
        page.keyboard.press(key)
    says(page, "I don't know")
    page.keyboard.press("Enter")
    page.keyboard.type("corner")
    page.keyboard.press("Enter")
    knows(page, "corner")


def test_a_token_comes_with_the_address_and_is_kept_from_it(browser, tmp_path):
    with serving(tmp_path, Policy("0.0.0.0", token=TOKEN, rate=0)) as client:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{client.port}/#token={TOKEN}")
        page.wait_for_selector("body[data-ready]")
        assert page.url == f"http://127.0.0.1:{client.port}/"
        page.reload()
        page.wait_for_selector("body[data-ready]")
        page.close()
        stranger = browser.new_page()
        stranger.goto(f"http://127.0.0.1:{client.port}/")
        expect(stranger.locator("#dialog")).to_contain_text("asks for a token")
        stranger.locator("#dialog-input").fill(TOKEN)
        stranger.locator("#dialog-input").press("Enter")
        stranger.wait_for_selector("body[data-ready]")
        stranger.close()


def test_it_fits_a_phone_and_has_names_for_screen_readers(browser, client):
    context = browser.new_context(viewport={"width": 375, "height": 700}, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{client.port}/")
    page.wait_for_selector("body[data-ready]")
    for name in ("Text", "Draw", "Pictures"):
        choose(page, name)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        unnamed = page.evaluate(
            """() => [...document.querySelectorAll("button, input, textarea, canvas, img, video")]
            .filter((each) => each.checkVisibility() && !each.ariaLabel && !each.textContent.trim() && !each.title
                && !each.labels?.length && !each.hasAttribute("alt") && !each.hasAttribute("aria-labelledby"))
            .map((each) => each.outerHTML)"""
        )
        assert unnamed == []
    context.close()
