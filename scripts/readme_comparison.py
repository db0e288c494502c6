"""The comparison at the top of README: the numbers of docs/quality.md as a picture (docs/compare.svg) and a table.

`python scripts/readme_comparison.py` writes both; a test holds them to docs/quality.md.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACE = "dense, 2 zones"
NAMES = {
    "no awareness": "without NUMA awareness",
    "passthrough": "upstream plugin, passthrough",
    "overreserve": "upstream plugin, reserve cache",
    "ledger, proof": "Topolog",
}
BEGIN, END = "<!-- comparison: made by scripts/readme_comparison.py from docs/quality.md -->", "<!-- end of comparison -->"
BAR, ROW, LEFT = 440, 34, 230


def rows(quality: str) -> list[dict[str, str]]:
    """The rows of the first table of that place, by the names of its columns. Raises LookupError when there is none."""
    section = quality.split(f"### {PLACE}", 1)
    if len(section) < 2:
        raise LookupError(f"docs/quality.md has no table {PLACE!r}")
    lines = [line for line in section[1].split("\n### ", 1)[0].splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    found = {row[0]: dict(zip(cells[0], row, strict=False)) for row in cells[2:]}
    return [found[name] | {"row": shown} for name, shown in NAMES.items()]


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
        "![Rejections by kubelets: the same pods on the same machines, four ways of scheduling](docs/compare.svg)",
        "",
        "| the same pods on the same machines | tasks | ran | rejected by kubelets | p99 wait |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in found:
        wait = next(value for name, value in row.items() if name.startswith("p99 wait"))
        lines.append(f"| {row['row']} | {row['tasks']} | {row['ran']} | {_number(row['rejected']):,} | {wait} s |")
    return "\n".join([BEGIN, *lines, END])


def with_block(readme: str, made: str) -> str:
    """README with the block put in place of the old one."""
    return re.sub(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: made, readme, count=1, flags=re.DOTALL)


def _number(text: str) -> int:
    return int(float(text.replace(",", "").split()[0]))


def main() -> None:
    """Write the picture and the block."""
    found = rows((ROOT / "docs" / "quality.md").read_text())
    (ROOT / "docs" / "compare.svg").write_text(picture(found))
    readme = ROOT / "README.md"
    readme.write_text(with_block(readme.read_text(), block(found)))


if __name__ == "__main__":
    main()
