"""The metrics port as resource-topology-exporter's options describe it: a mode, a folder of
certificates, Go's names of ciphers.

Its words in, TLS of the HTTP port out. Must not serve anything. Source: resource-topology-exporter
0.25, pkg/metrics/server.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from shared.runtime.settings import HttpTls

Mode = Literal["disabled", "http", "httptls"]
CERTS_DIR = "/etc/secrets/rte"
VERSIONS = {"": "1.2", "VersionTLS12": "1.2", "VersionTLS13": "1.3"}
"""Older ones are refused here."""
SHORT = ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305")
"""Go's older names, which lack the hash."""


class MetricsTls(msgspec.Struct, frozen=True):
    """Certificate and key in a folder, by file name; with `want_cli_auth` clients must show a
    certificate of its `ca.crt`.
    """

    certs_dir: str
    cert_file: str
    key_file: str
    want_cli_auth: bool


def version(name: str) -> str:
    """The least version by Go's name (`VersionTLS12`). Raises ValueError."""
    if name not in VERSIONS:
        raise ValueError(
            f"{name!r} is no version that is spoken here; write VersionTLS12 or VersionTLS13"
        )
    return VERSIONS[name]


def ciphers(names: str) -> list[str]:
    """The suites in a list with commas, by IANA's names."""
    listed = [name.strip() for name in names.split(",")]
    return [f"{name}_SHA256" if name in SHORT else name for name in listed if name]


def tls(mode: Mode, files: MetricsTls, given: HttpTls) -> HttpTls:
    """The port's TLS: by the folder where the mode asks for it, and by what was `given` as for
    every service, which goes over it. In clear text versions and ciphers say nothing, as in
    resource-topology-exporter."""
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
