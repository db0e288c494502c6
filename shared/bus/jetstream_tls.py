"""TLS to NATS: wanted by a URL (`tls://HOST`, or one of the files below), and then insisted on.

`?ca=FILE` names the authorities whose certificates count, `cert=FILE` and `key=FILE` the client's
own certificate. Files are read at every connection. Must not know what is said over it.
"""

from __future__ import annotations

import ssl
from urllib.parse import parse_qs, urlsplit

from nats.errors import Error as NatsError

from shared.telemetry.reasons import plain
from shared.tls import as_go_checks

AUTHORITIES, CERTIFICATE, KEY, SEED, TOKEN = "ca", "cert", "key", "seed", "token"
FILES = (AUTHORITIES, CERTIFICATE, KEY, SEED, TOKEN)
"""What a URL may name after `?`; `seed` is the client's key (`shared.bus.nkeys`), `token` what its kubelet says of it
(`shared.bus.pod_tokens`). Neither asks for TLS."""


def wanted(url: str) -> bool:
    """Whether some server of the URL is to be reached by TLS alone."""
    tls = any(one.strip().startswith("tls://") for one in url.split(","))
    return tls or any(named(url, what) for what in (AUTHORITIES, CERTIFICATE, KEY))


def named(url: str, what: str) -> str:
    """The file that the URL names first as `what`; empty for none."""
    found = [parse_qs(urlsplit(one.strip()).query).get(what, [""])[0] for one in url.split(",")]
    return next(filter(None, found), "")


def context(url: str) -> ssl.SSLContext:
    """Who is believed (without `ca=`: whom the system believes), and by what this client is. Raises
    NatsError with the file's name."""
    file = named(url, AUTHORITIES)
    try:
        made = as_go_checks(ssl.create_default_context(cafile=file or None))
    except OSError as error:
        told = f"{file}, which TOPOLOG_NATS_URL names by ca=, holds no certificates that can be read ({plain(error)})"
        raise NatsError(told) from None
    certificate, key = named(url, CERTIFICATE), named(url, KEY)
    if certificate or key:
        try:
            made.load_cert_chain(certificate, key or None)
        except (OSError, ValueError) as error:
            told = f"{certificate or 'no file'} (cert=) and {key or 'no file'} (key=) in TOPOLOG_NATS_URL are no certificate and key"
            raise NatsError(f"{told} ({plain(error)})") from None
    return made
