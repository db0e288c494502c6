"""Check whether a child is ready now. A probe waits two seconds at most, and never raises for "not
yet".
"""

import asyncio
import contextlib
from pathlib import Path
from urllib.parse import urlsplit

from services.embedded.child import FileReady, HttpReady, PostmasterReady, Ready, TcpReady

_PROBE_TIMEOUT_S = 2.0
_POSTMASTER_PID_LINE = 0
_POSTMASTER_STATUS_LINE = 7


async def is_ready(probe: Ready, pid: int) -> bool:
    """Return whether the child with `pid` is ready."""
    match probe:
        case HttpReady(url=url):
            return await _http_ok(url)
        case TcpReady(host=host, port=port):
            return await _accepts(host, port)
        case FileReady(path=path):
            return path.exists()
        case PostmasterReady(pid_file=pid_file):
            return postmaster_status(pid_file) == (pid, "ready")


def postmaster_status(pid_file: Path) -> tuple[int, str] | None:
    """Return (pid, status word) of a postmaster.pid file, None if it is missing or unfinished
    (postmaster.c, miscadmin.h).
    """
    try:
        lines = pid_file.read_text(encoding="utf-8", errors="replace").splitlines()
        return int(lines[_POSTMASTER_PID_LINE]), lines[_POSTMASTER_STATUS_LINE].strip()
    except (OSError, ValueError, IndexError):
        return None


async def _accepts(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            _reader, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    await _close(writer)
    return True


async def _http_ok(url: str) -> bool:
    parts = urlsplit(url)
    host, port, path = parts.hostname or "127.0.0.1", parts.port or 80, parts.path or "/"
    query = f"?{parts.query}" if parts.query else ""
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                request = (
                    f"GET {path}{query} HTTP/1.1\r\n"
                    f"Host: {host}:{port}\r\nConnection: close\r\n\r\n"
                )
                writer.write(request.encode("ascii"))
                status_line = await reader.readline()
            finally:
                await _close(writer)
    except (OSError, TimeoutError, ValueError):
        return False
    return status_line.split(b" ")[1:2] == [b"200"]


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            await writer.wait_closed()
