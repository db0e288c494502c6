"""The metrics port by RTE's options: a mode, a folder of certificates, Go's names of ciphers.

Returns the TLS settings of the HTTP port. Must not serve anything. Source:
resource-topology-exporter 0.25, pkg/metrics/server.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from shared.runtime.settings import HttpTls

Mode = Literal["disabled", "http", "httptls"]
CERTS_DIR = "/etc/secrets/rte"
# Older versions are rejected.
VERSIONS = {"": "1.2", "VersionTLS12": "1.2", "VersionTLS13": "1.3"}
# Go's older names, which lack the hash.
SHORT = ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305")


class MetricsTls(msgspec.Struct, frozen=True):
    """Certificate and key in a folder, by file name.

    With `want_cli_auth` clients need a certificate of the folder's `ca.crt`.
    """

    certs_dir: str
    cert_file: str
    key_file: str
    want_cli_auth: bool


def version(name: str) -> str:
    """Return the minimum version by Go's name (`VersionTLS12`). Raises ValueError."""
    if name not in VERSIONS:
        raise ValueError(f"{name!r} is not a supported version; write VersionTLS12 or VersionTLS13")
    return VERSIONS[name]


def ciphers(names: str) -> list[str]:
    """Return the suites of a comma-separated list, by IANA's names."""
    listed = [name.strip() for name in names.split(",")]
    return [f"{name}_SHA256" if name in SHORT else name for name in listed if name]


def tls(mode: Mode, files: MetricsTls, given: HttpTls) -> HttpTls:
    """Return the port's TLS settings: the folder's if the mode needs TLS, `given` over them.

    In clear text, versions and ciphers have no effect, as in RTE.
    """
    if mode != "httptls":
        return given if given.certificate else HttpTls(client_ca=given.client_ca)
    folder = Path(files.certs_dir)
    authority = given.client_ca or (str(folder / "ca.crt") if files.want_cli_auth else "")
    return msgspec.structs.replace(
        given,
        certificate=given.certificate or str(folder / files.cert_file),
        key=given.key or str(folder / files.key_file),
        client_ca=authority,
    )
