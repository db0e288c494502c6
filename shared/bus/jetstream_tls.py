"""TLS to NATS: enabled by the URL (`tls://HOST`, or one of the files below), and then required.

`?ca=FILE` names the trusted authorities, `cert=FILE` and `key=FILE` the client's certificate. Files
are read at every connection.
"""

from __future__ import annotations

import ssl
from urllib.parse import parse_qs, urlsplit

from nats.errors import Error as NatsError

from shared.telemetry.reasons import plain
from shared.tls import as_go_checks

AUTHORITIES, CERTIFICATE, KEY, SEED, TOKEN = "ca", "cert", "key", "seed", "token"
# Names allowed after `?`. `seed` is the client's key (`shared.bus.nkeys`), `token` a projected
# service account token (`shared.bus.pod_tokens`). Neither requires TLS.
FILES = (AUTHORITIES, CERTIFICATE, KEY, SEED, TOKEN)


def wanted(url: str) -> bool:
    """Return whether the URL requires TLS."""
    tls = any(server.strip().startswith("tls://") for server in url.split(","))
    return tls or any(named(url, what) for what in (AUTHORITIES, CERTIFICATE, KEY))


def named(url: str, what: str) -> str:
    """Return the file that the URL names as `what`, "" for none."""
    files = [
        parse_qs(urlsplit(server.strip()).query).get(what, [""])[0] for server in url.split(",")
    ]
    return next(filter(None, files), "")


def context(url: str) -> ssl.SSLContext:
    """Return the TLS context: trusted authorities (without `ca=` those of the system) and the
    client's certificate. Raises NatsError with the file's name."""
    file = named(url, AUTHORITIES)
    try:
        tls = as_go_checks(ssl.create_default_context(cafile=file or None))
    except OSError as error:
        problem = (
            f"{file}, which TOPOLOG_NATS_URL names by ca=, holds no readable certificates "
            f"({plain(error)})"
        )
        raise NatsError(problem) from None
    certificate, key = named(url, CERTIFICATE), named(url, KEY)
    if certificate or key:
        try:
            tls.load_cert_chain(certificate, key or None)
        except (OSError, ValueError) as error:
            problem = (
                f"{certificate or 'no file'} (cert=) and {key or 'no file'} (key=) in "
                "TOPOLOG_NATS_URL are not a certificate and its key"
            )
            raise NatsError(f"{problem} ({plain(error)})") from None
    return tls
