"""A stored event decodes forever, every event type and schema has a vector, and nothing else
decodes.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.events import codec, upcasting
from shared.events.catalog import CATALOG, Entry, Event
from shared.events.cluster_events import PodEnded
from shared.events.codec import UndecodableEvent, decode, encode, type_of
from shared.events.envelope import Envelope
from tests.events.make_vectors import FOLDER, path_of
from tests.events.samples import full, plain

# Values of old vectors that upcasting changes on purpose: no release wrote them.
MEANT_NOW: dict[tuple[str, int], dict[str, Any]] = {
    ("ReservationWithdrawn", 1): {"cause": "node_ended"},
}
# Fields of old vectors that no event has any more.
GONE = {("ReservationWithdrawn", 1): {"detail"}}

VECTORS = [msgspec.json.decode(path.read_bytes()) for path in sorted(FOLDER.glob("*.json"))]
CASES = [(vector, case) for vector in VECTORS for case in vector["cases"]]


def stored(type_name: str, schema: int, payload: bytes) -> Envelope:
    return Envelope(7, "s", 1, type_name, schema, payload, 0, "r", 0, "c")


def holds(actual: Any, expected: Any) -> bool:
    """Return whether `actual` has all expected fields. It may have later ones, too."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        return all(key in actual and holds(actual[key], value) for key, value in expected.items())
    if isinstance(expected, list) and isinstance(actual, list):
        return len(actual) == len(expected) and all(map(holds, actual, expected))
    return type(actual) is type(expected) and actual == expected


@pytest.mark.parametrize(
    ("vector", "case"), CASES, ids=[f"{v['type']}.{v['schema']} {c['name']}" for v, c in CASES]
)
def test_a_stored_event_decodes_to_what_it_was(
    vector: dict[str, Any], case: dict[str, Any]
) -> None:
    event = decode(stored(vector["type"], vector["schema"], case["payload"].encode()))
    assert type_of(event) == vector["type"]
    which = vector["type"], vector["schema"]
    expected = {
        key: value for key, value in case["decoded"].items() if key not in GONE.get(which, ())
    }
    assert holds(plain(event), expected | MEANT_NOW.get(which, {}))


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_every_event_type_and_schema_has_a_vector(name: str) -> None:
    for schema in range(1, CATALOG[name].schema + 1):
        assert path_of(name, schema).exists(), (
            f"write it: python -m tests.events.make_vectors ({name} schema {schema})"
        )


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_a_event_as_it_is_now_has_no_field_that_its_vector_does_not_know(name: str) -> None:
    """If this fails, a field was added. Raise the schema and add a vector, or add the field's
    default to this vector's `decoded`.
    """
    vector = next(v for v in VECTORS if (v["type"], v["schema"]) == (name, CATALOG[name].schema))
    types = next(case["decoded"] for case in vector["cases"] if case["name"] == "full")
    assert holds(types, {key: types.get(key) for key in plain(full(CATALOG[name].struct))})
    assert set(plain(full(CATALOG[name].struct))) == set(types)


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_encoding_and_decoding_is_the_identity(name: str) -> None:
    event = full(CATALOG[name].struct)
    assert decode(stored(name, CATALOG[name].schema, encode(event))) == event


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_what_is_read_by_the_name_of_its_row_is_what_its_own_tag_says(name: str) -> None:
    event = full(CATALOG[name].struct)
    assert decode(stored(name, CATALOG[name].schema, encode(event))) == msgspec.json.decode(
        encode(event), type=Event
    )


def test_every_old_schema_has_an_upcaster_and_no_upcaster_is_left_over() -> None:
    wanted = {
        (name, schema) for name, entry in CATALOG.items() for schema in range(1, entry.schema)
    }
    assert set(upcasting.UPCASTERS) == wanted


def test_the_catalog_names_each_struct_by_its_own_name_and_in_one_area() -> None:
    assert all(entry.struct.__name__ == name for name, entry in CATALOG.items())
    assert {entry.area for entry in CATALOG.values()} == {
        "report",
        "cluster",
        "surroundings",
        "scheduling",
        "binding",
        "log",
    }
    assert all(
        entry.struct.__module__ == f"shared.events.{entry.area}_events"
        for entry in CATALOG.values()
    )


@pytest.mark.parametrize(
    ("envelope", "problem"),
    [
        (stored("FromTheFuture", 1, b"{}"), "unknown type"),
        (stored("PodBound", 99, b"{}"), "this release reads schema 1 to 1"),
        (stored("PodBound", 1, b'{"type":"PodRunning","uid":"u","node":"n"}'), "PodRunning"),
        (stored("PodBound", 1, b'{"type":"PodBound","uid":1,"node":"n"}'), "uid"),
        (stored("PodBound", 1, b""), "truncated"),
        (stored("PodBound", 1, b"\xff\xfe"), "malformed"),
    ],
)
def test_an_undecodable_event_is_reported_with_position_type_and_remedy(
    envelope: Envelope, problem: str
) -> None:
    with pytest.raises(UndecodableEvent, match="topolog replay") as refusal:
        decode(envelope)
    assert "event 7" in str(refusal.value)
    assert envelope.type in str(refusal.value)
    assert problem in str(refusal.value)


@given(st.sampled_from(CASES), st.data())
def test_damaged_payloads_are_refused_and_never_crash(
    chosen: tuple[dict[str, Any], dict[str, Any]], data: st.DataObject
) -> None:
    vector, case = chosen
    payload = bytearray(case["payload"].encode())
    index = data.draw(st.integers(0, len(payload) - 1))
    payload[index] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(payload)))
    for damaged in (bytes(payload), bytes(payload[:cut])):
        try:
            decode(stored(vector["type"], vector["schema"], damaged))
        except UndecodableEvent:
            continue


@pytest.mark.parametrize("name", ["NodeEnded", "PodEnded"])
def test_an_end_for_a_cause_that_went_still_decodes(name: str) -> None:
    payload = b'{"type":"%b","uid":"u","name":"n","cause":"node_ended"}' % name.encode()
    assert plain(decode(stored(name, 1, payload)))["cause"] == "deleted"


def test_an_older_schema_is_upcast_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Entry(CATALOG["PodRunning"].struct, 3, CATALOG["PodRunning"].area)
    monkeypatch.setitem(CATALOG, "PodRunning", entry)
    monkeypatch.setitem(codec._READERS, "PodRunning", codec._readers("PodRunning", entry))
    monkeypatch.setitem(
        upcasting.UPCASTERS, ("PodRunning", 1), lambda old: {**old, "uid": old["pod_uid"]}
    )
    monkeypatch.setitem(
        upcasting.UPCASTERS, ("PodRunning", 2), lambda old: {**old, "node": old["node"].lower()}
    )
    event = decode(stored("PodRunning", 1, b'{"type":"PodRunning","pod_uid":"u","node":"N"}'))
    assert plain(event)["uid"] == "u"
    assert plain(event)["node"] == "n"


def test_the_character_0_in_a_text_becomes_one_that_every_reader_bears() -> None:
    event = PodEnded("u", "failed", message="a\x00b \\u0000 \\\x00")
    payload = encode(event)
    assert b"\\u0000" not in payload.replace(b"\\\\", b"")
    read = decode(stored("PodEnded", 1, payload))
    assert isinstance(read, PodEnded)
    assert read.message == "a\ufffdb \\u0000 \\\ufffd"
