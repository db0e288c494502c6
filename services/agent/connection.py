"""One connection to the container runtime: answers its requests, and calls it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtobufMessage

from services.agent import ttrpc
from services.agent.nri import nri_pb2 as pb
from services.agent.ttrpc import PLUGIN, REQUEST, RESPONSE, RUNTIME, Message, ProtocolError

M = TypeVar("M", bound=ProtobufMessage)
RUNTIME_SERVICE: Final = "nri.pkg.api.v1alpha1.Runtime"
PLUGIN_SERVICE: Final = "nri.pkg.api.v1alpha1.Plugin"
READ_BYTES = 1 << 16
# Codes of gRPC.
UNKNOWN, INVALID_ARGUMENT, FAILED_PRECONDITION, UNIMPLEMENTED = 2, 3, 9, 12


class CallError(Exception):
    """A call failed: raised by an answer to refuse, and by `call` if the runtime refused."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


# Returns the payload of the answer to a method and payload. Raises CallError.
Answer = Callable[[str, bytes], bytes]


class Connection:
    """Requests are answered in their order and at once, since the runtime waits for each."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._answer = answer
        self._decoder = ttrpc.Decoder()
        self._stream = -1
        self._calls: dict[int, asyncio.Future[bytes]] = {}

    @classmethod
    async def open(cls, path: str, answer: Answer) -> Connection:
        """Connect to a unix socket. Raises OSError."""
        return cls(*await asyncio.open_unix_connection(path), answer)

    async def serve(self) -> None:
        """Answer until the runtime ends the connection. Raises OSError or ProtocolError."""
        while data := await self._reader.read(READ_BYTES):
            for message in self._decoder.feed(data):
                self._handle(message)
            await self._writer.drain()

    async def call(self, method: str, payload: bytes, timeout_s: float) -> bytes:
        """Call the runtime. Raises CallError, OSError or TimeoutError."""
        self._stream += 2
        stream, future = self._stream, asyncio.get_running_loop().create_future()
        self._calls[stream] = future
        timeout_ns = int(timeout_s * 1e9)
        request = pb.Request(
            service=RUNTIME_SERVICE, method=method, payload=payload, timeout_nano=timeout_ns
        )
        try:
            self._send(Message(RUNTIME, stream, REQUEST, request.SerializeToString()))
            async with asyncio.timeout(timeout_s):
                answered: bytes = await future
                return answered
        finally:
            self._calls.pop(stream, None)

    async def close(self) -> None:
        """Close the socket, so that the runtime forgets the plugin."""
        self._writer.close()
        for future in self._calls.values():
            future.cancel()

    def _handle(self, message: Message) -> None:
        if message.connection == PLUGIN and message.kind == REQUEST:
            answer = self._response(message.data).SerializeToString()
            self._send(Message(PLUGIN, message.stream, RESPONSE, answer))
        elif message.connection == RUNTIME and message.kind == RESPONSE:
            future = self._calls.get(message.stream)
            response = _parsed(pb.Response, message.data)
            if future is None or future.done():
                return
            if response.status.code:
                future.set_exception(CallError(response.status.code, response.status.message))
            else:
                future.set_result(response.payload)

    def _response(self, data: bytes) -> pb.Response:
        request = _parsed(pb.Request, data)
        try:
            if request.service != PLUGIN_SERVICE:
                raise CallError(UNIMPLEMENTED, f"no service {request.service}")
            return pb.Response(payload=self._answer(request.method, request.payload))
        except DecodeError as error:
            status = pb.Status(code=INVALID_ARGUMENT, message=f"unreadable request: {error}")
            return pb.Response(status=status)
        except CallError as error:
            return pb.Response(status=pb.Status(code=error.code, message=str(error)))

    def _send(self, message: Message) -> None:
        self._writer.write(ttrpc.encode(message))


def _parsed(kind: type[M], data: bytes) -> M:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise ProtocolError(f"unreadable {kind.__name__}: {error}") from error
