"""URLs with a password: whether they parse as intended, and which parts may be shown.

A password may contain characters that end it in a URL (`#`, `/`, `?`, `@`). Part of the password is
then taken for a host, a port or a path, which error messages print. So a URL is checked before it
is parsed, and the refusal contains nothing of it but the character that needs percent-encoding.
Pure. The text of an `Address` may change, for example when a password is rotated.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import urlsplit

# A URL, or a function that returns the current one. It is called for every connection and raises
# OSError if the URL cannot be read.
Address = str | Callable[[], str]

POSTGRES, NATS = ("postgresql", "postgres"), ("nats", "tls")

_SCHEME = re.compile(r"([A-Za-z][\w.-]*)(?:\+\w+)?://")
_BEFORE_HOST = re.compile(r"(?<![\w+.-])([\w+.-]+:/{1,2})\S*@")
_SERVERS = re.compile(r"((?:postgres|postgresql|nats|tls)(?:\+\w+)?:/{1,2}).*@", re.IGNORECASE)
_PASSWORD_FIELD = re.compile(r"((?:[?&]|\b)(?:ssl)?password=)[^&\s'\"]+", re.IGNORECASE)
_HIGHEST_PORT = 65_535
_BEGINS: dict[tuple[str, ...], str] = {
    POSTGRES: "must begin with postgresql://; give postgresql://USER:PASSWORD@HOST/DATABASE",
    NATS: "must begin with nats:// or tls://; give nats://HOST:PORT",
}


def text_of(address: Address) -> str:
    """Return the current URL."""
    return address if isinstance(address, str) else address()


def looks_like_url(text: str) -> bool:
    """Return whether the text was meant as a URL, even a malformed one: `scheme:/...` or an `@`,
    which file names do not have.
    """
    return bool(re.match(r"[\w+.-]+:/", text)) or "@" in text


# The example of a remedy. It is recognized as a whole word only, so that it hides no password.
_EXAMPLE = "postgresql://USER:PASSWORD@HOST/DATABASE"
_EXAMPLE_WORD = re.compile(rf"(?<![^\s'\"(]){re.escape(_EXAMPLE)}(?![^\s'\",.;)])")
_EXAMPLE_HIDDEN = "\x00example\x00"


def masked(text: str) -> str:
    """Hide everything between a scheme (with one or two slashes) and the last `@`.

    For Postgres and NATS URLs this is the last `@` of the line, for others the last of the word.
    The example of a remedy (`USER:PASSWORD@HOST`) stays, because a hint must be readable.
    """
    if "@" in text:
        text = _EXAMPLE_WORD.sub(_EXAMPLE_HIDDEN, text)
        text = _BEFORE_HOST.sub(r"\1***@", _SERVERS.sub(r"\1***@", text))
        text = text.replace(_EXAMPLE_HIDDEN, _EXAMPLE)
    return _PASSWORD_FIELD.sub(r"\1***", text)


def shown(url: str, schemes: tuple[str, ...]) -> str:
    """Return the parts of a URL that may be shown: scheme, hosts and path. Of a malformed URL only
    the scheme.
    """
    scheme, _, rest = url.partition("://")
    if _trouble(url, schemes):
        return f"{schemes[0]}://***"
    return f"{scheme}://{re.split('[?#]', rest, maxsplit=1)[0].rpartition('@')[2]}"


def database_trouble(url: str) -> str:
    """Return why this is not a database URL, with the remedy. Empty if it is valid."""
    return _trouble(url, POSTGRES)


def bus_trouble(url: str) -> str:
    """Return why this is not a NATS URL or a comma-separated list of them, each with or without a
    scheme. Empty if it is valid.
    """
    servers = [server.strip() for server in url.split(",")]
    if any("@" in server and "://" not in server for server in servers[1:]):
        return _encode(",")
    return next(filter(None, (_of_server(server) for server in servers)), "")


def _of_server(url: str) -> str:
    if re.match(r"[\w+.-]+:/(?!/)", url):
        return _BEGINS[NATS]
    url = url if "://" in url else f"nats://{url}"
    trouble = _trouble(url, NATS)
    if trouble or _host_part(url.partition("://")[2]).rpartition("@")[2]:
        return trouble
    return "names no host; give nats://HOST:PORT"


def _trouble(url: str, schemes: tuple[str, ...]) -> str:
    if not url.isprintable() or any(character.isspace() for character in url.partition("?")[0]):
        return (
            "contains a blank, a line break or a control character; "
            "percent-encode it (%20 for a blank)"
        )
    scheme = _SCHEME.match(url)
    if scheme is None or scheme[1] not in schemes:
        return _BEGINS[schemes]
    rest = url[scheme.end() :]
    return (
        _userinfo_trouble(rest)
        or _hosts_trouble(_host_part(rest).rpartition("@")[2])
        or _rest_trouble(url, rest)
    )


def _host_part(rest: str) -> str:
    return re.split("[/?#]", rest, maxsplit=1)[0]


def _userinfo_trouble(rest: str) -> str:
    if "#" in rest:
        return _encode("#")
    authority = _host_part(rest)
    beyond = rest[len(authority) :]
    if "@" in beyond:
        return f"{_encode(beyond[0])}, and %40 for an @ that is not before the host"
    userinfo = authority.rpartition("@")[0]
    return next((_encode(character) for character in "@[]\\" if character in userinfo), "")


def _hosts_trouble(hosts: str) -> str:
    for host in hosts.split(","):
        _, bracket, port = host.partition("]") if host.startswith("[") else (host, "", "")
        if not bracket:
            _, _, port = host.partition(":")
        elif port and not port.startswith(":"):
            return "has something between an address in brackets and its port; give [ADDRESS]:PORT"
        port = port.removeprefix(":") if bracket else port
        if ":" in port:
            return (
                "has more than one ':' in a host; write an IPv6 address in brackets, "
                "and %3A for a ':' in a user"
            )
        if port and not (re.fullmatch(r"[0-9]{1,5}", port) and int(port) <= _HIGHEST_PORT):
            return (
                f"has a port that is not a number up to {_HIGHEST_PORT}; if it is a password, "
                "write USER:PASSWORD@HOST and percent-encode all but letters and digits"
            )
    return ""


def _rest_trouble(url: str, rest: str) -> str:
    fields = rest.partition("?")[2]
    if any("=" not in field for field in fields.split("&") if fields):
        return "has a field after ? that is not NAME=VALUE; write %26 for an & in a value"
    try:
        urlsplit(url).hostname  # noqa: B018 - it is read, or refused with a text that holds it
    except ValueError:
        return "cannot be parsed; percent-encode all but letters and digits in user and password"
    return ""


def _encode(character: str) -> str:
    return (
        f"contains a misplaced {character!r}; "
        f"if it belongs to the user or the password, write %{ord(character):02X}"
    )
