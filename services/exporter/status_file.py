"""The fingerprint's status file, for debugging a mismatch: the pods that were counted, as
resource-topology-exporter writes it.

Replaced whole, so that a reader never sees half of it. Must not know how a fingerprint is made.
Source: podfingerprint 0.2.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec


def content(node: str, fingerprint: str, pods: Iterable[tuple[str, str]]) -> bytes:
    """The file's JSON; `pods` are (namespace, name). What is empty is left out."""
    listed = [{"Namespace": namespace, "Name": name} for namespace, name in sorted(pods)]
    document = {"fingerprintComputed": fingerprint, "pods": listed, "nodeName": node}
    return msgspec.json.encode({key: value for key, value in document.items() if value})


def write(path: Path, data: bytes) -> None:
    """Replace the file. Raises OSError."""
    temporary = path.with_name(f"__{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)
