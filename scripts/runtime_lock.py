"""`python scripts/runtime_lock.py FOLDER [PART ...]`: print a part of requirements.lock: what
services need at `runtime`, or what the extras of pyproject.toml of these names need.

Reads the dependencies in pyproject.toml and the `# via` notes of the lock. Standard library only,
because the image's build runs this script before anything is installed.
"""

import re
import sys
import tomllib
from pathlib import Path

_ENTRY = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==", re.MULTILINE)


def normal(name: str) -> str:
    """Return a distribution's name as package indexes compare it (PEP 503), without extras."""
    match = re.match(r"[A-Za-z0-9._-]+", name)
    return re.sub(r"[-_.]+", "-", match.group() if match else name).lower()


def entries(lock: str) -> list[tuple[str, str, set[str]]]:
    """Return name, text, and the names of the dependents of every entry of the lock."""
    starts = [match.start() for match in _ENTRY.finditer(lock)]
    texts = [lock[begin:end] for begin, end in zip(starts, [*starts[1:], len(lock)], strict=True)]
    return [(normal(text), text, _needed_by(text)) for text in texts]


def runtime(lock: str, asked_for: list[str]) -> str:
    """Return the entries of `asked_for` and of their dependencies, in the lock's order."""
    all_entries = entries(lock)
    wanted = {normal(name) for name in asked_for}
    while True:
        added = {name for name, _text, needed_by in all_entries if needed_by & wanted} - wanted
        if not added:
            return "".join(text for name, text, _needed_by in all_entries if name in wanted)
        wanted |= added


def _needed_by(text: str) -> set[str]:
    notes = re.findall(r"^    #[ ]+(?:via\b)?[ ]*(\S.*)?$", text, re.MULTILINE)
    return {normal(note) for note in notes if note and "pyproject.toml" not in note}


def main() -> None:
    root = Path(sys.argv[1])
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    parts = {"runtime": project["dependencies"], **project["optional-dependencies"]}
    asked_for = [name for part in sys.argv[2:] or ["runtime"] for name in parts[part]]
    sys.stdout.write(runtime((root / "requirements.lock").read_text(encoding="utf-8"), asked_for))


if __name__ == "__main__":
    main()
