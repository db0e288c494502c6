"""Which variables of its own environment a process hands to a child: those that are named, as every
child gets what the system needs. A secret that nobody names for a child does not reach it. Must not
know which child needs what: its ChildSpec says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

SYSTEM = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TZDIR", "TMPDIR", "TMP", "TEMP", "XDG_*",
    "LD_*", "DYLD_*", "GLIBC_TUNABLES", "MALLOC_*",
)  # fmt: skip
"""What any program needs."""

PYTHON = (
    "PYTHON*", "VIRTUAL_ENV", "COVERAGE_*", "COV_*", "OPENBLAS_*", "OMP_*", "GRPC_*",
    "OTEL_RESOURCE_ATTRIBUTES", "OTEL_SERVICE_NAME", "OTEL_SDK_DISABLED", "OTEL_SPAN_*", "OTEL_ATTRIBUTE_*", "OTEL_BSP_*",
)  # fmt: skip
"""What Python and the libraries of Topolog's own programs look for; of OpenTelemetry nothing that may hold credentials."""

NETWORK = (
    "SSL_CERT_FILE", "SSL_CERT_DIR", "OPENSSL_CONF", "KUBECONFIG", "KUBERNETES_SERVICE_*",
    *(name for proxy in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY") for name in (proxy, proxy.lower())),
)  # fmt: skip
"""How a Kubernetes API is reached: a proxy's address may hold a password."""

POSTGRES = ("PG*",)
"""What libpq's clients fill a database URL up with; among it PGPASSWORD."""

FOREIGN = "*"
"""Everything but what is Topolog's own: for programs of others, of which nobody knows what they need."""


def inherited(environment: Mapping[str, str], passes: Iterable[str]) -> dict[str, str]:
    """What of it a child gets: by names, with `*` for any ending."""
    patterns = (*SYSTEM, *passes)
    return {
        name: value
        for name, value in environment.items()
        if any(_matches(name, pattern) for pattern in patterns)
    }


def _matches(name: str, pattern: str) -> bool:
    return not name.startswith("TOPOLOG_") if pattern == FOREIGN else fnmatchcase(name, pattern)
