"""No modules import each other in a circle, imports inside functions included, and no rooms do;
ARCHITECTURE.md orders the rooms.

A room is a folder, or a module next to folders. An import inside a function hides a circle from
Python, but not from a reader of one of the two modules.
"""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

Graph = dict[str, set[str]]
# (folder, order): rooms on the left may import those on the right; rooms with a bar between them do
# not import each other.
TOLD = re.findall(
    r"^In `([a-z/_]+)`: `([^`]+)`$", Path("ARCHITECTURE.md").read_text("utf-8"), re.MULTILINE
)


@pytest.fixture(scope="module")
def imports() -> Graph:
    """Return module -> its imports anywhere in it, except those for types only."""
    graph = grimp.build_graph(
        "services", "shared", "plugins", exclude_type_checking_imports=True, cache_dir=None
    )
    return {
        module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules
    }


def circle(graph: Graph) -> list[str]:
    """Return one circle; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other_in_a_circle(imports: Graph) -> None:
    assert circle(imports) == []


def test_a_circle_by_an_import_inside_a_function_is_seen(imports: Graph) -> None:
    """`service` loads the extender in a function, so a module that the extender loads could not
    load `service`.
    """
    loaded = "services.scheduler.extender.server"
    assert loaded in imports["services.scheduler.service"]
    assert circle({**imports, loaded: {*imports[loaded], "services.scheduler.service"}}) != []


def rooms_in(package: str, imports: Graph) -> Graph:
    """Return, for each room of the package, the rooms that its modules import."""
    graph: Graph = {}
    for module in imports.keys() - {package}:
        if module.startswith(f"{package}."):
            own_room, others = (
                room(package, module),
                {room(package, other) for other in imports[module]},
            )
            graph.setdefault(own_room, set()).update(others - {own_room, ""})
    return graph


def room(package: str, module: str) -> str:
    """Return `b` for `a.b.c` in `a`; "" for a module outside the package."""
    return (
        module.removeprefix(f"{package}.").partition(".")[0]
        if module.startswith(f"{package}.")
        else ""
    )


def test_no_rooms_of_any_folder_go_round(imports: Graph) -> None:
    folders = {module.rpartition(".")[0] for module in imports} - {""}
    assert len(folders) > 30
    assert {
        folder: cycle for folder in sorted(folders) if (cycle := circle(rooms_in(folder, imports)))
    } == {}


def test_a_circle_of_rooms_is_seen_though_no_modules_go_round(imports: Graph) -> None:
    """`reserve` imports the shard from `queue`. A module of `queue` that imported proposals would
    close a circle of rooms.
    """
    loose = "services.scheduler.queue.shard"
    closed = {**imports, loose: {*imports[loose], "services.scheduler.reserve.proposals"}}
    assert circle(closed) == []
    assert circle(rooms_in("services.scheduler", closed)) != []


def test_rooms_are_ordered_as_the_architecture_says() -> None:
    assert [folder for folder, _ in TOLD] == [
        "shared",
        "services",
        "services/scheduler",
    ]


@pytest.mark.parametrize(("folder", "order"), TOLD, ids=[folder for folder, _ in TOLD])
def test_rooms_import_only_what_is_on_their_right(folder: str, order: str, imports: Graph) -> None:
    layers = [layer.split(" | ") for layer in order.split(" → ")]
    depth = {name: index for index, layer in enumerate(layers) for name in layer}
    rooms = rooms_in(folder.replace("/", "."), imports)
    assert sorted(depth) == sorted(rooms)
    wrong = [
        (name, other)
        for name, others in rooms.items()
        for other in others
        if depth[other] <= depth[name]
    ]
    assert wrong == []
