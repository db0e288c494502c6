"""No modules import each other in a circle, imports inside functions included; of rooms no circle comes to those that are named.

An import inside a function hides a circle from Python, and from nobody who has to understand one of the two alone.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest

SCHEDULER = "services.scheduler"
ROOMS_OF_TWO = {("deciding", "preemption"), ("placing", "preemption"), ("preemption", "reserving")}
"""Rooms of the scheduler that know each other: placing nominates, nominations become proposals."""
Graph = dict[str, set[str]]


@pytest.fixture(scope="module")
def imports() -> Graph:
    """Module -> what it imports, wherever in it; what only types need is left out."""
    graph = grimp.build_graph("services", "shared", exclude_type_checking_imports=True, cache_dir=None)
    return {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}


def circle(graph: Graph) -> list[str]:
    """One circle, empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other_in_a_circle(imports: Graph) -> None:
    assert circle(imports) == []


def test_a_circle_by_an_import_inside_a_function_is_seen(imports: Graph) -> None:
    """`service` loads the extender in a function; what it loads could not load `service` too."""
    loaded = "services.scheduler.extender.server"
    assert loaded in imports["services.scheduler.service"]
    assert circle({**imports, loaded: {*imports[loaded], "services.scheduler.service"}}) != []


def room(module: str) -> str:
    return module.removeprefix(f"{SCHEDULER}.").partition(".")[0]


def test_no_rooms_of_the_scheduler_come_to_those_that_know_each_other(imports: Graph) -> None:
    pairs = {
        (room(module), room(other))
        for module, others in imports.items()
        for other in others
        if module.startswith(f"{SCHEDULER}.") and other.startswith(f"{SCHEDULER}.")
    }
    assert {(one, other) for one, other in pairs if one < other and (other, one) in pairs} == ROOMS_OF_TWO


def test_no_rooms_of_shared_and_no_services_go_round(imports: Graph) -> None:
    rooms: Graph = {}
    for module, others in imports.items():
        own = ".".join(module.split(".")[:2])
        rooms.setdefault(own, set()).update(name for each in others if (name := ".".join(each.split(".")[:2])) != own)
    assert circle(rooms) == []
