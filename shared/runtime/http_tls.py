"""TLS of a port: the certificate, who signs for clients, which versions and ciphers; read again
when a file changes.

Files are looked at when a client comes and not by a timer: a port that nobody asks costs nothing.
New files that cannot be used (half of a rotation) leave the old ones in place. Must not know what
is served. Source: RFC 8446, 5246, 7525.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

from shared.file_signature import Signature, signature
from shared.runtime.settings import HttpTls
from shared.telemetry.reasons import plain

CIPHERS = {
    f"TLS_ECDHE_{signed}_WITH_{name}": f"ECDHE-{signed}-{openssl}"
    for signed in ("ECDSA", "RSA")
    for name, openssl in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    )
}
"""Cipher suites of TLS 1.2 that may be chosen from, by IANA's names and OpenSSL's: with forward secrecy and authentication."""
ALWAYS = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
"""Those of TLS 1.3 are all good, and always offered; where no others are named, TLS 1.2 is not spoken."""


class HttpTlsError(Exception):
    """The port cannot be served as it was asked for; names setting or file, and a remedy."""


class Certificates:
    """What a port shows and trusts, as the files say now. `tell` hears why new files cannot be
    used. `clients_must` show a certificate of the authority, or may. Raises HttpTlsError where the
    files cannot be used at the start."""

    def __init__(
        self, wanted: HttpTls, tell: Callable[[str], None], clients_must: bool = False
    ) -> None:
        self._wanted, self._tell, self._clients_must = wanted, tell, clients_must
        self._seen = _signatures(wanted)
        _check(wanted)
        self._newest = self.context = _context_of(wanted, clients_must)
        self.context.sni_callback = self._begin

    def _begin(
        self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        """A handshake begins (OpenSSL tells so whether or not the client names a server): let it
        have the newest files.
        """
        found = _signatures(self._wanted)
        if found != self._seen:
            self._seen = found
            try:
                self._newest = _context_of(self._wanted, self._clients_must)
            except HttpTlsError as error:
                self._tell(str(error))
        connection.context = self._newest


def _check(wanted: HttpTls) -> None:
    if not wanted.certificate or not wanted.key:
        raise HttpTlsError(
            "TOPOLOG_HTTP_TLS_CERTIFICATE and TOPOLOG_HTTP_TLS_KEY: one is not set; name both files, or neither"
        )
    unknown = [name for name in wanted.ciphers if name not in (*CIPHERS, *ALWAYS)]
    if unknown:
        raise HttpTlsError(
            f"TOPOLOG_HTTP_TLS_CIPHERS: {unknown[0][:60]!r} is not offered; choose from {', '.join(CIPHERS)}"
        )


def _context_of(wanted: HttpTls, clients_must: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    chosen = [CIPHERS[name] for name in wanted.ciphers or CIPHERS if name in CIPHERS]
    newest = wanted.min_version == "1.3" or not chosen
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if newest else ssl.TLSVersion.TLSv1_2
    context.set_ciphers(":".join(chosen or CIPHERS.values()))
    # A session that is taken up again shows no certificate: it would outlive the authority that was
    # taken away.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    try:
        # Without a password given, OpenSSL would ask for one on the terminal.
        context.load_cert_chain(wanted.certificate, wanted.key, password="")
    except (OSError, ValueError) as error:
        raise HttpTlsError(
            f"{wanted.certificate} and {wanted.key}: {plain(error)}; give a certificate and its key, in PEM, without a password"
        ) from error
    if wanted.client_ca:
        _trust(context, wanted.client_ca, clients_must)
    return context


def _trust(context: ssl.SSLContext, authority: str, clients_must: bool) -> None:
    """Probes of the HTTP port have no certificate, so that a handshake without one goes on;
    `http_access` refuses all but health then."""
    try:
        context.load_verify_locations(authority)
    except (OSError, ValueError) as error:
        raise HttpTlsError(
            f"{authority}: {plain(error)}; give the authority of the clients' certificates, in PEM"
        ) from error
    context.verify_mode = ssl.CERT_REQUIRED if clients_must else ssl.CERT_OPTIONAL


def _signatures(wanted: HttpTls) -> list[Signature]:
    return [signature(path) for path in (wanted.certificate, wanted.key, wanted.client_ca)]
