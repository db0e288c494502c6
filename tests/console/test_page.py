"""Every view in a headless Chromium, if one is installed. The page reports what it drew."""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile

import pytest

from services.console.service import STATIC
from tests.console.served import served, small_cluster

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
LIMIT_S = 60


async def drawn(url: str, place: str) -> str:
    """Return the document after a few seconds of the page's virtual time."""
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory() as profile:
        process = await asyncio.create_subprocess_exec(
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={profile}",
            "--virtual-time-budget=5000",
            "--dump-dom",
            f"{url}/console/#{place}",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(LIMIT_S):
            output, _ = await process.communicate()
    return output.decode()


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("map?node=n1&shape=cpu%3D3&mode=fits", ["policy single-numa-node", "surely fits 4 times"]),
        ("pods?pod=ns/large&whyNot=n1", ["ns/placed", "Why not n1?", "waits since"]),
        ("time?at=6&other=4", ["Position 6,", "Position 4,", "Events around position 6"]),
        (
            "health",
            [
                "2 nodes, 2 live pods",
                "Room for the most frequent pods",
                'alt="Plot: rates"',
                "blob:",
            ],
        ),
        ("what-if?change=strategy%3DBestFit", ["what-if is off here"]),
    ],
)
async def test_a_view_draws_what_its_address_says(place: str, words: list[str]) -> None:
    async with served((await small_cluster()).log, what_if_limit_s=0) as url:
        document = await drawn(url, place)
    for text in words:
        assert text in document


def test_the_page_asks_no_other_server_and_has_nothing_inline() -> None:
    for file in STATIC.iterdir():
        text = file.read_text(encoding="utf-8")
        assert "//" not in text.replace("http://www.w3.org/2000/svg", "").replace("// ", "")
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert "style=" not in page
    assert "onclick=" not in page
    assert page.count("<script") == 1


def luminance(color: str) -> float:
    """Return the relative luminance of #rrggbb (WCAG 2.2)."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    lighter, darker = sorted((luminance(first), luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize(("theme", "on_chosen_view"), [(0, "#ffffff"), (1, "#0b1220")])
def test_texts_and_marks_have_the_contrast_of_wcag_aa(theme: int, on_chosen_view: str) -> None:
    blocks = re.findall(r":root {([^}]*)", (STATIC / "console.css").read_text(encoding="utf-8"))
    colors = dict(re.findall(r"--(\w+): (#\w{6})", blocks[theme]))
    for text in ("text", "subtle", "link", "bad", "good"):
        for back in ("back", "panel"):
            assert contrast(colors[text], colors[back]) >= 4.5, (text, back)
    assert contrast(on_chosen_view, colors["used"]) >= 4.5
    assert contrast(colors["text"], colors["mark"]) >= 4.5
    for mark in ("used", "charged"):
        for back in ("free", "back"):
            assert contrast(colors[mark], colors[back]) >= 3, (mark, back)
