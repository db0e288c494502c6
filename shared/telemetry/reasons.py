"""Describe an exception for people: `connection refused`, not a class and a number.

Drivers wrap the system's error (`[Errno 111] Connect call failed ('127.0.0.1', 9)`) once or twice.
The description is the system's phrase for the innermost cause.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl

_SYSTEM_PHRASES = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "the connection was reset",
    errno.EPIPE: "the connection was closed",
    errno.ETIMEDOUT: "no answer in time",
    errno.EHOSTUNREACH: "no route to that host",
    errno.ENETUNREACH: "no route to that network",
    errno.EADDRINUSE: "the address is in use",
    errno.EACCES: "permission denied",
    errno.EPERM: "not permitted",
    errno.ENOENT: "no such file or folder",
    errno.ENOTDIR: "a part of the path is no folder",
    errno.EISDIR: "it is a folder",
    errno.ENOSPC: "no space is left on the disk",
    errno.EROFS: "the file system is read-only",
    errno.EMFILE: "too many open files",
}
_NUMBERED = re.compile(r"\[Errno (-?\d+)\]\s*")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_DEPTH = 8


def plain(error: BaseException) -> str:
    """Return one phrase without class names, error numbers and line breaks."""
    for cause in _causes(error):
        if phrase := _phrase(cause):
            return phrase
    text = " ".join(str(error).split())
    numbered = _NUMBERED.search(text)
    if numbered and int(numbered[1]) in _SYSTEM_PHRASES:
        return _SYSTEM_PHRASES[int(numbered[1])]
    return (
        _NUMBERED.sub("", text)
        or _CAMEL.sub(" ", type(error).__name__.removesuffix("Error")).lower()
    )


def _causes(error: BaseException) -> list[BaseException]:
    """Return the error and its causes, innermost first; of a group the first member."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and len(chain) < _DEPTH:
        chain.append(cause)
        inner = cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else cause.__cause__
        cause = inner or (None if cause.__suppress_context__ else cause.__context__)
    return chain[::-1]


def _phrase(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not trusted ({error.verify_message or error.reason})"
    if isinstance(error, ssl.SSLError):
        # Its number is OpenSSL's: 2 means more to read, not a missing file.
        reason = getattr(error, "reason", None)
        return f"TLS: {reason.replace('_', ' ').lower()}" if reason else ""
    if isinstance(error, socket.gaierror):
        return "the host name is not known"
    if isinstance(error, TimeoutError) and error.errno is None:
        return "no answer in time"
    if isinstance(error, OSError) and error.errno is not None:
        phrase = _SYSTEM_PHRASES.get(error.errno) or (error.strerror or "").lower()
        return f"{phrase}: {error.filename}" if phrase and error.filename else phrase
    return ""
