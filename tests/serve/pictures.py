"""python -m tests.serve.pictures

Takes the pictures of the page in docs/ anew, in a real Chromium: serve.png and, of a class being taught, teach.gif.
"""

import contextlib
import io
import math
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from rarecall.serve import demo, run

from .conftest import serving
from .test_page import CHROMIUM, draw

DOCS = Path(__file__).parents[2] / "docs"
SIZE = {"width": 1180, "height": 720}
SHOWN = 880  # pixels: the width of the animation
# A cat, drawn twice: ears, head, whiskers.
CAT, CAT_AGAIN = (
    [
        [(x - 0.2, y - 0.05), (x - 0.22, y - 0.3), (x - 0.08, y - 0.19)],
        [(x + 0.08, y - 0.19), (x + 0.22, y - 0.3), (x + 0.2, y - 0.05)],
        [(x + r * math.cos(t / 4), y + 0.95 * r * math.sin(t / 4)) for t in range(27)],
        *([(x + side * 0.07, y + h), (x + side * 0.36, y + h * 2 - 0.05)] for side in (-1, 1) for h in (0.03, 0.09)),
    ]
    for x, y, r in ((0.5, 0.55, 0.22), (0.46, 0.6, 0.2))
)


class Film:
    """Frames of a page, each with how long it is shown."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.frames: list[tuple[Image.Image, int]] = []

    def take(self, milliseconds: int) -> None:
        frame = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")
        height = frame.height * SHOWN // frame.width
        self.frames.append((frame.resize((SHOWN, height), Image.Resampling.LANCZOS), milliseconds))

    def draw(self, strokes: list[list[tuple[float, float]]]) -> None:
        for stroke in strokes:
            draw(self.page, [stroke])
            self.take(150)

    def write(self, path: Path) -> None:
        colours = Image.new("RGB", (SHOWN, len(self.frames) * self.frames[0][0].height))
        for number, (frame, _) in enumerate(self.frames):
            colours.paste(frame, (0, number * frame.height))
        palette = colours.quantize(224, Image.Quantize.MAXCOVERAGE)
        frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame, _ in self.frames]
        times = [milliseconds for _, milliseconds in self.frames]
        frames[0].save(path, save_all=True, append_images=frames[1:], duration=times, loop=0, optimize=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright, contextlib.ExitStack() as stack:
        memories = run.open_memories(Path(folder))
        for memory in memories:
            demo.teach(memory)
        client = stack.enter_context(serving(Path(folder), memories=memories))
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE)
        page.goto(f"http://127.0.0.1:{client.port}/")
        page.get_by_role("tab", name="Draw").click()
        page.locator("#classes img").last.wait_for()
        page.wait_for_timeout(500)
        film = Film(page)
        film.take(1000)
        film.draw(CAT)
        page.get_by_text("I don't know", exact=True).wait_for()
        page.wait_for_timeout(500)
        film.take(2000)
        page.locator("#label").focus()
        for letter in "cat":
            page.keyboard.type(letter)
            film.take(200)
        page.keyboard.press("Enter")
        page.locator("#answer .name", has_text="cat").wait_for()
        page.wait_for_timeout(500)
        film.take(2000)
        film.draw(CAT_AGAIN)
        page.wait_for_timeout(1000)
        film.take(3500)
        page.locator("#toast").evaluate("toast => toast.classList.remove('on')")
        page.wait_for_timeout(500)
        page.screenshot(path=DOCS / "serve.png")
        film.write(DOCS / "teach.gif")
        browser.close()


if __name__ == "__main__":
    main()
