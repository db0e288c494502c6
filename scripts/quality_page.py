"""docs/quality.md and docs/quality.svg from the cells in docs/quality.jsonl: `python
scripts/quality_page.py`.

A test holds the page to the cells.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT))

from tests.bench.quality import command, report  # noqa: E402


def page() -> str:
    """What docs/quality.md says if it is of today."""
    return report.page(command.read(DOCS / "quality.jsonl"))


if __name__ == "__main__":
    (DOCS / "quality.md").write_text(page())
    report.plot(command.read(DOCS / "quality.jsonl"), DOCS / "quality.svg")
