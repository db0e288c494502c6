"""Write the generated part of docs/quality.md, and docs/quality.svg, from the cells in
docs/quality.jsonl: `python scripts/quality_page.py`. A test compares the page with the cells.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT))

from tests.bench.quality import command, report  # noqa: E402


def page() -> str:
    """Return docs/quality.md with its generated part made again."""
    text = (DOCS / "quality.md").read_text()
    return report.with_block(text, command.read(DOCS / "quality.jsonl"))


if __name__ == "__main__":
    (DOCS / "quality.md").write_text(page())
    report.plot(command.read(DOCS / "quality.jsonl"), DOCS / "quality.svg")
