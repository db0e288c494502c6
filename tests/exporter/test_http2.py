"""Frames of HTTP/2 in any cut, against h2 as the server."""

from __future__ import annotations

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import PingAckReceived, RemoteSettingsChanged, StreamEnded
from hypothesis import given
from hypothesis import strategies as st

from services.exporter import http2
from services.exporter.http2 import Broken, Data, Frames, Headers, ProtocolError

WINDOW = 1 << 20
BLOCK = http2.header_block(
    {":method": "POST", ":scheme": "http", ":path": "/", ":authority": "localhost"}
)


def served(frames: Frames) -> tuple[H2Connection, int]:
    """Return a server that has read one request, and the request's stream."""
    server = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
    server.initiate_connection()
    stream = frames.request(BLOCK, b"request")
    events = server.receive_data(frames.to_send())
    assert any(isinstance(event, RemoteSettingsChanged) for event in events)
    assert any(isinstance(event, StreamEnded) for event in events)
    return server, stream


@given(
    st.lists(st.binary(max_size=40), max_size=4),
    st.integers(0, 60),
    st.sampled_from([1, 7, 9, 10, 100, 70_000]),
)
def test_an_answer_is_read_whatever_its_cuts_padding_and_headers(
    pieces: list[bytes], padding: int, cut: int
) -> None:
    frames = Frames(WINDOW)
    server, stream = served(frames)
    server.send_headers(stream, [(":status", "200")])
    for piece in pieces:
        server.send_data(stream, piece, pad_length=padding or None)
    server.ping(b"12345678")
    long = "x" * 30_000
    server.send_headers(stream, [("grpc-message", long)], end_stream=True)
    sent = server.data_to_send()
    parts = [
        part for start in range(0, len(sent), cut) for part in frames.receive(sent[start:][:cut])
    ]
    assert parts[0] == Headers(stream, {":status": "200"}, ends=False)
    assert parts[1:-1] == [Data(stream, piece, ends=False) for piece in pieces]
    assert parts[-1] == Headers(stream, {"grpc-message": long}, ends=True)
    events = server.receive_data(frames.to_send())
    assert any(isinstance(event, PingAckReceived) for event in events)


def test_the_window_that_an_answer_used_is_given_back_with_the_next_request() -> None:
    frames = Frames(WINDOW)
    server, stream = served(frames)
    earlier = server.outbound_flow_control_window
    server.send_headers(stream, [(":status", "200")])
    server.send_data(stream, b"12345", end_stream=True, pad_length=10)
    assert [part.stream for part in frames.receive(server.data_to_send())] == [1, 1]
    assert frames.request(BLOCK, b"") == 3
    server.receive_data(frames.to_send())
    assert server.outbound_flow_control_window == earlier


BEGUN = bytes([0, 0, 0, http2.SETTINGS, 0, 0, 0, 0, 0])


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return bytes([0, 0, len(payload), kind, flags, 0, 0, 0, stream]) + payload


@pytest.mark.parametrize(
    "sent",
    [
        frame(http2.DATA, 0, 1),
        BEGUN + frame(http2.DATA, 0, 0),
        BEGUN + frame(http2.SETTINGS, 0, 0, b"five."),
        BEGUN + frame(http2.PING, 0, 0, b"short"),
        BEGUN + frame(http2.GOAWAY, 0, 0, b"short"),
        BEGUN + frame(http2.PUSH_PROMISE, 0, 1),
        BEGUN + frame(http2.DATA, http2.PADDED, 1, b"\x06five."),
        BEGUN + frame(http2.CONTINUATION, 0, 1),
        BEGUN + frame(http2.HEADERS, 0, 1) + frame(http2.DATA, 0, 1),
        BEGUN + frame(http2.HEADERS, 0, 1) + frame(http2.CONTINUATION, 0, 3),
        BEGUN + frame(http2.HEADERS, http2.END_HEADERS, 1, b"\xff\xff\xff"),
        BEGUN + b"\x00\x40\x01" + bytes(6),
        BEGUN + frame(http2.HEADERS, 0, 1) + frame(http2.CONTINUATION, 0, 1, b"a" * 255) * 300,
    ],
)
def test_what_breaks_the_protocol_is_an_error(sent: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(Frames(WINDOW).receive(sent))


def test_frames_of_other_types_are_ignored_and_ends_have_their_code() -> None:
    frames = Frames(WINDOW)
    sent = BEGUN + frame(0x2A, 0, 1, b"?") + frame(http2.RST_STREAM, 0, 1, b"\0\0\0\x07")
    goaway = frame(http2.GOAWAY, 0, 0, bytes(7) + b"\x0b")
    assert list(frames.receive(sent + goaway)) == [Broken(1, 7), Broken(0, 11)]
