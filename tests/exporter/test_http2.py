"""The client's side of HTTP/2 against h2's server: what is said is heard, and what comes understood however it is cut."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, PingAckReceived, RequestReceived, SettingsAcknowledged
from hypothesis import given
from hypothesis import strategies as st

from services.exporter.http2 import Http2, Http2Error, Part

WINDOW = 1 << 20
REQUEST = {":method": "POST", ":scheme": "http", ":path": "/v1.Lister/List", ":authority": "localhost"}
FINAL = {"grpc-status": "0", "grpc-message": ""}


def greeted() -> tuple[Http2, H2Connection]:
    """A client, and a server that has sent its settings."""
    server = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
    server.initiate_connection()
    return Http2(WINDOW), server


def cut(data: bytes, places: list[int]) -> list[bytes]:
    bounds = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(bounds)]


@given(st.dictionaries(st.from_regex(r"[a-z]{1,9}", fullmatch=True), st.text("abc%-", max_size=400), max_size=20), st.binary())
def test_a_server_hears_the_request_as_it_was_said(more: dict[str, str], body: bytes) -> None:
    client, server = greeted()
    stream = client.request(REQUEST | more, body)
    events = server.receive_data(client.to_send())
    heard = next(event for event in events if isinstance(event, RequestReceived))
    assert (heard.stream_id, dict(heard.headers or ())) == (stream, REQUEST | more)
    assert b"".join(event.data or b"" for event in events if isinstance(event, DataReceived)) == body


@given(
    st.lists(st.tuples(st.binary(max_size=40_000), st.integers(0, 255)), max_size=4),
    st.text("xyz", max_size=40_000),
    st.lists(st.integers(0, 200_000), max_size=8),
)
def test_an_answer_is_the_same_however_it_is_cut_padded_and_torn_into_frames(
    sent: list[tuple[bytes, int]], long: str, places: list[int]
) -> None:
    client, server = greeted()
    stream = client.request(REQUEST, b"")
    server.receive_data(client.to_send())
    server.send_headers(stream, [(":status", "200"), ("long", long)])
    for data, padding in sent:
        for start in range(0, len(data), 16_000):
            server.send_data(stream, data[start : start + 16_000], pad_length=padding)
    server.ping(b"12345678")
    server.send_headers(stream, list(FINAL.items()), end_stream=True)
    parts = [part for piece in cut(server.data_to_send(), places) for part in client.receive(piece)]
    assert b"".join(part.data for part in parts) == b"".join(data for data, _ in sent)
    assert dict(header for part in parts for header in part.headers) == {":status": "200", "long": long, **FINAL}
    assert [part.ended for part in parts] == [False] * (len(parts) - 1) + [True]
    acknowledged = {type(event) for event in server.receive_data(client.to_send())}
    assert {SettingsAcknowledged, PingAckReceived} <= acknowledged


def test_what_a_call_took_of_the_window_is_given_back_with_the_next() -> None:
    client, server = greeted()
    for _ in range(40):
        stream = client.request(REQUEST, b"")
        server.receive_data(client.to_send())
        server.send_headers(stream, [(":status", "200")])
        for _ in range(64):
            server.send_data(stream, bytes(16_000))
        server.end_stream(stream)
        assert client.receive(server.data_to_send())[-1] == Part(stream, ended=True)
    client.request(REQUEST, b"")
    server.receive_data(client.to_send())
    assert server.outbound_flow_control_window == 65_535 + WINDOW


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\0\0\0\0\0\0\0\0\1",  # data before settings
        b"\0\0\0\4\0\0\0\0\0" + b"\0\0\0\0\1\0\0\0\0",  # data of no stream
        b"\0\0\0\4\0\0\0\0\0" + b"\0\0\0\1\0\0\0\0\1" + b"\0\0\0\0\1\0\0\0\1",  # data amid headers
        b"\0\0\0\4\0\0\0\0\0" + b"\0\0\1\x09\4\0\0\0\1\x88",  # a continuation of nothing
        b"\0\0\0\4\0\0\0\0\0" + b"\0\0\2\0\x08\0\0\0\1\x07x",  # more padding than data
        b"\0\0\0\4\0\0\0\0\0" + b"\0\0\1\1\4\0\0\0\1\xff",  # headers that are none
        b"\0\0\0\4\0\0\0\0\0" + b"\0\0\4\5\4\0\0\0\1\0\0\0\2",  # a push
    ],
)
def test_what_http2_does_not_allow_is_an_error(data: bytes) -> None:
    client, _ = greeted()
    client.request(REQUEST, b"")
    with pytest.raises(Http2Error):
        client.receive(data)


@given(st.binary(max_size=300))
def test_bytes_of_any_kind_are_parts_or_an_error(data: bytes) -> None:
    client, server = greeted()
    with suppress(Http2Error):
        client.receive(server.data_to_send() + data)
