"""`python scripts/site.py FOLDER`: copy the pages and what they link to, as mkdocs.yml
expects them.

Folders stay as in the repository, so that links between pages need no change.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("*.md", "docs", "k8s/*.yaml", "docker-compose.yml", "LICENSE")
_ITEM = re.compile(r"(- |\d+\. )")


def main(folder: str) -> None:
    out = Path(folder)
    shutil.rmtree(out, ignore_errors=True)
    tracked = ["git", "ls-files", "-z", "--", *PAGES, ":!:.github"]
    names = subprocess.run(tracked, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, out / name)
    for page in out.rglob("*.md"):
        page.write_text(with_lists_apart(page.read_text(encoding="utf-8")), encoding="utf-8")
    decisions = sorted((out / "docs" / "adr").glob("*.md"))
    lines = [f"- [{page.read_text().splitlines()[0][2:]}]({page.name})" for page in decisions]
    (out / "docs" / "adr" / "index.md").write_text("# Decisions\n\n" + "\n".join(lines) + "\n")
    readme = (out / "README.md").read_text().replace("](docs/adr)", "](docs/adr/index.md)")
    (out / "README.md").write_text(readme)


def with_lists_apart(text: str) -> str:
    """Put an empty line before each list: GitHub needs none there, Python-Markdown does."""
    lines: list[str] = []
    is_code = in_list = False
    for line in text.splitlines():
        if line.startswith("```"):
            is_code = not is_code
        if not is_code and _ITEM.match(line):
            if not in_list and lines and lines[-1]:
                lines.append("")
            in_list = True
        elif line and not line.startswith(" "):
            in_list = False
        lines.append(line)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(sys.argv[1])
