"""Make text from others safe to print. Kubelets, webhooks and API objects choose part of every
message; a control character in it could move the cursor, hide a line or start a terminal command.
"""

from __future__ import annotations

import re

# C0 and C1 controls (ESC, CSI, newline, DEL), line and paragraph separators, characters that
# reorder text (bidirectional overrides and isolates), and surrogates, which no encoding accepts.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str) -> str:
    """Return the text on one line, with each unsafe character as an escape such as `\\x1b`."""
    return _UNSAFE.sub(_escaped, text)


def is_printable(text: str) -> bool:
    """Return whether the text holds nothing that `printable` would escape."""
    return _UNSAFE.search(text) is None


def _escaped(match: re.Match[str]) -> str:
    character = match.group()
    code = ord(character)
    return _NAMED.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
