"""Generate the comparison at the top of README and docs/compare.svg from docs/compare.jsonl.

`topolog compare --json` writes docs/compare.jsonl. Run `python scripts/readme_comparison.py`
afterwards. A test compares both.
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
    """Return the rows, one for each JSON line."""
    return [
        {name: str(value) for name, value in json.loads(line).items()}
        for line in lines.splitlines()
        if line.strip()
    ]


def picture(results: list[dict[str, str]]) -> str:
    """Return the bars of rejections as SVG."""
    most = max(_number(row["rejected"]) for row in results)
    height = ROW * len(results) + 44
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + BAR + 90} {height}"',
        '  font-family="sans-serif" font-size="14">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="8" y="22" font-weight="bold">Pods rejected by kubelets ({PLACE})</text>',
    ]
    for index, row in enumerate(results):
        y, rejected = 40 + ROW * index, _number(row["rejected"])
        width = max(2, round(BAR * rejected / most)) if rejected else 2
        colour = "#2a7f3f" if row["row"] == "Topolog" else "#b3432b"
        parts.append(f'<text x="8" y="{y + 17}">{row["row"]}</text>')
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{width}" height="22" fill="{colour}"/>')
        parts.append(f'<text x="{LEFT + width + 8}" y="{y + 17}">{rejected:,}</text>')
    return "\n".join([*parts, "</svg>", ""])


def block(results: list[dict[str, str]]) -> str:
    """Return the text of README between the marks."""
    lines = [
        "![Rejections by kubelets: the same pods on the same machines, four ways of scheduling](docs/compare.svg)",  # noqa: E501
        "",
        "|the same pods on the same machines|tasks|ran|rejected by kubelets|p99 wait|",
        "|---|---:|---:|---:|---:|",
    ]
    for row in results:
        wait = row["wait_p99_s"]
        lines.append(
            f"|{row['row']}|{row['tasks']}|{row['ran']}|{_number(row['rejected']):,}|{wait} s|"
        )
    return "\n".join([BEGIN, *lines, END])


def with_block(readme: str, made: str) -> str:
    """Return README with the new block."""
    return re.sub(
        re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: made, readme, count=1, flags=re.DOTALL
    )


def _number(text: str) -> int:
    return int(float(text.replace(",", "").split()[0]))


def main() -> None:
    """Write the picture and the block."""
    results = rows((ROOT / "docs" / "compare.jsonl").read_text())
    (ROOT / "docs" / "compare.svg").write_text(picture(results))
    readme = ROOT / "README.md"
    readme.write_text(with_block(readme.read_text(), block(results)))


if __name__ == "__main__":
    main()
