"""The configuration of a running kubelet from its `/configz` endpoint, over verified TLS.

Blocking calls, made in a thread. Must not know which parts of the configuration matter. Source:
kubelet 1.36 (`nodes/configz`).
"""

from __future__ import annotations

import http.client
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from services.exporter.kubelet_config import KubeletConfigError
from shared.tls import as_go_checks

MAX_BYTES = 1 << 20
TIMEOUT_S = 5.0


class Endpoint(msgspec.Struct, frozen=True):
    """The endpoint of a kubelet.

    `ca_file` is its certificate authority (empty: the system's), `token_file` holds a bearer token
    (empty: none). Both are read at every call, because they are rotated.
    """

    uri: str
    ca_file: str = ""
    token_file: str = ""


def fetch(endpoint: Endpoint) -> bytes:
    """Return the KubeletConfiguration as JSON. Raises KubeletConfigError."""
    try:
        status, body = _get(endpoint)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise KubeletConfigError(
            f"{endpoint.uri}: {error}; check --kubelet-config-uri, --kubelet-ca-file and the token"
        ) from error
    if status in (401, 403):
        raise KubeletConfigError(
            f"{endpoint.uri}: {status}; the token needs get on nodes/configz, "
            "see --kubelet-token-file"
        )
    if status != 200 or len(body) > MAX_BYTES:
        raise KubeletConfigError(
            f"{endpoint.uri}: answered {status} with {len(body)} bytes; "
            "check that this is a kubelet's /configz"
        )
    try:
        return bytes(msgspec.json.decode(body, type=_Answer).kubeletconfig)
    except msgspec.MsgspecError as error:
        raise KubeletConfigError(
            f"{endpoint.uri}: not a configz answer: {error}; "
            "check that this is a kubelet's /configz"
        ) from error


class _Answer(msgspec.Struct):
    kubeletconfig: msgspec.Raw


def _get(endpoint: Endpoint) -> tuple[int, bytes]:
    address = urlsplit(endpoint.uri)
    if address.scheme != "https" or not address.hostname:
        raise ValueError("expected https://ADDRESS:10250/configz")
    context = as_go_checks(ssl.create_default_context(cafile=endpoint.ca_file or None))
    connection = http.client.HTTPSConnection(
        address.hostname, address.port or 10250, timeout=TIMEOUT_S, context=context
    )
    headers = {}
    if endpoint.token_file:
        headers["Authorization"] = f"Bearer {Path(endpoint.token_file).read_text().strip()}"
    try:
        connection.request("GET", address.path or "/configz", headers=headers)
        response = connection.getresponse()
        return response.status, response.read(MAX_BYTES + 1)
    finally:
        connection.close()
