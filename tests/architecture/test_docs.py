"""Generated pages agree with the code (`make docs`), links lead to files, and named files exist."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.plain_english import RARE, rate

ROOT = Path(__file__).parents[2]


def generator() -> Any:
    spec = importlib.util.spec_from_file_location(
        "generate_docs", ROOT / "scripts" / "generate_docs.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["docs/metrics.md", "docs/events.md", "docs/constraints.md"])
def test_a_page_says_what_the_code_says(page: str) -> None:
    assert (ROOT / page).read_text(encoding="utf-8") == generator().PAGES[page](), "run: make docs"


def pages() -> list[Path]:
    return [*ROOT.glob("*.md")] + [
        page for folder in ("docs", "k8s", "charts") for page in (ROOT / folder).rglob("*.md")
    ]


def test_no_page_keeps_both_sides_of_a_merge() -> None:
    marker = re.compile(r"^(<{7} |>{7} )", re.MULTILINE)
    assert [
        str(page.relative_to(ROOT))
        for page in pages()
        if marker.search(page.read_text(encoding="utf-8"))
    ] == []


def test_the_site_has_every_page() -> None:
    """`make site` copies pages by pattern, but its navigation names each."""
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"\S+\.md", site))
    wanted = {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
    assert wanted <= named
    assert all((ROOT / name).is_file() for name in named - {"docs/adr/index.md"})


def test_links_between_the_pages_lead_somewhere() -> None:
    for page in pages():
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert "://" in target or (page.parent / target).exists(), (
                f"{page.relative_to(ROOT)} -> {target}"
            )


def test_links_to_sections_lead_to_a_heading() -> None:
    wrong = []
    for page in pages():
        for path, section in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", page.read_text("utf-8")):
            target = page.parent / path if path else page
            if target.suffix == ".md" and section not in headings(target):
                wrong.append(f"{page.relative_to(ROOT)} -> {path}#{section}")
    assert wrong == []


def headings(page: Path) -> set[str]:
    """Return the headings as GitHub writes them in addresses; `#` in code blocks counts, too."""
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_files_that_pages_name_exist() -> None:
    """Paths in backticks, in full or from the scheduler's or another room's folder on."""
    files = [str(path.relative_to(ROOT)) for path in sources()]
    for page in [ROOT / "ARCHITECTURE.md", *(ROOT / "docs" / "adr").glob("*.md")]:
        for name in re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)`", page.read_text(encoding="utf-8")):
            assert any(file == name or file.endswith(f"/{name}") for file in files), (
                f"{page.relative_to(ROOT)} names {name}, which does not exist"
            )


def sources() -> list[Path]:
    folders = ("services", "shared", "plugins", "tests", "migrations", "scripts")
    return [path for folder in folders for path in (ROOT / folder).rglob("*.py")]


GENERATED = {"events.md", "messages.md", "metrics.md"}


@pytest.mark.parametrize("words", RARE)
def test_the_pages_are_in_plain_english(words: str) -> None:
    text = "\n".join(page.read_text("utf-8") for page in pages() if page.name not in GENERATED)
    assert rate(words, text) <= RARE[words]
