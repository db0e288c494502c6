"""The connection to one Kubernetes API server: address, TLS and credentials from a kubeconfig.

lightkube reads the kubeconfig. Requests use a lean transport; watches and proxies use the general
HTTP client. Knows no resource.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2
import msgspec
import yaml
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import Cluster, Context, User
from lightkube.core.exceptions import ConfigError

from shared.kube.certificates import Certificates
from shared.kube.credentials import Auth, CredentialsError, credentials
from shared.kube.port import KubeUnavailableError
from shared.kube.transport import LeanTransport, Reply, Request
from shared.telemetry.reasons import plain

CALL_TIMEOUT_S = 10.0

# lightkube raises these for a file that is absent, not YAML, or YAML of another shape.
_UNUSABLE = (
    ConfigError,
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    yaml.YAMLError,
)


class Connection:
    """One API server: `call` for requests, `streams` for watches."""

    def __init__(self, kubeconfig: str, max_connections: int) -> None:
        config = configuration(kubeconfig)
        self.server = config.cluster.server.rstrip("/")
        self._certificates, self._auth = _trusted(config, kubeconfig)
        timeout = httpx2.Timeout(CALL_TIMEOUT_S)
        self._streams = httpx2.AsyncClient(
            base_url=self.server, auth=self._auth, timeout=timeout, verify=self._tls() or True
        )
        self._lean = (
            None
            if _behind_proxy(config)
            else LeanTransport(self.server, max_connections, self._tls)
        )

    @property
    def streams(self) -> httpx2.AsyncClient:
        """The client for streams; its next connection uses the current certificate files."""
        self._tls()
        return self._streams

    def _tls(self) -> ssl.SSLContext | None:
        return self._certificates.context() if self._certificates is not None else None

    async def call(self, request: Request) -> Reply:
        """Sign and send one request. Raises httpx2.HTTPError."""
        if self._lean is None:
            return await self._through_proxy(request)
        if self._auth is None:
            return await self._lean.send(request)
        header = await self._auth.authorization()
        reply = await self._lean.send(_signed(request, header))
        if reply.status == 401 and self._auth.renews:
            return await self._lean.send(_signed(request, await self._auth.authorization(header)))
        return reply

    async def _through_proxy(self, request: Request) -> Reply:
        try:
            # httpx's own timeout starts again with each byte.
            async with asyncio.timeout(request.timeout_s):
                answer = await self.streams.request(
                    request.method,
                    request.path,
                    params=request.params,
                    content=request.content,
                    headers=request.headers,
                    timeout=request.timeout_s,
                )
        except TimeoutError as error:
            raise httpx2.ReadTimeout(f"no answer within {request.timeout_s:g} s") from error
        return Reply(answer.status_code, answer.headers, answer.content)

    async def close(self) -> None:
        if self._lean is not None:
            await self._lean.aclose()
        await self._streams.aclose()


def _signed(request: Request, authorization: str) -> Request:
    if not authorization:
        return request
    return msgspec.structs.replace(
        request, headers={**request.headers, "Authorization": authorization}
    )


def split_kubeconfigs(kubeconfigs: str) -> list[str]:
    """Split a comma-separated list: several API servers of the same cluster."""
    return [name.strip() for name in kubeconfigs.split(",") if name.strip()] or [""]


def address_of(kubeconfigs: str) -> str:
    """Return the address of the first server. Raises KubeUnavailableError."""
    return configuration(split_kubeconfigs(kubeconfigs)[0]).cluster.server


def runs_plugin(kubeconfigs: str) -> bool:
    """Return whether a kubeconfig runs a credential plugin. Raises KubeUnavailableError."""
    users = [configuration(name).user for name in split_kubeconfigs(kubeconfigs)]
    return any(user is not None and user.exec is not None for user in users)


def configuration(kubeconfig: str) -> SingleConfig:
    """Read a kubeconfig: a file, a bare `http://` URL (no credentials, as `kubectl --server`), or
    empty for the pod's service account.

    Raises KubeUnavailableError that names the file and the problem.
    """
    if kubeconfig.startswith(("http://", "https://")):
        context = Context(cluster="server", user="anonymous")
        cluster = Cluster(server=_checked_address(kubeconfig, "the Kubernetes address"))
        return SingleConfig(context_name="server", context=context, cluster=cluster, user=User())
    try:
        config = (
            KubeConfig.from_file(Path(kubeconfig))
            if kubeconfig
            else KubeConfig.from_service_account()
        ).get()
    except _UNUSABLE as error:
        raise KubeUnavailableError(
            f"{_source(kubeconfig)} cannot be used: {_unusable(kubeconfig, error)}; "
            "name a kubeconfig file or the http:// URL of a server"
        ) from error
    if config is None:
        raise KubeUnavailableError(
            f"kubeconfig {kubeconfig!r} has no usable context; set current-context in it"
        )
    _checked_address(
        config.cluster.server,
        f"the server of kubeconfig {kubeconfig!r}" if kubeconfig else "the API server",
    )
    return config


def _source(kubeconfig: str) -> str:
    return f"kubeconfig {kubeconfig!r}" if kubeconfig else "this pod's service account"


def _checked_address(url: str, what: str) -> str:
    """Return the URL without its last slash. Raises KubeUnavailableError: `http://:18001` names no
    host."""
    try:
        parts = urlsplit(url)
        is_valid = bool(parts.hostname) and parts.port != 0 and parts.scheme in ("http", "https")
    except ValueError:
        is_valid = False
    if not is_valid:
        raise KubeUnavailableError(
            f"{what} is {url!r}, which names no host and port; write http://HOST:PORT"
        )
    return url.rstrip("/")


def _unusable(kubeconfig: str, error: BaseException) -> str:
    if kubeconfig and not Path(kubeconfig).exists():
        return "there is no such file"
    if kubeconfig and Path(kubeconfig).is_dir():
        return "it is a folder"
    return plain(error)


def _trusted(config: SingleConfig, kubeconfig: str) -> tuple[Certificates | None, Auth | None]:
    """Return certificates (None without TLS) and credentials. Raises KubeUnavailableError that
    names the file that cannot be used."""
    try:
        is_https = config.cluster.server.startswith("https://")
        certificates = Certificates(config) if is_https else None
        context = certificates.context() if certificates is not None else None
        folder = config.fname.parent if config.fname else None
        return certificates, credentials(config.user, context, folder)
    except (*_UNUSABLE, ssl.SSLError) as error:
        raise KubeUnavailableError(
            f"certificates of {_source(kubeconfig)} cannot be used: {plain(error)}; "
            "correct the file"
        ) from error
    except CredentialsError as error:
        raise KubeUnavailableError(f"kubeconfig {kubeconfig!r}: {error}") from error


def _behind_proxy(config: SingleConfig) -> bool:
    """Return whether the environment names a proxy for this server, which only the general client
    can use."""
    parts = urlsplit(config.cluster.server)
    return parts.scheme in getproxies() and not proxy_bypass(parts.hostname or "")
