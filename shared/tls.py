"""How certificates of servers that others run are checked: as Go does, and with it every client of
Kubernetes and NATS.

Python 3.13 asks for more by default (VERIFY_X509_STRICT): key identifiers and a key usage in each
certificate, which authorities of many clusters lack (EKS, MicroK8s: kubernetes-client/python#2394,
canonical/microk8s#5537). Names, dates and signatures are checked as before. Must not know whom a
context is for.
"""

from __future__ import annotations

import ssl


def as_go_checks(context: ssl.SSLContext) -> ssl.SSLContext:
    """The same context, which asks for no extension that the certificates' makers left out."""
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
