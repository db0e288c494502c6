"""An exception in the words of people: `connection refused`, not a class and a number. Pure.

Drivers wrap what the system said (`[Errno 111] Connect call failed ('127.0.0.1', 9)`) once or
twice; what is told is the system's own word for the innermost cause.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl

_SYSTEM_WORDS = {
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
    """One phrase without class names, error numbers and line breaks."""
    for cause in _causes(error):
        if told := _told(cause):
            return told
    text = " ".join(str(error).split())
    numbered = _NUMBERED.search(text)
    if numbered and int(numbered[1]) in _SYSTEM_WORDS:
        return _SYSTEM_WORDS[int(numbered[1])]
    return (
        _NUMBERED.sub("", text)
        or _CAMEL.sub(" ", type(error).__name__.removesuffix("Error")).lower()
    )


def _causes(error: BaseException) -> list[BaseException]:
    """The error and what it came from, innermost first; of a group the first member."""
    chain: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and len(chain) < _DEPTH:
        chain.append(at)
        inner = at.exceptions[0] if isinstance(at, BaseExceptionGroup) else at.__cause__
        at = inner or (None if at.__suppress_context__ else at.__context__)
    return chain[::-1]


def _told(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not trusted ({error.verify_message or error.reason})"
    if isinstance(error, ssl.SSLError):
        # Its number is OpenSSL's: 2 is no missing file, but more to read.
        reason = getattr(error, "reason", None)
        return f"TLS: {reason.replace('_', ' ').lower()}" if reason else ""
    if isinstance(error, socket.gaierror):
        return "the host name is not known"
    if isinstance(error, TimeoutError) and error.errno is None:
        return "no answer in time"
    if isinstance(error, OSError) and error.errno is not None:
        words = _SYSTEM_WORDS.get(error.errno) or (error.strerror or "").lower()
        return f"{words}: {error.filename}" if words and error.filename else words
    return ""
