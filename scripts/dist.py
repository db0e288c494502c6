"""`python scripts/dist.py FOLDER`: build the sdist and the wheel of this project into FOLDER, with
the packages of this environment (no index is asked).

They are built from a copy, because a build leaves files in the tree, and from the files that git
tracks, so that nothing else gets in.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main(folder: str) -> None:
    out = Path(folder).resolve()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="topolog-dist-") as name:
        tree = Path(name)
        for file in tracked():
            (tree / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, tree / file)
        for build in ("build_sdist", "build_wheel"):
            code = f"from setuptools import build_meta; build_meta.{build}({str(out)!r})"
            subprocess.run([sys.executable, "-c", code], cwd=tree, check=True, stdout=sys.stderr)
    for made in sorted(out.iterdir()):
        print(os.path.relpath(made))


def tracked() -> list[str]:
    """Return the files that git tracks and that still exist, without tests."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    names = listed.stdout.decode().split("\0")
    return [name for name in names if name and _is_shipped(name)]


def _is_shipped(name: str) -> bool:
    return not name.startswith(("tests/", ".")) and (ROOT / name).is_file()


if __name__ == "__main__":
    main(sys.argv[1])
