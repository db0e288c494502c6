"""The bytes of NRI's socket as messages. Pure.

1. ttrpc: each message has a header of 10 bytes (length, stream, type, flags; big-endian). NRI calls
   are unary: one request, one response on the same stream, no flags. Clients count odd streams.
2. NRI carries two ttrpc connections over one socket, one for each direction of calls. Their bytes
   come in frames of connection id and length.
3. The runtime reads a frame into what is free of a buffer of 4096 bytes and gives up if it does
   not fit (`conn.Read`, bufio). So each message starts a frame, and no frame is longer.

Sources: containerd/ttrpc PROTOCOL.md and channel.go; containerd/nri 8ec8b285
pkg/net/multiplex/mux.go.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

# The runtime calls the plugin on the first connection, the plugin calls the runtime on the second.
PLUGIN, RUNTIME = 1, 2
REQUEST, RESPONSE = 1, 2
MAX_MESSAGE = 4 << 20
MAX_FRAME = 4096
_FRAME = struct.Struct(">II")
_HEADER = struct.Struct(">IIBB")


class ProtocolError(ValueError):
    """The other side violated the protocol. The connection must end."""


class Message(msgspec.Struct, frozen=True):
    """A request or response on a stream of one of the two connections."""

    connection: int
    stream: int
    kind: int
    data: bytes


def encode(message: Message) -> bytes:
    """Return the frames of a message. Raises ProtocolError if it is too long."""
    if len(message.data) > MAX_MESSAGE:
        raise ProtocolError(f"message of {len(message.data)} bytes, at most {MAX_MESSAGE}")
    header = _HEADER.pack(len(message.data), message.stream, message.kind, 0)
    whole = header + message.data
    parts = (whole[start : start + MAX_FRAME] for start in range(0, len(whole), MAX_FRAME))
    return b"".join(_FRAME.pack(message.connection, len(part)) + part for part in parts)


class Decoder:
    """Assembles messages from the bytes of a socket, which may be cut anywhere."""

    def __init__(self) -> None:
        self._trunk = bytearray()
        self._connections: dict[int, bytearray] = {}

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that these bytes complete. Raises ProtocolError."""
        self._trunk += data
        messages: list[Message] = []
        while len(self._trunk) >= _FRAME.size:
            connection, length = _FRAME.unpack_from(self._trunk)
            if length > MAX_MESSAGE + _HEADER.size:
                raise ProtocolError(f"frame of {length} bytes")
            end = _FRAME.size + length
            if len(self._trunk) < end:
                break
            buffer = self._connections.setdefault(connection, bytearray())
            buffer += self._trunk[_FRAME.size : end]
            del self._trunk[:end]
            messages += _messages(connection, buffer)
        return messages


def _messages(connection: int, buffer: bytearray) -> Iterator[Message]:
    while len(buffer) >= _HEADER.size:
        length, stream, kind, _ = _HEADER.unpack_from(buffer)
        if length > MAX_MESSAGE or kind not in (REQUEST, RESPONSE):
            raise ProtocolError(f"message of type {kind} and {length} bytes")
        end = _HEADER.size + length
        if len(buffer) < end:
            return
        yield Message(connection, stream, kind, bytes(buffer[_HEADER.size : end]))
        del buffer[:end]
