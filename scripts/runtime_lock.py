"""Prints the part of requirements.lock that the services need at run time: the lock without
development tools.

Reads pyproject.toml for what is asked for, and the lock's own `# via` notes for what follows.
Standard library only, because the image's build runs it before anything is installed.
"""

import re
import sys
import tomllib
from pathlib import Path

_ENTRY = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==", re.MULTILINE)


def normal(name: str) -> str:
    """A distribution's name as package indexes compare it (PEP 503), without extras."""
    found = re.match(r"[A-Za-z0-9._-]+", name)
    return re.sub(r"[-_.]+", "-", found.group() if found else name).lower()


def entries(lock: str) -> list[tuple[str, str, set[str]]]:
    """(name, text, names of those that need it) of every entry of the lock."""
    starts = [match.start() for match in _ENTRY.finditer(lock)]
    texts = [lock[begin:end] for begin, end in zip(starts, [*starts[1:], len(lock)], strict=True)]
    return [(normal(text), text, _needed_by(text)) for text in texts]


def runtime(lock: str, asked_for: list[str]) -> str:
    """The entries of `asked_for` and of all that they need, in the lock's order."""
    all_entries = entries(lock)
    wanted = {normal(name) for name in asked_for}
    while True:
        more = {name for name, _text, needed_by in all_entries if needed_by & wanted} - wanted
        if not more:
            return "".join(text for name, text, _needed_by in all_entries if name in wanted)
        wanted |= more


def _needed_by(text: str) -> set[str]:
    notes = re.findall(r"^    #[ ]+(?:via\b)?[ ]*(\S.*)?$", text, re.MULTILINE)
    return {normal(note) for note in notes if note and "pyproject.toml" not in note}


def main() -> None:
    """Print the reduced lock of the folder given, or of this project."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    sys.stdout.write(
        runtime((root / "requirements.lock").read_text(encoding="utf-8"), project["dependencies"])
    )


if __name__ == "__main__":
    main()
