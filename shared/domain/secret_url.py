"""A URL with a password in it: whether it is read as it was meant, and what of it may be shown.

A password may hold what ends it in a URL (`#`, `/`, `?`, `@`), and then a part of it is taken for a
host, a port or a path, which errors name. So a URL is refused before anybody takes it apart, in
words that hold nothing of it but the character that is to be percent-encoded. Pure; where a URL's
text comes from may change (`Address`), as when a password is rotated.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import urlsplit

Address = str | Callable[[], str]
"""A URL, or what tells it as it is now: asked at every connection. Raises OSError where it is not to be had."""

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
    """The URL as it is now."""
    return address if isinstance(address, str) else address()


def looks_like_url(text: str) -> bool:
    """Whether it was meant as a URL, though it may not be one: `scheme:/...`, or with an `@`, as no
    file is called.
    """
    return bool(re.match(r"[\w+.-]+:/", text)) or "@" in text


def masked(text: str) -> str:
    """The text with everything hidden between a scheme, with one slash or two, and the last `@`:
    for URLs of servers the last of the line, for others that of the word."""
    if "@" in text:
        text = _BEFORE_HOST.sub(r"\1***@", _SERVERS.sub(r"\1***@", text))
    return _PASSWORD_FIELD.sub(r"\1***", text)


def shown(url: str, schemes: tuple[str, ...]) -> str:
    """Of a URL what may be shown: scheme, hosts and path. Of one that cannot be read only that."""
    scheme, _, rest = url.partition("://")
    if _trouble(url, schemes):
        return f"{schemes[0]}://***"
    return f"{scheme}://{re.split('[?#]', rest, maxsplit=1)[0].rpartition('@')[2]}"


def database_trouble(url: str) -> str:
    """Why it is no URL of a database, with the remedy; empty when it is one."""
    return _trouble(url, POSTGRES)


def bus_trouble(url: str) -> str:
    """The same of a URL of NATS: several with commas between, each with a scheme or without."""
    servers = [each.strip() for each in url.split(",")]
    if any("@" in each and "://" not in each for each in servers[1:]):
        return _encode(",")
    return next(filter(None, (_of_server(each) for each in servers)), "")


def _of_server(url: str) -> str:
    if re.match(r"[\w+.-]+:/(?!/)", url):
        return _BEGINS[NATS]
    url = url if "://" in url else f"nats://{url}"
    found = _trouble(url, NATS)
    if found or _host_part(url.partition("://")[2]).rpartition("@")[2]:
        return found
    return "names no host; give nats://HOST:PORT"


def _trouble(url: str, schemes: tuple[str, ...]) -> str:
    if not url.isprintable() or any(each.isspace() for each in url.partition("?")[0]):
        return "holds a blank, a line break or a control character; percent-encode it, as %20 for a blank"
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
    return next((_encode(each) for each in "@[]\\" if each in userinfo), "")


def _hosts_trouble(hosts: str) -> str:
    for host in hosts.split(","):
        _, bracket, port = host.partition("]") if host.startswith("[") else (host, "", "")
        if not bracket:
            _, _, port = host.partition(":")
        elif port and not port.startswith(":"):
            return "has something between an address in brackets and its port; give [ADDRESS]:PORT"
        port = port.removeprefix(":") if bracket else port
        if ":" in port:
            return "has more than one ':' in a host; write an IPv6 address in brackets, and %3A for a ':' in a user"
        if port and not (re.fullmatch(r"[0-9]{1,5}", port) and int(port) <= _HIGHEST_PORT):
            return (
                f"has a port that is no number up to {_HIGHEST_PORT}; where that is a password, "
                "write USER:PASSWORD@HOST, with % codes for what is no letter or digit in it"
            )
    return ""


def _rest_trouble(url: str, rest: str) -> str:
    fields = rest.partition("?")[2]
    if any("=" not in field for field in fields.split("&") if fields):
        return "has something after ? that is no NAME=VALUE; write %26 for an & in a value"
    try:
        urlsplit(url).hostname  # noqa: B018 - it is read, or refused with a text that holds it
    except ValueError:
        return "cannot be read; percent-encode what is no letter or digit in user and password"
    return ""


def _encode(character: str) -> str:
    return f"holds a {character!r} where none can be; if it is of the user or the password, write %{ord(character):02X} for it"
