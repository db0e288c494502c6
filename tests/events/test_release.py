"""Events on streams that carry safety events name the release that wrote them."""

from __future__ import annotations

import msgspec
import pytest

from shared.domain.version import VERSION
from shared.events import streams
from shared.events.cluster_events import ClusterListed
from shared.events.codec import UndecodableEvent, decode, encode, encode_on
from shared.events.envelope import Envelope

EVENT = ClusterListed("pods", 3)


def envelope(payload: bytes, type_name: str = "ClusterListed") -> Envelope:
    return Envelope(1, streams.LOG, 1, type_name, 1, payload, 0, "observer", 4, "c", "", 0, "")


@pytest.mark.parametrize("stream", [streams.LOG, streams.listing("pods"), "nomination/n1"])
def test_an_event_of_a_safety_stream_names_its_release_and_decodes_as_before(stream: str) -> None:
    payload = encode_on(stream, EVENT)
    assert msgspec.json.decode(payload)["release"] == VERSION
    assert decode(envelope(payload)) == EVENT


def test_other_events_do_not_pay_for_it() -> None:
    assert encode_on(streams.pod("u"), EVENT) == encode(EVENT)


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b'{"type":"Fence","release":"0.9.1"}', "epoch 4, of Topolog 0.9.1, a release with schema"),
        (b'{"type":"Fence","release":"0\\u001b[2J"}', r"of Topolog 0\x1b[2J, a release"),
        (b'{"type":"Fence","release":7}', "epoch 4, of a release with schema 1 of Fence"),
        (b'{"type":"Fence"}', "epoch 4, of a release with schema 1 of Fence"),
        (b"\xff", "epoch 4, of a release with schema 1 of Fence"),
    ],
)
def test_an_event_that_cannot_be_read_is_reported_with_its_release(
    payload: bytes, words: str
) -> None:
    with pytest.raises(UndecodableEvent) as raised:
        decode(envelope(payload, "Fence"))
    assert words in str(raised.value)
