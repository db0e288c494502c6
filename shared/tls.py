"""Check the certificates of foreign servers as Go does, and with it every client of Kubernetes and
NATS.

Python 3.13 requires more by default (VERIFY_X509_STRICT): key identifiers and a key usage in each
certificate. The authorities of many clusters lack them (EKS, MicroK8s:
kubernetes-client/python#2394, canonical/microk8s#5537). Names, dates and signatures are checked as
before.
"""

from __future__ import annotations

import ssl


def as_go_checks(context: ssl.SSLContext) -> ssl.SSLContext:
    """Return the same context without the strict check of extensions."""
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
