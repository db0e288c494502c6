"""Verbs of `topolog log` and `topolog replay` on files that are no histories: one problem, one
remedy, the right exit code.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from services.cli.main import main
from services.upkeep.exporting import export
from tests.eventlog.test_history_files import FACTS, a_log

REASON = ("--reason", "x")
READERS: list[tuple[str, ...]] = [
    ("replay", "log", "--database-url", "FILE"),
    ("replay", "log", "--follow", "--database-url", "FILE"),
    ("replay", "at", "head", "--database-url", "FILE"),
    ("replay", "explain", "web", "--database-url", "FILE"),
    ("replay", "diff", "FILE", "FILE"),
    ("replay", "diff", "1", "2", "--database-url", "FILE"),
    ("replay", "why-not", "web", "--node", "n", "--database-url", "FILE"),
    ("replay", "whatif", "--history", "FILE"),
    ("replay", "whatif", "--set", "strategy=LeastNUMANodes", "--database-url", "FILE"),
    ("replay", "verify", "--database-url", "FILE"),
    ("replay", "shadow", "--database-url", "FILE"),
    ("replay", "predictions", "--database-url", "FILE"),
    ("log", "export", "--out", "out.topolog.gz", "--database-url", "FILE"),
    ("log", "import", "FILE", "--database-url", "postgresql://nobody@127.0.0.1:9/x"),
]
WRITERS: list[tuple[str, ...]] = [
    ("log", "status", "--database-url", "FILE"),
    ("log", "skip", "1", *REASON, "--database-url", "FILE"),
    ("log", "redact", "web", *REASON, "--database-url", "FILE"),
    ("log", "archive", "--database-url", "FILE"),
    ("log", "begin-timeline", "--database-url", "FILE"),
]
HEADER = b'{"format":"topolog-history","version":1,"log_id":"l","timeline":1,"first":1,"last":1}\n'
LINES = {
    "a number": b"7\n",
    "a list": b"[]\n",
    "wrong types": (
        b'{"format":"topolog-history","version":"1","log_id":5,"timeline":[],"first":{},'
        b'"last":null}\n'
    ),
    "no fact": HEADER + b'{"position":"one"}\n',
    "deep": b"[" * 100_000,
    "not utf-8": HEADER[:-1] + b"\xff\xfe\n",
    "nothing": b"",
}
# `replay diff` reads these as moments, and refuses them.
UNSEEN = ("a link to itself", "below a file", "not there", "a long name", "nobody's home")
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def topolog(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Run `topolog ...` in an empty folder; return exit code and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TOPOLOG_DATABASE_URL", raising=False)

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["topolog", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capsys.readouterr().err

    return run


def hostile(folder: Path) -> dict[str, Path]:
    """Return paths that are no history, by name."""
    asyncio.run(_export(folder / "whole.topolog.gz"))
    whole = (folder / "whole.topolog.gz").read_bytes()
    made = {
        "truncated": whole[: len(whole) // 2],
        "cut at the end": whole[:-1],
        "without its end": gzip.compress(b"".join(gzip.decompress(whole).splitlines(True)[:-1])),
        "altered": whole[:-60] + bytes([whole[-60] ^ 1]) + whole[-59:],
        "trailing": whole[: len(whole) // 3] + b"garbage" * 100,
        "empty": b"",
        "text": b"plain text\n",
        "zeros": bytes(5000),
        **{name: gzip.compress(text) for name, text in LINES.items()},
    }
    paths = {}
    for number, (name, content) in enumerate(made.items()):
        paths[name] = folder / f"{number}.topolog.gz"
        paths[name].write_bytes(content)
    paths["an empty folder"] = folder / "none"
    paths["an empty folder"].mkdir()
    paths["a folder of garbage"] = folder / "garbage"
    paths["a folder of garbage"].mkdir()
    (folder / "garbage" / "x.topolog.gz").write_bytes(b"garbage")
    paths["a folder of folders"] = folder / "folders"
    (folder / "folders" / "x.topolog.gz").mkdir(parents=True)
    paths["a pipe"] = folder / "pipe"
    os.mkfifo(paths["a pipe"])
    paths["a link to itself"] = folder / "loop"
    paths["a link to itself"].symlink_to(paths["a link to itself"])
    paths["below a file"] = folder / "whole.topolog.gz" / "x"
    paths["not there"] = folder / "no.topolog.gz"
    paths["a long name"] = folder / ("x" * 300)
    paths["a device"] = Path("/dev/zero")
    paths["nobody's home"] = Path("~nobody-of-that-name/x.topolog.gz")
    return paths


async def _export(file: Path) -> None:
    await export(await a_log(), file, 1, FACTS)


@pytest.mark.parametrize("verb", READERS, ids=lambda verb: " ".join(verb[:3]))
def test_a_reader_names_the_fault_of_a_file(
    topolog: Run, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    for name, path in hostile(tmp_path).items():
        code, err = topolog(*(str(path) if item == "FILE" else item for item in verb))
        where = f"{name}: {err}"
        assert (err.count("topolog: "), err.count("  try: "), len(err.splitlines())) == (1, 1, 2), (
            where
        )
        assert "unexpected error" not in err, where
        assert len(err) < 800, where
        assert code == (2 if "diff" in verb and verb[2] == "FILE" and name in UNSEEN else 1), where
    assert not (tmp_path / "out.topolog.gz").exists()


@pytest.mark.parametrize("verb", WRITERS, ids=lambda verb: " ".join(verb[:2]))
def test_a_file_is_no_database(topolog: Run, tmp_path: Path, verb: tuple[str, ...]) -> None:
    for name, path in hostile(tmp_path).items():
        code, err = topolog(*(str(path) if item == "FILE" else item for item in verb))
        assert (err.count("topolog: "), err.count("  try: "), len(err.splitlines())) == (1, 1, 2), (
            f"{name}: {err}"
        )
        assert ("unexpected error" in err, code) == (False, 2), f"{name}: {err}"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_reported(topolog: Run, tmp_path: Path) -> None:
    (tmp_path / "x.topolog.gz").touch(mode=0o000)
    code, err = topolog("replay", "log", "--database-url", str(tmp_path / "x.topolog.gz"))
    assert (code, "cannot be read: Permission denied" in err) == (1, True)
