"""TLS to a Kubernetes API server: authority and client certificate, read again when a file changes.

The files are checked when a connection is made, as client-go 1.36 does now and then
(transport/ca_rotation.go, cert_rotation.go). New certificates are added to the one context of all
connections, so an authority that was removed is trusted until the process ends. Files that cannot
be used (half of a rotation) leave the old ones in place.
"""

from __future__ import annotations

import ssl

from lightkube.config import client_adapter
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import User

from shared.file_signature import Signature, signature
from shared.telemetry import logs, names
from shared.telemetry.reasons import plain
from shared.tls import as_go_checks


class Certificates:
    """The certificates that a kubeconfig names. Raises the errors of lightkube if files cannot be
    used at the start."""

    def __init__(self, config: SingleConfig) -> None:
        user = config.user or User()
        authority = config.cluster.certificate_auth
        self._authority = str(config.abs_file(authority)) if authority else ""
        self._files = [
            str(config.abs_file(path))
            for path in (authority, user.client_cert, user.client_key)
            if path
        ]
        self._loaded = self._signatures()
        self._config, self._user = config, user
        self._context = as_go_checks(
            client_adapter.verify_cluster(config.cluster, user, config.abs_file)
        )
        self._out = logs.get("kubernetes")

    def context(self) -> ssl.SSLContext:
        """Return the context for the next connection."""
        signatures = self._signatures()
        if signatures != self._loaded:
            self._loaded = signatures
            try:
                self._load()
            except (OSError, ValueError) as error:
                self._out.warning(
                    names.KUBE_CERTIFICATE, problem=f"{' or '.join(self._files)}: {plain(error)}"
                )
        return self._context

    def _load(self) -> None:
        if self._authority:
            self._context.load_verify_locations(self._authority)
        if pair := client_adapter.user_cert(self._user, self._config.abs_file):
            # Load the pair into another context first: a certificate without its key would replace
            # the old certificate.
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(*pair)
            self._context.load_cert_chain(*pair)

    def _signatures(self) -> list[Signature]:
        return [signature(path) for path in self._files]
