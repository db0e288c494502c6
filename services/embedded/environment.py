"""Choose the environment variables that a child gets: those of the system, and those that its
ChildSpec names. A secret reaches only the children that name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

# Any program needs these.
SYSTEM = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TZDIR",
    "TMPDIR", "TMP", "TEMP", "XDG_*", "LD_*", "DYLD_*", "GLIBC_TUNABLES", "MALLOC_*",
)  # fmt: skip

# Python and the libraries of Topolog's programs read these. The variables of OpenTelemetry that
# may contain credentials are left out.
PYTHON = (
    "PYTHON*", "VIRTUAL_ENV", "COVERAGE_*", "COV_*", "OPENBLAS_*", "OMP_*", "GRPC_*",
    "OTEL_RESOURCE_ATTRIBUTES", "OTEL_SERVICE_NAME", "OTEL_SDK_DISABLED",
    "OTEL_SPAN_*", "OTEL_ATTRIBUTE_*", "OTEL_BSP_*",
)  # fmt: skip

# Needed to reach a Kubernetes API. The address of a proxy may contain a password.
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
NETWORK = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "OPENSSL_CONF", "KUBECONFIG", "KUBERNETES_SERVICE_*"),
    *_PROXIES,
    *map(str.lower, _PROXIES),
)

# libpq clients complete a database URL from these; PGPASSWORD is one of them.
POSTGRES = ("PG*",)

# All variables except Topolog's: for other programs, because their needs are unknown.
FOREIGN = "*"


def inherited(environment: Mapping[str, str], passes: Iterable[str]) -> dict[str, str]:
    """Return the variables that a child gets, by names in which `*` matches any ending."""
    patterns = (*SYSTEM, *passes)
    return {
        name: value
        for name, value in environment.items()
        if any(_matches(name, pattern) for pattern in patterns)
    }


def _matches(name: str, pattern: str) -> bool:
    return not name.startswith("TOPOLOG_") if pattern == FOREIGN else fnmatchcase(name, pattern)
