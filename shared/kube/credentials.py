"""The credentials of Topolog for the API server: tokens, token files, credential plugins,
passwords.

Client certificates belong to TLS (`certificates`). Credentials that cannot be used raise
`CredentialsError`, a failed request to all callers: they try again later, and a file or plugin that
works by then is used. A token file is read again every minute and after a 401. A plugin runs again
when its credential expires and after a 401 (client-go 1.36, plugin/pkg/client/auth/exec). Errors
and log lines never contain secrets.
"""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import httpx2
import msgspec
from lightkube.config.models import User, UserExec

from shared.telemetry.reasons import plain

TOKEN_FILE_AGE_S = 60.0
PLUGIN_TIMEOUT_S = 30.0
# A plugin's credential is renewed so long before it expires.
EARLY_S = 60.0
PLUGIN_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class CredentialsError(httpx2.RequestError):
    """Credentials are not available now; names the file or command and the remedy."""


class _Status(msgspec.Struct):
    token: str = ""
    certificate: str = msgspec.field(default="", name="clientCertificateData")
    key: str = msgspec.field(default="", name="clientKeyData")
    expires: str = msgspec.field(default="", name="expirationTimestamp")


class _Credential(msgspec.Struct):
    status: _Status
    version: str = msgspec.field(default="", name="apiVersion")


class Auth(httpx2.Auth):
    """Signs requests of any client. `renews`: after a 401 another try may succeed."""

    renews = False

    async def authorization(self, refused: str = "") -> str:
        """Return the header's value, empty for none. `refused` is a value that the server refused:
        a new one is returned if possible. Raises CredentialsError."""
        raise NotImplementedError

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        header = await self.authorization()
        _sign(request, header)
        response = yield request
        if response.status_code == 401 and self.renews:
            _sign(request, await self.authorization(header))
            yield request


def _sign(request: httpx2.Request, authorization: str) -> None:
    if authorization:
        request.headers["Authorization"] = authorization


def credentials(
    user: User | None, tls: ssl.SSLContext | None, folder: Path | None = None
) -> Auth | None:
    """Return what signs this user's requests, None if nothing (or only TLS) does. A command with a
    slash is relative to `folder`, that of the kubeconfig. Raises CredentialsError if the
    credentials can never work."""
    if user is None:
        return None
    if user.token_file is not None:
        return TokenFile(Path(user.token_file))
    if user.token is not None:
        return _Fixed(f"Bearer {user.token}")
    if user.exec is not None:
        return Plugin(user.exec, tls, folder)
    if user.username and user.password:
        return _Fixed(
            f"Basic {base64.b64encode(f'{user.username}:{user.password}'.encode()).decode()}"
        )
    if user.auth_provider:
        raise CredentialsError(
            "the kubeconfig's auth-provider is not supported; use an exec plugin or a token"
        )
    return None


class _Renewed(Auth):
    """A bearer token that `_renew` provides, before the request and once more after a 401."""

    renews = True

    def __init__(self) -> None:
        self._header = ""
        self._good_until_s = 0.0
        self._renewal_lock = asyncio.Lock()

    async def authorization(self, refused: str = "") -> str:
        """Renew the token if it is old or was `refused`. One renewal serves all requests that
        wait."""
        async with self._renewal_lock:
            if time.monotonic() >= self._good_until_s or (refused and refused == self._header):
                token, self._good_until_s = await self._renew()
                self._header = f"Bearer {token}" if token else ""
            return self._header

    async def _renew(self) -> tuple[str, float]:
        raise NotImplementedError


class _Fixed(Auth):
    """A token or password that never changes."""

    def __init__(self, header: str) -> None:
        self._header = header

    async def authorization(self, refused: str = "") -> str:
        return self._header


class TokenFile(_Renewed):
    """A token file that another process keeps up to date: the kubelet, for a service account."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    async def _renew(self) -> tuple[str, float]:
        try:
            token = self._path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise CredentialsError(
                f"the token file {self._path} cannot be read ({plain(error)}); mount or write it"
            ) from None
        if not token:
            raise CredentialsError(f"the token file {self._path} is empty; write a token into it")
        return token, time.monotonic() + TOKEN_FILE_AGE_S


class Plugin(_Renewed):
    """A command that prints an ExecCredential (KEP-541), v1 or v1beta1, with a token, a client
    certificate, or both."""

    def __init__(
        self, spec: UserExec, tls: ssl.SSLContext | None, folder: Path | None = None
    ) -> None:
        super().__init__()
        self._spec, self._tls = spec, tls
        self._command = (
            str(folder / spec.command)
            if folder is not None and "/" in spec.command
            else spec.command
        )

    async def _renew(self) -> tuple[str, float]:
        if self._spec.apiVersion not in PLUGIN_VERSIONS:
            raise CredentialsError(
                f"the credential plugin's apiVersion is {self._spec.apiVersion!r}; "
                f"write {' or '.join(PLUGIN_VERSIONS)} into the kubeconfig"
            )
        status = self._read(await self._run())
        if status.certificate:
            self._load(status)
        return status.token, _good_until_s(status.expires)

    async def _run(self) -> bytes:
        info = {
            "apiVersion": self._spec.apiVersion,
            "kind": "ExecCredential",
            "spec": {"interactive": False},
        }
        environment = {
            **_without_own_settings(os.environ),
            **{variable.name: variable.value for variable in self._spec.env or []},
            "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode(),
        }
        try:
            process = await asyncio.create_subprocess_exec(
                self._command,
                *(self._spec.args or []),
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except OSError as error:
            raise self._unusable(f"cannot be run ({plain(error)})") from None
        try:
            async with asyncio.timeout(PLUGIN_TIMEOUT_S):
                output, _ = await process.communicate()
        except TimeoutError:
            raise self._unusable(f"gave no credential within {PLUGIN_TIMEOUT_S:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode:
            raise self._unusable(f"ended with exit code {process.returncode}")
        return output

    def _read(self, output: bytes) -> _Status:
        try:
            credential = msgspec.json.decode(output, type=_Credential)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise self._unusable("printed no ExecCredential") from None
        if credential.version != self._spec.apiVersion:
            raise self._unusable(
                f"printed an ExecCredential of {credential.version!r}, "
                f"not of {self._spec.apiVersion!r}"
            )
        if not credential.status.token and not credential.status.certificate:
            raise self._unusable("printed a credential with neither token nor client certificate")
        return credential.status

    def _load(self, status: _Status) -> None:
        """Use the certificate from the next connection on. It is in a file only while it is loaded,
        because OpenSSL reads files."""
        if self._tls is None:
            return
        with tempfile.NamedTemporaryFile() as pair:
            pair.write(f"{status.certificate}\n{status.key}\n".encode())
            pair.flush()
            try:
                self._tls.load_cert_chain(pair.name)
            except (ssl.SSLError, OSError):
                raise self._unusable(
                    "printed a client certificate and a key that do not belong together"
                ) from None

    def _unusable(self, problem: str) -> CredentialsError:
        hint = (self._spec.installHint or "").strip()
        remedy = hint or f"run `{self._command}` by hand to see why"
        return CredentialsError(f"the credential plugin {self._command} {problem}; {remedy}")


def _without_own_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Leave out Topolog's own settings: a plugin must not see the database's password."""
    return {name: value for name, value in environment.items() if not name.startswith("TOPOLOG_")}


def _good_until_s(expires: str) -> float:
    """Return monotonic seconds. A credential without a date is used until it is refused."""
    lifetime_s = float("inf")
    with suppress(ValueError):
        if expires:
            lifetime_s = datetime.fromisoformat(expires).timestamp() - time.time()
    return time.monotonic() + max(1.0, lifetime_s - EARLY_S)
