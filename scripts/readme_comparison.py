"""The comparison at the top of README: what `topolog compare --json` told (docs/compare.jsonl), as
docs/compare.svg and a table.

`python scripts/readme_comparison.py` writes both; a test holds them to docs/compare.jsonl.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACE = "24 nodes of 2 zones, load 0.9"
BEGIN, END = (
    "<!-- comparison: made by scripts/readme_comparison.py from docs/compare.jsonl -->",
    "<!-- end of comparison -->",
)
BAR, ROW, LEFT = 440, 34, 230


def rows(lines: str) -> list[dict[str, str]]:
    """The rows that the command told, a JSON line each."""
    return [
        {name: str(value) for name, value in json.loads(line).items()}
        for line in lines.splitlines()
        if line.strip()
    ]


def picture(found: list[dict[str, str]]) -> str:
    """Bars of rejections as SVG."""
    most = max(_number(row["rejected"]) for row in found)
    height = ROW * len(found) + 44
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + BAR + 90} {height}"',
        '  font-family="sans-serif" font-size="14">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="8" y="22" font-weight="bold">Pods rejected by kubelets ({PLACE})</text>',
    ]
    for at, row in enumerate(found):
        y, rejected = 40 + ROW * at, _number(row["rejected"])
        width = max(2, round(BAR * rejected / most)) if rejected else 2
        colour = "#2a7f3f" if row["row"] == "Topolog" else "#b3432b"
        parts.append(f'<text x="8" y="{y + 17}">{row["row"]}</text>')
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{width}" height="22" fill="{colour}"/>')
        parts.append(f'<text x="{LEFT + width + 8}" y="{y + 17}">{rejected:,}</text>')
    return "\n".join([*parts, "</svg>", ""])


def block(found: list[dict[str, str]]) -> str:
    """What stands in README between the marks."""
    lines = [
        "![Rejections by kubelets: the same pods on the same machines, four ways of scheduling](docs/compare.svg)",  # noqa: E501
        "",
        "| the same pods on the same machines | tasks | ran | rejected by kubelets | p99 wait |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in found:
        wait = row["wait_p99_s"]
        lines.append(
            f"| {row['row']} | {row['tasks']} | {row['ran']} | {_number(row['rejected']):,} | {wait} s |"  # noqa: E501
        )
    return "\n".join([BEGIN, *lines, END])


def with_block(readme: str, made: str) -> str:
    """README with the block put in place of the old one."""
    return re.sub(
        re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: made, readme, count=1, flags=re.DOTALL
    )


def _number(text: str) -> int:
    return int(float(text.replace(",", "").split()[0]))


def main() -> None:
    """Write the picture and the block."""
    found = rows((ROOT / "docs" / "compare.jsonl").read_text())
    (ROOT / "docs" / "compare.svg").write_text(picture(found))
    readme = ROOT / "README.md"
    readme.write_text(with_block(readme.read_text(), block(found)))


if __name__ == "__main__":
    main()
