"""The extender's settings: the address where it listens, and the clients that may ask."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated

import msgspec


class ExtenderSettings(msgspec.Struct, frozen=True):
    """TOPOLOG_EXTENDER_*.

    - `port`: 0 serves no extender.
    - `certificate`, `key`, `client_ca`: PEM files of the server and of the authority whose clients
      may ask. `clients` restricts them to common names. Without them `host` must be loopback.
    - `schedulers`: the kube-schedulers that ask (spec.schedulerName); their pods are observed
      before they are bound.
    - `bind_within_s`: the time limit of a binding, less than the extender's httpTimeout in
      kube-scheduler's configuration.
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
        """Return why it cannot be served, one line each."""
        if not self.port:
            return []
        files = {"CERTIFICATE": self.certificate, "KEY": self.key, "CLIENT_CA": self.client_ca}
        has_tls = any(files.values())
        if has_tls and not all(files.values()):
            missing = ", ".join(f"TOPOLOG_EXTENDER_{name}" for name in files if not files[name])
            return [
                "the extender's TLS needs a certificate, a key and the clients' authority: "
                f"set {missing} too"
            ]
        problems = [
            f"TOPOLOG_EXTENDER_{name}: {path} is not a file"
            for name, path in files.items()
            if path and not _is_file(path)
        ]
        if not has_tls and not _is_loopback(self.host):
            problems.append(
                f"TOPOLOG_EXTENDER_HOST: {self.host} would let anybody bind pods; "
                "set TOPOLOG_EXTENDER_CERTIFICATE, _KEY and _CLIENT_CA, or listen on 127.0.0.1"
            )
        if self.clients and not has_tls:
            problems.append(
                "TOPOLOG_EXTENDER_CLIENTS: names are those of certificates; "
                "set TOPOLOG_EXTENDER_CERTIFICATE, _KEY and _CLIENT_CA"
            )
        return problems


def _is_file(path: str) -> bool:
    return Path(path).is_file()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
