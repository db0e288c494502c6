"""Asking a service over HTTP, with the token that it may want. By the standard library alone:
commands that ask start fast.

Must not know what is asked for.
"""

from __future__ import annotations

from urllib.request import Request, urlopen


def get(url: str, token: str, timeout_s: float) -> bytes:
    """The body of the answer; `token` "" for none. A redirection elsewhere is not given it. Raises
    OSError, also for an answer that is no success (then with its status as `code`), and ValueError
    for what is no URL."""
    request = Request(url)
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    with urlopen(request, timeout=timeout_s) as answer:
        return bytes(answer.read())
