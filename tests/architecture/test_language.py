"""Names, expressions and comments of the code can be read without effort."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator

import pytest

from tests.architecture.plain_english import RARE, rate
from tests.architecture.test_structure import ROOT, sources

# Names that do not say what the value is.
VAGUE = frozenset(
    [
        "found",
        "each",
        "held",
        "told",
        "known",
        "one",
        "other",
        "own",
        "at",
        "by",
        "many",
        "left",
        "anew",
        "here",
        "there",
        "now",
        "before",
        "after",
        "beside",
    ]
)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def trees(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    for path in sources(*folders or ("services", "shared")):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))


def _targets_of_comprehensions(tree: ast.Module) -> set[ast.AST]:
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.comprehension)]
    return {name for loop in loops for name in ast.walk(loop.target)}


def _fields(tree: ast.Module) -> set[ast.AST]:
    """Return the names that records declare: they are read behind the record's name."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return {
        line.target for node in classes for line in node.body if isinstance(line, ast.AnnAssign)
    }


def _vague_bindings(tree: ast.Module) -> Iterator[ast.Name]:
    """Yield the names that assignments, `for`, `with` and `:=` bind outside comprehensions."""
    exempt = _targets_of_comprehensions(tree) | _fields(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Store):
            continue
        if node.id in VAGUE and node not in exempt:
            yield node


def _depth(node: ast.AST) -> int:
    """Return how many comprehensions lie in one another."""
    inner = max(map(_depth, ast.iter_child_nodes(node)), default=0)
    return inner + isinstance(node, COMPREHENSIONS)


def _holds_conditional(node: ast.AST) -> bool:
    return any(
        isinstance(inner, ast.IfExp)
        for child in ast.iter_child_nodes(node)
        for inner in ast.walk(child)
    )


def test_variables_say_what_they_hold() -> None:
    vague = [
        f"{file}:{name.lineno}: {name.id}"
        for file, tree in trees("services", "shared", "plugins", "scripts", "tests")
        for name in _vague_bindings(tree)
    ]
    assert vague == []


def test_no_conditional_expression_holds_another() -> None:
    nested = [
        f"{file}:{node.lineno}"
        for file, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.IfExp) and _holds_conditional(node)
    ]
    assert nested == []


def test_no_comprehension_is_nested_twice() -> None:
    nested = [
        f"{file}:{node.lineno}"
        for file, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, COMPREHENSIONS) and _depth(node) > 2
    ]
    assert nested == []


@pytest.fixture(scope="module")
def prose() -> str:
    """Docstrings and comments of services and shared."""
    texts = []
    for path in sources("services", "shared"):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                texts.append(ast.get_docstring(node) or "")
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        texts += [token.string for token in tokens if token.type == tokenize.COMMENT]
    return "\n".join(texts)


@pytest.mark.parametrize("words", RARE)
def test_docstrings_and_comments_are_in_plain_english(words: str, prose: str) -> None:
    assert rate(words, prose) <= RARE[words]
