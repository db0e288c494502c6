"""No control character of a kubelet, a webhook or a name reaches the terminal (issue 42, A7)."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.cli import output, replay_print
from services.cli.foreign_pod import ForeignPod
from services.cli.output import PIPE_COLUMNS, CommandError, say_table
from services.embedded.up.display import Display
from services.replay.commands import Verdict
from services.replay.differing import Difference
from services.replay.explain import Story
from services.replay.why_not import WhyNot
from services.replay.words import Sentence
from services.top.draw import Scene, draw
from services.top.model import Newest, NodeRow, PodRow, Waiting, ZoneBar
from services.top.view import Page, View
from shared.telemetry.printable import is_printable, printable

ROOT = Path(__file__).resolve().parents[2]
UNSAFE = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x202E, 0x2066, 0xD800)]
HOSTILE = "pod\x1b]0;owned\x07\x1b[2J\x9b31m\r\nnode-1 Ready\u202e"
texts = st.text(st.one_of(st.sampled_from(UNSAFE), st.characters()), max_size=30)


def printed(action: Callable[[], None]) -> list[str]:
    """Return the lines of stdout and stderr."""
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        action()
    return stream.getvalue().split("\n")


@given(texts)
def test_printable_text_has_one_line_and_no_control_character(text: str) -> None:
    escaped = printable(text)
    assert is_printable(escaped)
    assert not any(character in escaped for character in UNSAFE)
    assert len(escaped.splitlines()) <= 1
    escaped.encode()
    assert printable(escaped) == escaped


@given(texts)
def test_lines_tables_and_complaints_escape_every_cell(text: str) -> None:
    lines = printed(lambda: output.say(text))
    assert len(lines) == 2
    lines += printed(lambda: output.say_table(("pod", "reason"), [(text, text)]))
    lines += printed(lambda: output.complain(CommandError(f"no pod {text}", text)))
    assert all(map(is_printable, lines))


@given(texts)
def test_json_escapes_what_a_terminal_would_act_on(text: str) -> None:
    value = text.encode("utf-8", "replace").decode()
    (line, _) = printed(lambda: output.json_line({"name": value}))
    assert json.loads(line) == {"name": value}
    assert not set(line) & {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))}


def hostile(kind: Any) -> Any:
    """Return a value of a msgspec type with hostile text in every field."""
    if kind is Any:
        return HOSTILE
    info = msgspec.inspect.type_info(kind)
    return _hostile(info)


def _hostile(info: Any) -> Any:
    name = type(info).__name__
    if name == "StrType":
        return HOSTILE
    if name in ("IntType", "FloatType"):
        return 1
    if name == "BoolType":
        return True
    if name in ("ListType", "VarTupleType", "CollectionType", "SetType"):
        items = [_hostile(info.item_type)]
        return tuple(items) if name == "VarTupleType" else items
    if name == "TupleType":
        return tuple(_hostile(item) for item in info.item_types)
    if name == "DictType":
        return {_hostile(info.key_type): _hostile(info.value_type)}
    if name == "UnionType":
        return _hostile(info.types[0])
    if name == "StructType":
        return info.cls(**{field.name: _hostile(field.type) for field in info.fields})
    if name == "LiteralType":
        return info.values[0]
    if name == "NoneType":
        return None
    return HOSTILE


@pytest.mark.parametrize(
    ("kind", "show"),
    [
        (Story, lambda value: replay_print.stories([value], False)),
        (WhyNot, replay_print.why_not),
        (ForeignPod, lambda value: replay_print.foreign(value, False)),
        (Verdict, replay_print.verdict),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_every_text_field_of_an_answer_is_escaped(kind: Any, show: Callable[[Any], None]) -> None:
    lines = printed(lambda: show(hostile(kind)))
    assert any("\\x1b" in line for line in lines)
    assert all(map(is_printable, lines))


def test_events_and_differences_are_escaped() -> None:
    row = {
        "position": 1,
        "time": "2026-01-31T12:00:00.123456Z",
        "pod": HOSTILE,
        "node": HOSTILE,
        "text": HOSTILE,
    }
    difference = msgspec.structs.replace(
        hostile(Difference), nodes=[], positions=(1, 2), hashes=(HOSTILE, HOSTILE)
    )
    lines = printed(lambda: replay_print.event_printer(False)(row))
    lines += printed(lambda: replay_print.difference(difference))
    assert all(map(is_printable, lines))


def test_the_picture_is_escaped() -> None:
    words = Sentence(HOSTILE, HOSTILE, HOSTILE)
    pages: tuple[Page, ...] = ("nodes", "queue", "pods", "node", "help")
    for page in pages:
        scene = Scene(
            view=View(page=page, search=HOSTILE),
            resource="cpu",
            position=1,
            head=2,
            nodes=1,
            rows=[NodeRow(HOSTILE, (ZoneBar(0, 1, 1, 1),), 1, 0.5, HOSTILE)],
            queue=[Waiting("uid", HOSTILE, HOSTILE)],
            stages={},
            rates={},
            rejected=0,
            newest=[Newest(1, "12:00:00", words)],
            pods=[PodRow("uid", HOSTILE, HOSTILE, "running")],
            body=[HOSTILE, HOSTILE],
            notes=[HOSTILE],
        )
        for line in draw(scene, 100, 30):
            assert is_printable(line.plain), (page, line.plain)


def test_the_notes_of_up_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    Display(as_json=False).note(HOSTILE)
    (line,) = capsys.readouterr().out.splitlines()
    assert is_printable(line)


@settings(max_examples=20)
@given(texts)
def test_a_wrong_argument_is_escaped(text: str) -> None:
    from services.cli.main import main

    arguments = ["topolog", "replay", "log", "--type", text, "--data-dir", "/nonexistent"]
    argv, sys.argv = sys.argv, arguments
    try:
        with pytest.raises(SystemExit):
            assert all(map(is_printable, printed(main)))
    finally:
        sys.argv = argv


def test_only_the_output_module_prints() -> None:
    """`print`, `typer.echo` and consoles elsewhere would bypass the escaping."""
    allowed = {"output.py", "voice.py", "progress.py", "compare.py"}
    direct = []
    for path in sorted((ROOT / "services" / "cli").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and path.name not in allowed:
                name = ast.unparse(node.func)
                if name in ("print", "typer.echo") or name.endswith("console().print"):
                    direct.append(f"{path.name}:{node.lineno} {name}")
    assert direct == []
    assert get_type_hints(output.say)


def test_a_table_is_aligned_by_what_a_terminal_shows(capsys: pytest.CaptureFixture[str]) -> None:
    say_table(("pod", "#cpu", "node"), [("é", "10", "n1"), ("日本", "5", "a\nb"), ("x", "", "")])
    assert capsys.readouterr().out == ("pod   cpu  node\né      10  n1\n日本    5  a\\nb\nx\n")


def test_a_table_that_is_too_wide_is_folded(capsys: pytest.CaptureFixture[str]) -> None:
    say_table(("pod", "text"), [("x", "y" * 2 * PIPE_COLUMNS)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 2
    assert all(len(line) <= PIPE_COLUMNS for line in lines)
