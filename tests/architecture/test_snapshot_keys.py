"""A snapshot is used only by the code that made it: its key changes with every module that the fold
runs on, and no fold runs on a module that its key leaves out."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, ModuleType

import msgspec
import pytest

from services.binder import core as binder
from services.scheduler.core import CoreConfig
from services.scheduler.handlers import fold_of
from services.scheduler.settings import provenance
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.state import state as scheduler_state
from services.topology_store import core as store
from services.topology_store import mirror
from shared.eventlog import closure
from shared.eventlog.snapshots import fingerprint
from shared.events import codec, streams
from shared.events.binding_events import BindIntended, PodBound
from shared.events.catalog import CATALOG, Event
from shared.events.cluster_events import NodeObserved, PodEnded, PodObserved, PodRunning
from shared.events.envelope import Envelope
from shared.events.report_events import NodeReportChanged, NodeReported
from shared.events.scheduling_events import (
    NodeCharged,
    NodeClaimed,
    NodeReconciled,
    PodNominated,
    PodReserved,
)
from shared.hints import registry
from shared.hints.provider import HintProvider
from tests.hints.licences import Licences
from tests.ledger.given import container, cpu, held, pod, report, zone

FOLDS: dict[str, ModuleType] = {
    "scheduler": scheduler_state,
    "binder": binder,
    "topology-store": store,
}
INIT = pod("a", container("i", cpus=2, kind="init"), container("c", cpus=4))
OTHER = pod("b", cpus=2)


def told() -> Iterator[tuple[str, Event]]:
    """Return events of every kind that changes a fold."""
    zones = zone(0, 8), zone(1, 8)
    yield streams.node("n1"), NodeObserved("n1", "u")
    yield streams.report("n1"), NodeReported(report(*zones))
    for module in (INIT, OTHER):
        yield streams.pod(module.uid), PodObserved(module)
        yield streams.pod(module.uid), PodReserved(module.uid, "n1")
        yield streams.node("n1"), NodeCharged("n1", module.uid)
        yield streams.pod(module.uid), BindIntended(module.uid, "ns", module.name, "n1", 1)
        yield streams.pod(module.uid), PodBound(module.uid, "n1")
    yield (
        streams.report("n1"),
        NodeReportChanged("n1", "boot-1", 2, "exporter-1", listed=(held("a", 0, 4),)),
    )
    yield streams.pod(INIT.uid), PodRunning(INIT.uid, "n1")
    yield streams.pod("uid-x"), PodObserved(pod("x", cpus=8))
    yield streams.pod("uid-x"), PodNominated("uid-x", "n1", (OTHER.uid,), {1: cpu(2)})
    yield streams.node("n1"), NodeClaimed("n1", "uid-x")
    yield streams.pod(OTHER.uid), PodEnded(OTHER.uid, "deleted")
    yield (
        streams.report("n1"),
        NodeReported(report(*zones, at=3, placements=None, fingerprint="pfp0v001x")),
    )
    yield streams.node("n1"), NodeReconciled("n1", "fingerprint", 3, 4)


def history() -> list[Envelope]:
    versions: dict[str, int] = {}
    versions_kept = []
    for position, (stream, event) in enumerate(told(), start=1):
        versions[stream] = versions.get(stream, 0) + 1
        name = codec.type_of(event)
        schema = CATALOG[name].schema
        payload = codec.encode(event)
        versions_kept.append(
            Envelope(
                position, stream, versions[stream], name, schema, payload, 0, "r", 0, str(position)
            )
        )
    return versions_kept


def follow(envelopes: list[Envelope]) -> None:
    state = scheduler_state.SchedulerState()
    for envelope in envelopes:
        scheduler_state.evolve(state, envelope, codec.decode(envelope))


def list_work(envelopes: list[Envelope]) -> None:
    work = binder.initial()
    for envelope in envelopes:
        binder.evolve(work, envelope, codec.decode(envelope))


def know(envelopes: list[Envelope]) -> None:
    initial = store.initial()
    for envelope in envelopes:
        if envelope.stream.startswith("report/"):
            initial = store.evolve(initial, codec.decode(envelope), envelope.version, 0)


RUN = {"scheduler": follow, "binder": list_work, "topology-store": know}


def modules_that_run(work: Callable[[], None]) -> set[str]:
    """Return the project's modules whose code runs meanwhile."""
    seen: set[str] = set()

    def note(frame: FrameType, _event: str, _argument: object) -> None:
        seen.add(frame.f_globals.get("__name__", ""))

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return {name for name in seen if name.startswith(("services.", "shared."))}


def key_modules(root: ModuleType) -> set[str]:
    return set(closure.closure([root.__name__, codec.__name__]))


@pytest.mark.parametrize("name", sorted(FOLDS))
def test_a_fold_runs_on_nothing_that_its_key_leaves_out(name: str) -> None:
    envelopes, fold = history(), RUN[name]
    ran = modules_that_run(lambda: fold(envelopes))
    assert len(ran) > 2
    assert ran - key_modules(FOLDS[name]) == set()


@pytest.mark.parametrize("name", sorted(FOLDS))
def test_the_key_changes_with_every_module_that_the_fold_runs_on(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_before, source = fingerprint(FOLDS[name].__name__, name), closure.source
    for changed in sorted(key_modules(FOLDS[name])):
        monkeypatch.setattr(
            closure, "source", lambda each, changed=changed: source(each) + "\n" * (each == changed)
        )
        assert fingerprint(FOLDS[name].__name__, name) != key_before, changed
    monkeypatch.setattr(closure, "source", source)
    assert fingerprint(FOLDS[name].__name__, name) == key_before


def test_the_binder_key_covers_evictions_and_the_schedulers_covers_amounts_and_pods() -> None:
    assert "services.binder.evicting" in key_modules(binder)
    assert {"shared.domain.resources", "shared.domain.pod"} <= key_modules(scheduler_state)


def test_what_was_registered_is_part_of_the_key() -> None:
    plain = fingerprint(scheduler_state.__name__, "s")
    assert fingerprint(scheduler_state.__name__, "s", [PodBound("u", "n")]) != plain
    assert fingerprint(scheduler_state.__name__, "s", [store.decide]) != fingerprint(
        scheduler_state.__name__, "s", [binder.evolve]
    )


def test_the_key_is_of_the_fold_and_its_settings() -> None:
    assert fingerprint(store.__name__, "a") != fingerprint(store.__name__, "b")
    assert fingerprint(store.__name__, "a") != fingerprint(binder.__name__, "a")


KEYS: dict[str, Callable[[], str]] = {
    "scheduler": lambda: fold_of(CoreConfig()).fingerprint,
    "mirror": mirror.snapshot_key,
    "decisions": lambda: provenance(CycleConfig()).code,
}


@pytest.mark.parametrize("whose", sorted(KEYS))
def test_a_providers_arguments_are_part_of_the_key(
    whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def key(*providers: HintProvider) -> str:
        monkeypatch.setattr(registry, "PROVIDERS", (*registry.KUBELETS_OWN, *providers))
        return KEYS[whose]()

    assert key(Licences(home=0)) == key(Licences(home=0))
    assert (
        len(
            {
                key(),
                key(Licences(home=0)),
                key(Licences(home=1)),
                key(Licences(home=1), Licences(home=0)),
            }
        )
        == 4
    )


class Keyless:
    """A provider with arguments that is written wrongly."""

    def __init__(self, home: int) -> None:
        self.home = home


class Slotted:
    __slots__ = ("home",)

    def __init__(self, home: int) -> None:
        self.home = home


class Mutable(msgspec.Struct):
    home: int


class Holding(msgspec.Struct, frozen=True):
    homes: list[int]


class Asking(msgspec.Struct, frozen=True):
    asked: Callable[[], int]


@pytest.mark.parametrize("registered", [Keyless(1), Slotted(1), Mutable(1)])
def test_what_is_registered_with_arguments_is_a_frozen_struct(registered: object) -> None:
    with pytest.raises(
        TypeError,
        match=rf"{type(registered).__name__} is registered .*; make it a frozen msgspec\.Struct",
    ):
        fingerprint(scheduler_state.__name__, "s", [registered])


@pytest.mark.parametrize("registered", [Holding([1]), Asking(lambda: 1)])
def test_and_its_arguments_are_plain_immutable_values(registered: object) -> None:
    with pytest.raises(
        TypeError,
        match=rf"{type(registered).__name__} is registered .*; use plain immutable values",
    ):
        fingerprint(scheduler_state.__name__, "s", [registered])


def test_a_module_that_is_not_there_is_named() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"services\.nowhere"):
        closure.closure(["services.nowhere"])


ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for top in closure.PROJECT for path in (ROOT / top).rglob("*.py"))
ELSEWHERE = {
    "in a function": "import a\n\n\ndef f():\n    from b import c\n",
    "behind a definition": "class A:\n    pass\n\n\nimport b\n",
    "under a definition in a string": '"""Text:\n\ndef f():\n"""\nimport a\n',
    "under one in a string that is all": 'A = """\nclass B:\n"""\nif A:\n    import a\n',
    "for type checkers": "if TYPE_CHECKING:\n    import a\n\n\ndef f():\n    return 1\n",
    "on one line": "import a; from b import c\ndef f(): import d\n",
    "nowhere": "@f\ndef g():\n    return 1\n",
    "in every kind of block": (
        "try:\n    import a\nexcept E:\n    import b\nelse:\n    import c\nfinally:\n    import d\n"
        "match x:\n    case 1:\n        import e\nwhile y:\n    import f\nelse:\n    "
        "import g\nwith z:\n    import h\n"
    ),
}


def imports_in(tree: ast.Module) -> list[str]:
    return [
        ast.unparse(each)
        for each in closure._statements(tree)
        if isinstance(each, ast.Import | ast.ImportFrom)
    ]


def imports_anywhere(node: ast.AST) -> Iterator[ast.AST]:
    """Return the imports in a whole tree, expressions included, except those that only a type
    checker runs.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
            yield from imports_anywhere(child)


def test_every_import_of_the_project_is_found_though_not_all_of_a_source_is_parsed() -> None:
    assert len(SOURCES) > 300
    for path in SOURCES:
        text = path.read_text()
        assert imports_in(closure._tree(text)) == [
            ast.unparse(each) for each in imports_anywhere(ast.parse(text))
        ], path


@pytest.mark.parametrize("where", sorted(ELSEWHERE))
def test_an_import_is_found_at_every_place_of_a_module(where: str) -> None:
    whole = [ast.unparse(each) for each in imports_anywhere(ast.parse(ELSEWHERE[where]))]
    assert imports_in(closure._tree(ELSEWHERE[where])) == whole
