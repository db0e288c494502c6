"""The store's history: replaying changes and walking back give the same objects as a plain record
of every state.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.simulator.api.core.kinds import PODS
from services.simulator.api.core.reads import Beginning, Page, ReadOptions, beginning, page, seen
from services.simulator.api.core.selectors import Selection, selection
from services.simulator.api.core.store import Gone, Store

NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
NODES = st.sampled_from(["", "n1", "n2"])
STEPS = st.lists(st.tuples(st.sampled_from(["put", "erase"]), NAMES, NODES), max_size=40)
State = dict[str, str]


def _play(store: Store, steps: list[tuple[str, str, str]]) -> dict[int, State]:
    """Carry out the steps. Return the state (node by name) after every version, kept in plain
    dictionaries.
    """
    state: State = {}
    states = {store.version: dict(state)}
    for action, name, node in steps:
        if action == "put":
            store.put(
                "pods",
                ("ns", name),
                {"metadata": {"name": name, "uid": name}, "spec": {"nodeName": node}},
            )
            state[name] = node
        elif name in state:
            store.erase("pods", ("ns", name))
            del state[name]
        states[store.version] = dict(state)
    return states


def _shown(entries: list) -> State:  # type: ignore[type-arg]
    return {entry.name: entry.obj["spec"]["nodeName"] for entry in entries}


@given(STEPS)
def test_a_past_list_is_what_was_there(steps: list[tuple[str, str, str]]) -> None:
    store = Store()
    for version, state in _play(store, steps).items():
        entries = store.entries_at("pods", "", version)
        assert not isinstance(entries, Gone)
        assert _shown(entries) == state
        assert [entry.name for entry in entries] == sorted(state)


@given(
    STEPS,
    st.sampled_from(["", "spec.nodeName=", "spec.nodeName=n1", "spec.nodeName!=n1"]),
    st.data(),
)
def test_a_watch_from_any_version_leads_to_the_present(
    steps: list[tuple[str, str, str]], fields: str, data: st.DataObject
) -> None:
    store = Store()
    states = _play(store, steps)
    chosen = selection(PODS, "", "", fields)
    assert isinstance(chosen, Selection)
    version = data.draw(st.sampled_from(sorted(states)))
    start = beginning(store, PODS, chosen, ReadOptions(version=str(version)))
    assert isinstance(start, Beginning)
    listed = store.entries_at("pods", "", version) if version else []
    assert not isinstance(listed, Gone)
    mirror = _shown([entry for entry in listed if chosen.takes(entry)])
    for change in start.changes if version else []:
        met = seen(chosen, change)
        if met is None:
            continue
        kind, entry = met
        assert (kind == "ADDED") == (entry.name not in mirror)
        if kind == "DELETED":
            del mirror[entry.name]
        else:
            mirror[entry.name] = entry.obj["spec"]["nodeName"]
    if version:
        assert mirror == _shown([entry for entry in store.entries("pods") if chosen.takes(entry)])
    else:
        assert _shown(start.entries) == _shown(
            [entry for entry in store.entries("pods") if chosen.takes(entry)]
        )


@given(STEPS, st.integers(1, 4), STEPS)
def test_pages_together_are_the_list_at_their_version(
    steps: list[tuple[str, str, str]], limit: int, later: list[tuple[str, str, str]]
) -> None:
    store = Store()
    _play(store, steps)
    wanted = _shown(store.entries("pods"))
    collected: State = {}
    token = ""
    while True:
        answer_page = page(
            store, PODS, Selection(namespace="ns"), ReadOptions(limit=limit, token=token)
        )
        assert isinstance(answer_page, Page)
        assert len(answer_page.entries) <= limit
        collected |= _shown(answer_page.entries)
        token = answer_page.token
        _play_on(store, later)
        later = []
        if not token:
            break
    assert collected == wanted


def _play_on(store: Store, steps: list[tuple[str, str, str]]) -> None:
    for action, name, node in steps:
        if action == "put":
            store.put(
                "pods",
                ("ns", name),
                {"metadata": {"name": name, "uid": name}, "spec": {"nodeName": node}},
            )
        elif store.get("pods", "ns", name):
            store.erase("pods", ("ns", name))


@given(st.integers(1, 30), st.integers(1, 10))
def test_history_is_bounded_and_says_what_it_forgot(writes: int, limit: int) -> None:
    store = Store(history_limit=limit)
    for index in range(writes):
        store.put(
            "pods",
            ("ns", "a"),
            {"metadata": {"name": "a", "uid": "a"}, "spec": {"nodeName": str(index)}},
        )
    for version in range(1, writes + 1):
        changes = store.changes_after("pods", version)
        if version < writes - limit:
            assert isinstance(changes, Gone)
        else:
            assert not isinstance(changes, Gone)
            assert [change.version for change in changes] == list(range(version + 1, writes + 1))


def test_a_full_shelf_lets_its_oldest_object_go() -> None:
    store = Store(capacities={"events": 3})
    for index in range(5):
        store.put(
            "events", ("ns", f"e{index}"), {"metadata": {"name": f"e{index}", "uid": str(index)}}
        )
    assert [entry.name for entry in store.entries("events")] == ["e2", "e3", "e4"]
