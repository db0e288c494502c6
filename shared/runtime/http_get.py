"""A GET to a service's HTTP port, with its token. Uses only the standard library, so that commands
start fast.
"""

from __future__ import annotations

from urllib.request import Request, urlopen


def get(url: str, token: str, timeout_s: float) -> bytes:
    """Return the body of the answer; `token` "" for none. A redirect does not receive the token.
    Raises OSError, also for an error status (then with the status as `code`), and ValueError for an
    invalid URL."""
    request = Request(url)
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    with urlopen(request, timeout=timeout_s) as answer:
        return bytes(answer.read())
