"""Every command that a page shows is one that `topolog`, the plugin or make takes, with its
options, and the files that it names exist. Those of the tour and the backup page also run, in their
own tests.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from services.cli.kubectl_plugin import parser
from services.cli.main import app
from tests.architecture.test_docs import ROOT, pages

BLOCK = re.compile(r"^```(?:sh|console)?\n(.*?)^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"(?<!`)`((?:topolog|kubectl|make|helm) [^`]*)`(?!`)")
FIRST = ("topolog", "kubectl", "make", "helm")
ENDS = ("|", "||", "&&", ">", ";", "#")
PATHS = ("k8s/", "docs/", "charts/")


def lines(text: str) -> Iterator[str]:
    """Yield what may be a command: lines of blocks, and code within sentences."""
    for block in BLOCK.findall(text):
        prompts = "$ " in block
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("$ ") or not prompts:
                yield line.strip().removeprefix("$ ")
    for code in INLINE.findall(text):
        yield " ".join(code.split())


def words_of(line: str) -> list[str]:
    """Return the words of a command up to a pipe, without optional parts in brackets."""
    try:
        words = shlex.split(re.sub(r"\[--[^\]]*\]", "", line), comments=True)
    except ValueError:
        return []
    until = next((index for index, word in enumerate(words) if word in ENDS), len(words))
    words = [word for word in words[:until] if word != "..."]
    if "--" in words and words[:1] == ["kubectl"]:
        words = words[words.index("--") + 1 :]
    return words if words[:1] and words[0] in FIRST else []


def shown(page: Path) -> list[list[str]]:
    every = (words_of(line) for line in lines(page.read_text(encoding="utf-8")))
    return [words for words in every if words]


def check_topolog(words: list[str]) -> None:
    """Walk to the verb, and let its parser read the options."""
    command: Any = get_command(app)
    context = command.context_class(command, info_name="topolog")
    while hasattr(command, "get_command") and words and not words[0].startswith("-"):
        command = command.get_command(context, words.pop(0))
        assert command is not None
        context = command.context_class(command, parent=context, **command.context_settings)
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    _, rest, _ = command.make_parser(context).parse_args(args=words)
    assert not rest or context.allow_extra_args or any(param.nargs < 0 for param in arguments)


def check_make(words: list[str]) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert [word for word in words if "=" not in word and word not in targets] == []


def check(command: list[str]) -> None:
    """Check one command; other programs by the files that they name."""
    name, *words = command
    for word in words:
        assert not word.startswith(PATHS) or (ROOT / word).exists()
    if name == "topolog":
        check_topolog(words)
    elif name == "make":
        check_make(words)
    elif words[:1] == ["topolog"] and words[1:]:
        parser().parse_args(words[1:])


PAGES = [page for page in pages() if page.name != "CHANGELOG.md" and shown(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_command_of_a_page_is_taken(page: Path) -> None:
    for command in shown(page):
        try:
            check(command)
        except (Exception, SystemExit) as error:
            raise AssertionError(f"{' '.join(command)}: {error!r}") from error


def test_the_pages_show_many_commands() -> None:
    assert sum(len(shown(page)) for page in PAGES) > 200
