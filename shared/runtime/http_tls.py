"""TLS of a port: certificate, client authority, versions and ciphers; reloaded when a file changes.

Files are checked at each handshake, not by a timer, so that an idle port costs nothing. If new
files are unusable (half of a rotation), the old ones stay in use. Source: RFC 8446, 5246, 7525.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

from shared.file_signature import Signature, signature
from shared.runtime.settings import HttpTls
from shared.telemetry.reasons import plain

# Allowed cipher suites of TLS 1.2 by IANA's names -> OpenSSL's: with forward secrecy and
# authentication.
CIPHERS = {
    f"TLS_ECDHE_{signed}_WITH_{name}": f"ECDHE-{signed}-{openssl}"
    for signed in ("ECDSA", "RSA")
    for name, openssl in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    )
}
# The suites of TLS 1.3 are always offered. If only these are named, TLS 1.2 is disabled.
ALWAYS = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")


class HttpTlsError(Exception):
    """The TLS settings are unusable; the message names setting or file, and a remedy."""


class Certificates:
    """The port's TLS context, as the files are now. `report_problem` receives problems with new
    files. `clients_must` present a certificate of the authority, or may. Raises HttpTlsError if the
    files are unusable at the start."""

    def __init__(
        self, settings: HttpTls, report_problem: Callable[[str], None], clients_must: bool = False
    ) -> None:
        self._settings, self._report_problem, self._clients_must = (
            settings,
            report_problem,
            clients_must,
        )
        self._seen = _signatures(settings)
        _check(settings)
        self._newest = self.context = _context_of(settings, clients_must)
        self.context.sni_callback = self._begin

    def _begin(
        self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        """Use the newest files for a handshake; OpenSSL calls this even without a server name."""
        signatures = _signatures(self._settings)
        if signatures != self._seen:
            self._seen = signatures
            try:
                self._newest = _context_of(self._settings, self._clients_must)
            except HttpTlsError as error:
                self._report_problem(str(error))
        connection.context = self._newest


def _check(settings: HttpTls) -> None:
    if not settings.certificate or not settings.key:
        raise HttpTlsError(
            "TOPOLOG_HTTP_TLS_CERTIFICATE and TOPOLOG_HTTP_TLS_KEY: one is not set; "
            "set both, or neither"
        )
    unknown = [name for name in settings.ciphers if name not in (*CIPHERS, *ALWAYS)]
    if unknown:
        raise HttpTlsError(
            f"TOPOLOG_HTTP_TLS_CIPHERS: {unknown[0][:60]!r} is not supported; "
            f"choose from {', '.join(CIPHERS)}"
        )


def _context_of(settings: HttpTls, clients_must: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    chosen = [CIPHERS[name] for name in settings.ciphers or CIPHERS if name in CIPHERS]
    newest = settings.min_version == "1.3" or not chosen
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if newest else ssl.TLSVersion.TLSv1_2
    context.set_ciphers(":".join(chosen or CIPHERS.values()))
    # A resumed session presents no certificate, so it would outlive a removed authority.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    try:
        # Without this password, OpenSSL would ask for one on the terminal.
        context.load_cert_chain(settings.certificate, settings.key, password="")
    except (OSError, ValueError) as error:
        raise HttpTlsError(
            f"{settings.certificate} and {settings.key}: {plain(error)}; "
            "give a certificate and its key, in PEM, without a password"
        ) from error
    if settings.client_ca:
        _trust(context, settings.client_ca, clients_must)
    return context


def _trust(context: ssl.SSLContext, authority: str, clients_must: bool) -> None:
    # Probes of the HTTP port have no certificate, so a handshake without one succeeds, and
    # `http_access` then allows only health.
    try:
        context.load_verify_locations(authority)
    except (OSError, ValueError) as error:
        raise HttpTlsError(
            f"{authority}: {plain(error)}; give the authority of the clients' certificates, in PEM"
        ) from error
    context.verify_mode = ssl.CERT_REQUIRED if clients_must else ssl.CERT_OPTIONAL


def _signatures(settings: HttpTls) -> list[Signature]:
    return [signature(path) for path in (settings.certificate, settings.key, settings.client_ca)]
