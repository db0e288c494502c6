"""Unary calls on h2, against servers that answer well, badly, half or not at all (grpcio's server:
test_grpc_source).
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived, StreamEnded

from services.exporter import unary
from services.exporter.unary import MAX_MESSAGE_BYTES, CallFailed
from tests.fuzz.mutation import damaged

Headers = list[tuple[str, str]]
WELL: Headers = [("grpc-status", "0"), ("grpc-message", "")]
TYPE: Headers = [(":status", "200"), ("content-type", "application/grpc")]


class Server:
    """Answers each request by `says(connection)`; `spoils` changes the bytes of the answer."""

    def __init__(self) -> None:
        self.says: Callable[[H2Connection], None] = lambda connection: answer(connection, b"hello")
        self.spoils: Callable[[bytes], bytes] = bytes
        self.request: Headers = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        connection.initiate_connection()
        while data := await reader.read(65536):
            for event in connection.receive_data(data):
                if isinstance(event, RequestReceived):
                    self.request = [(str(name), str(value)) for name, value in event.headers or ()]
                if isinstance(event, StreamEnded):
                    self.says(connection)
                    writer.write(self.spoils(connection.data_to_send()))
                    await writer.drain()
                    writer.write_eof()
        writer.close()


def answer(
    connection: H2Connection,
    message: bytes,
    trailers: Headers = WELL,
    flag: bytes = b"\0",
    stream: int = 1,
) -> None:
    connection.send_headers(stream, TYPE)
    framed = flag + len(message).to_bytes(4, "big") + message
    for start in range(0, len(framed), 16_384):
        connection.send_data(stream, framed[start : start + 16_384])
    connection.send_headers(stream, trailers, end_stream=True)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[tuple[Server, Callable[..., Awaitable[bytes]]]]:
    """Yield a server and a function that calls it."""
    made, path = Server(), str(tmp_path / "s.sock")
    listening = await asyncio.start_unix_server(made.serve, path)
    yield made, lambda timeout_s=5.0: unary.call(path, "/v1.Lister/List", b"request", timeout_s)
    listening.close()


Asked = tuple[Server, Callable[..., Awaitable[bytes]]]


async def test_an_answer_of_any_size_is_whole_and_the_request_is_grpc(server: Asked) -> None:
    for size in (0, 1, 100, 65_536, 3_000_000):
        message = os.urandom(size)
        server[0].says = lambda connection, message=message: answer(connection, message)  # type: ignore[misc]
        assert await server[1]() == message
    asked = dict(server[0].request)
    assert (asked[":path"], asked["content-type"], asked["te"], asked["grpc-timeout"]) == (
        "/v1.Lister/List",
        "application/grpc",
        "trailers",
        "5000m",
    )


def _larger(connection: H2Connection) -> None:
    connection.send_headers(1, TYPE)
    connection.send_data(1, b"\0" + (MAX_MESSAGE_BYTES + 1).to_bytes(4, "big"))


@pytest.mark.parametrize(
    ("says", "code", "words"),
    [
        (
            lambda c: c.send_headers(
                1, [*TYPE, ("grpc-status", "8"), ("grpc-message", "rate%20limit")], end_stream=True
            ),
            "RESOURCE_EXHAUSTED",
            "rate limit",
        ),
        (
            lambda c: answer(c, b"x", [("grpc-status", "14"), ("grpc-message", "gone")]),
            "UNAVAILABLE",
            "gone",
        ),
        (
            lambda c: c.send_headers(1, [(":status", "404")], end_stream=True),
            "UNKNOWN",
            "no gRPC status but HTTP 404",
        ),
        (lambda c: answer(c, b"x", [("grpc-status", "99")]), "UNKNOWN", "no gRPC status"),
        (lambda c: answer(c, b"x", [("grpc-status", "zero")]), "UNKNOWN", "no gRPC status"),
        (lambda c: answer(c, b"x", flag=b"\1"), "INTERNAL", "uncompressed"),
        (
            lambda c: c.send_headers(1, [*TYPE, ("grpc-status", "0")], end_stream=True),
            "INTERNAL",
            "0 bytes",
        ),
        (lambda c: c.reset_stream(1, 7), "UNAVAILABLE", "broke off"),
        (lambda c: c.close_connection(11), "UNAVAILABLE", "broke off"),
        (lambda c: c.send_headers(1, TYPE), "UNAVAILABLE", "closed before"),
        (_larger, "RESOURCE_EXHAUSTED", "larger than max"),
    ],
)
async def test_an_invalid_answer_has_a_code_and_a_message(
    server: Asked, says: Callable[[H2Connection], None], code: str, words: str
) -> None:
    server[0].says = says
    with pytest.raises(CallFailed, match=words) as raised:
        await server[1]()
    assert raised.value.code == code


@pytest.mark.parametrize(
    "data", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 5000, b"\xff" * 5000]
)
async def test_a_server_of_another_protocol_is_an_error_of_the_call(
    server: Asked, data: bytes
) -> None:
    server[0].spoils = lambda _data: data
    with pytest.raises(CallFailed) as raised:
        await server[1]()
    assert raised.value.code in ("UNAVAILABLE", "INTERNAL")


async def _says_nothing(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Keep the writer: Python 3.13 closes a connection without a reference to its writer."""
    await asyncio.sleep(30)
    writer.close()


async def test_a_hanging_server_times_out_and_an_absent_one_is_named(
    server: Asked, tmp_path: Path
) -> None:
    server[0].spoils = lambda _data: b""
    silent = await asyncio.start_unix_server(_says_nothing, str(tmp_path / "silent"))
    with pytest.raises(CallFailed, match="no answer within"):
        await unary.call(str(tmp_path / "silent"), "/v1.Lister/List", b"", 0.1)
    silent.close()
    with pytest.raises(CallFailed, match="UNAVAILABLE: no such file"):
        await unary.call(str(tmp_path / "none"), "/v1.Lister/List", b"", 1.0)


async def test_damaged_answers_are_errors_of_the_call_and_leave_no_descriptor_open(
    server: Asked,
) -> None:
    rng = random.Random(7)
    earlier = len(os.listdir("/proc/self/fd"))
    outcomes = set()
    for _ in range(400):
        server[0].spoils = lambda data: damaged(rng, data)
        try:
            await server[1](2.0)
            outcomes.add("answered")
        except CallFailed as error:
            outcomes.add(error.code)
    await asyncio.sleep(0.1)
    assert {"INTERNAL", "UNAVAILABLE"} <= outcomes
    assert len(os.listdir("/proc/self/fd")) <= earlier + 2


async def test_calls_one_after_another_share_a_connection_however_large_their_answers(
    tmp_path: Path,
) -> None:
    path, connections, message = (
        str(tmp_path / "s.sock"),
        list[asyncio.StreamReader](),
        os.urandom(9_000_000),
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(reader)
        connection = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        connection.initiate_connection()
        while data := await reader.read(65536):
            for event in connection.receive_data(data):
                if isinstance(event, StreamEnded):
                    answer(connection, message, stream=event.stream_id)
            writer.write(connection.data_to_send())
        writer.close()

    async with await asyncio.start_unix_server(serve, path):
        kept = unary.Connection(path)
        for _ in range(4):
            assert await kept.call("/v1.Lister/List", b"", 30.0) == message
        kept.close()
    assert len(connections) == 1


async def test_a_connection_bears_many_calls(tmp_path: Path) -> None:
    """Each call returns to the connection's window what the previous one took, and no more.
    Returning too much ended the 128th call.
    """
    path = str(tmp_path / "s.sock")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        connection.initiate_connection()
        while data := await reader.read(65536):
            for event in connection.receive_data(data):
                if isinstance(event, StreamEnded):
                    answer(connection, b"hello" * 2000, stream=event.stream_id)
            writer.write(connection.data_to_send())
        writer.close()

    async with await asyncio.start_unix_server(serve, path):
        kept = unary.Connection(path)
        for _ in range(300):
            assert await kept.call("/v1.Lister/List", b"", 5.0) == b"hello" * 2000
        kept.close()
