"""The extender's settings, TOPOLOG_EXTENDER_*: where it listens, and who may ask."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated

import msgspec


class ExtenderSettings(msgspec.Struct, frozen=True):
    """`port` 0 serves no extender. `certificate` and `key` are the server's, `client_ca` the
    authority whose clients may ask, all as PEM files; `clients` narrows it to common names. Without
    them only the loopback address is served. `schedulers` are the names (spec.schedulerName) of the
    kube-schedulers that ask: their pods are observed before they are bound. `bind_within_s` is how
    long a binding may take: less than the extender's httpTimeout in kube-scheduler's configuration.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0
    certificate: str = ""
    key: str = ""
    client_ca: str = ""
    clients: tuple[str, ...] = ()
    schedulers: tuple[str, ...] = ("default-scheduler",)
    bind_within_s: Annotated[float, msgspec.Meta(gt=0, le=300)] = 25.0

    def problems(self) -> list[str]:
        """What keeps it from being served, a line each."""
        if not self.port:
            return []
        files = {"CERTIFICATE": self.certificate, "KEY": self.key, "CLIENT_CA": self.client_ca}
        given = [name for name, path in files.items() if path]
        if given and len(given) < len(files):
            missing = ", ".join(f"TOPOLOG_EXTENDER_{name}" for name in files if name not in given)
            return [
                f"the extender's TLS needs a certificate, a key and the clients' authority: set {missing} too"
            ]
        absent = [
            f"TOPOLOG_EXTENDER_{name}: there is no file {path}"
            for name, path in files.items()
            if path and not _is_file(path)
        ]
        if not given and not _is_loopback(self.host):
            absent.append(
                f"TOPOLOG_EXTENDER_HOST: {self.host} would let anybody bind pods; set TOPOLOG_EXTENDER_CERTIFICATE, _KEY and "
                "_CLIENT_CA, or listen on 127.0.0.1"
            )
        if self.clients and not given:
            absent.append(
                "TOPOLOG_EXTENDER_CLIENTS: names are of certificates; set TOPOLOG_EXTENDER_CERTIFICATE, _KEY and _CLIENT_CA"
            )
        return absent


def _is_file(path: str) -> bool:
    return Path(path).is_file()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
