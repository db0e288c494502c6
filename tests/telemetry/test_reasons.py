"""Exceptions in plain words: no class, no number, the innermost cause."""

from __future__ import annotations

import socket
import ssl

import pytest

from shared.telemetry.reasons import plain


def chained(outer: Exception, inner: Exception) -> Exception:
    try:
        raise outer from inner
    except Exception as error:
        return error


def clear_text() -> ssl.SSLError:
    """Return a client's error if the server does not use TLS."""
    came, context = ssl.MemoryBIO(), ssl.create_default_context()
    came.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(ssl.SSLError) as met:
        context.wrap_bio(came, ssl.MemoryBIO(), server_hostname="x").do_handshake()
    return met.value


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(111, "Connect call failed ('127.0.0.1', 9)"), "connection refused"),
        (RuntimeError("[Errno 111] Connect call failed ('127.0.0.1', 9)"), "connection refused"),
        (chained(RuntimeError("read error"), OSError(113, "x")), "no route to that host"),
        (ExceptionGroup("unhandled errors", [OSError(98, "x")]), "the address is in use"),
        (FileNotFoundError(2, "No such file", "/a/b"), "no such file or folder: /a/b"),
        (socket.gaierror(-2, "Name or service not known"), "the host name is not known"),
        (TimeoutError(), "no answer in time"),
        (
            chained(
                TimeoutError(), ssl.SSLWantReadError(2, "The operation did not complete (read)")
            ),
            "no answer in time",
        ),
        (clear_text(), "TLS: wrong version number"),
        (ValueError("wrong\n  here"), "wrong here"),
        (ConnectionResetError(), "connection reset"),
    ],
)
def test_what_people_read(error: Exception, words: str) -> None:
    assert plain(error) == words
