"""Settings: a frozen msgspec struct, filled from a YAML or TOML file and from TOPOLOG_* variables;
all errors are reported at once.

A field `lease_ttl_s` is TOPOLOG_LEASE_TTL_S; a field `batch` of a struct field `cycle` is
TOPOLOG_CYCLE_BATCH. Environment overrides file, file overrides default. A secret may be in a file,
TOPOLOG_X_FILE, which counts if the variable itself is not set; the URLs of Postgres and NATS are
read from their file again at every connection. Unknown keys of a settings file are errors. Unknown
variables are not, because Kubernetes sets TOPOLOG_..._PORT by itself.
"""

from __future__ import annotations

import difflib
import re
import tomllib
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from shared.domain.secret_url import Address, bus_trouble, database_trouble
from shared.eventlog.archive_place import trouble as archive_trouble
from shared.runtime.secret_file import ENDING, SecretFile, SecretUnreadable, Token, UrlFile, read
from shared.telemetry.scrubbing import scrub

T = TypeVar("T", bound=msgspec.Struct)
PREFIX = "TOPOLOG_"
FILE_VARIABLE = "TOPOLOG_CONFIG"
MAX_FILE_BYTES = 1 << 20

# A text that is never printed.
Secret = Annotated[str, msgspec.Meta(extra={"secret": True})]

# Empty if a service needs no database.
DatabaseUrl = Annotated[
    str,
    msgspec.Meta(
        description="postgresql://USER:PASSWORD@HOST/DATABASE",
        extra={"secret": True, "trouble": database_trouble},
    ),
]

BusUrl = Annotated[
    str,
    msgspec.Meta(description="nats://HOST:PORT", extra={"secret": True, "trouble": bus_trouble}),
]

Archive = Annotated[
    str,
    msgspec.Meta(description="a folder or s3://BUCKET/PREFIX", extra={"trouble": archive_trouble}),
]

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
TlsVersion = typing.Literal["1.2", "1.3"]


class HttpTls(msgspec.Struct, frozen=True):
    """TLS of the HTTP port, by PEM files that are reloaded when they change. No `certificate`: no
    TLS. With `client_ca`, clients without a certificate of that authority only get health.
    `ciphers` are those of TLS 1.2, by IANA's names; none: all recommended ones."""

    certificate: str = ""
    key: str = ""
    client_ca: str = ""
    min_version: TlsVersion = "1.2"
    ciphers: tuple[str, ...] = ()


class SettingsInvalid(ValueError):
    """The settings are invalid; `problems` has a line each, with variable and remedy."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class CommonSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of every service. `_s` are seconds. `http_port` 0 lets the system choose.
    `nats_replicas` is the number of copies of each stream in a NATS cluster (for services that
    create streams), `nats_nodes` the number of nodes whose reports they have room for.
    `http_token` protects metrics and state. `http_allowed_hosts` are names in addition to addresses
    and cluster names that clients of an unprotected port may use. With `production`, a service
    refuses to start without a token or clients' certificates on an address that the network
    reaches, or with the database owner's login. `database_url_file` and `nats_url_file` name files
    of these URLs, `http_token_file` a file of the token. `fold_differs`: whether a process becomes
    ready if its fold promises pods something else than the running release
    (`shared.runtime.marks`). `archive` is the place of the files of pruned events, if it is not the
    one where they were written."""

    database_url: DatabaseUrl = ""
    database_url_file: str = ""
    archive: Archive = ""
    nats_url: BusUrl = "nats://127.0.0.1:4222"
    nats_url_file: str = ""
    nats_replicas: Annotated[int, msgspec.Meta(ge=1, le=5)] = 1
    nats_nodes: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 2048
    http_host: str = "127.0.0.1"
    http_port: Port = 0
    http_token: Secret = ""
    http_token_file: str = ""
    http_tls: HttpTls = HttpTls()
    http_allowed_hosts: tuple[str, ...] = ()
    production: bool = False
    log_format: typing.Literal["json", "console"] = "json"
    log_level: typing.Literal["debug", "info", "warning", "error"] = "info"
    trace_file: str = ""
    trace_ratio: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.01
    fold_differs: typing.Literal["wait", "go"] = "wait"
    drain_grace_s: Annotated[float, msgspec.Meta(ge=0, le=600)] = 10.0
    instance: str = ""

    def database(self) -> Address:
        if self.database_url_file:
            return UrlFile(self.database_url_file, database_trouble)
        return self.database_url

    def bus(self) -> Address:
        return UrlFile(self.nats_url_file, bus_trouble) if self.nats_url_file else self.nats_url

    def token(self) -> Token:
        return SecretFile(self.http_token_file) if self.http_token_file else self.http_token

    def tls(self) -> HttpTls:
        return self.http_tls


class _Leaf(msgspec.Struct, frozen=True):
    """A single setting: its path in the struct, variable and type. `trouble` returns the problem
    of a URL without repeating it."""

    path: tuple[str, ...]
    variable: str
    type: Any
    secret: bool
    trouble: Callable[[str], str] | None

    @property
    def file_path(self) -> tuple[str, ...]:
        """The path of the setting that names this secret's file."""
        return (*self.path[:-1], f"{self.path[-1]}_file")


def load(kind: type[T], environment: Mapping[str, str], file: Path | None = None) -> T:
    """Load the settings. The file defaults to TOPOLOG_CONFIG. Raises SettingsInvalid."""
    problems: list[str] = []
    file_name = environment.get(FILE_VARIABLE, "")
    path = file or (Path(file_name) if file_name else None)
    values = _read_file(path, kind, problems) if path else {}
    leaves = list(_leaves(kind))
    for leaf in leaves:
        text = _text_of(leaf, environment, _get(values, leaf.file_path), problems)
        if text is not None:
            _set(values, leaf.path, text)
    for leaf in leaves:
        if leaf.secret and environment.get(leaf.variable) and _get(values, leaf.file_path):
            _set(values, leaf.file_path, "")
    settings = _convert(kind, values, problems)
    if problems or settings is None:
        raise SettingsInvalid(problems)
    return settings


def masked(settings: msgspec.Struct) -> dict[str, Any]:
    """Return the settings without secrets, for logs."""
    shown: dict[str, Any] = typing.cast(
        dict[str, Any], scrub(msgspec.to_builtins(settings, enc_hook=str))
    )
    for leaf in _leaves(type(settings)):
        if leaf.secret and _get(shown, leaf.path):
            _set(shown, leaf.path, "***")
    return shown


def variables(kind: type[msgspec.Struct]) -> list[tuple[str, str]]:
    """Return (variable, type) of every setting, for documentation."""
    return [(leaf.variable, _type_text(leaf.type)) for leaf in _leaves(kind)]


def names(kind: type[msgspec.Struct]) -> set[str]:
    """Return every variable that `load` reads."""
    leaves = list(_leaves(kind))
    return {
        FILE_VARIABLE,
        *(leaf.variable for leaf in leaves),
        *(leaf.variable + ENDING for leaf in leaves if leaf.secret),
    }


def _leaves(kind: type[msgspec.Struct], path: tuple[str, ...] = ()) -> Iterator[_Leaf]:
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        hint, field_path = hints[field.name], (*path, field.name)
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            yield from _leaves(hint, field_path)
        else:
            yield _Leaf(
                field_path,
                PREFIX + "_".join(field_path).upper(),
                hint,
                bool(_extra(hint, "secret")),
                _extra(hint, "trouble"),
            )


def _extra(hint: Any, key: str) -> Any:
    metas = [meta for meta in getattr(hint, "__metadata__", ()) if isinstance(meta, msgspec.Meta)]
    return next((meta.extra[key] for meta in metas if meta.extra and key in meta.extra), None)


def _text_of(
    leaf: _Leaf, environment: Mapping[str, str], file_setting: Any, problems: list[str]
) -> Any:
    """Return a setting's value; `file_setting` names its secret's file in the settings file."""
    text = environment.get(leaf.variable)
    file = environment.get(leaf.variable + ENDING) or file_setting
    if not text and leaf.secret and file:
        try:
            text = read(str(file))
        except SecretUnreadable as error:
            problems.append(f"{leaf.variable}{ENDING}: {error}")
    if text is None or not _is_structured(leaf.type):
        return text
    return _structured(leaf, text, problems)


def _is_structured(hint: Any) -> bool:
    """Return whether the value is a collection, which the environment gives as YAML or
    comma-separated."""
    hint = typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(_is_structured(inner) for inner in typing.get_args(hint))
    return typing.get_origin(hint) in (list, tuple, dict, set, frozenset)


def _structured(leaf: _Leaf, text: str, problems: list[str]) -> Any:
    if text.lstrip()[:1] not in ("[", "{"):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return _document(text)
    except ValueError:
        problems.append(
            f"{leaf.variable}: is not readable; write [a, b] or {{k: v}}, or comma-separated values"
        )
        return None


def _document(text: str) -> Any:
    # JSON first: it is a subset of YAML, and parsing it needs no YAML library in memory.
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        from shared.domain import yaml_text

        try:
            return yaml_text.document(text)
        except yaml_text.YAMLError as error:
            raise ValueError(str(error)) from error


def _read_file(path: Path, kind: type[msgspec.Struct], problems: list[str]) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ValueError(f"is larger than {MAX_FILE_BYTES} bytes")
        text = path.read_text()
        values = tomllib.loads(text) if path.suffix == ".toml" else _document(text)
        if values is None:
            return {}
        if not isinstance(values, dict):
            raise ValueError("must be a mapping of setting to value")
    except (OSError, ValueError) as error:
        problems.append(f"{path}: {error}; give a YAML or TOML file, or unset {FILE_VARIABLE}")
        return {}
    _check_keys(path, kind, values, problems)
    return values


def _check_keys(
    path: Path,
    kind: type[msgspec.Struct],
    values: dict[str, Any],
    problems: list[str],
    prefix: str = "",
) -> None:
    hints = typing.get_type_hints(kind)
    for key in list(values):
        hint = hints.get(key)
        if hint is None:
            similar = difflib.get_close_matches(str(key), hints, 1)
            advice = (
                f"did you mean {prefix}{similar[0]}?"
                if similar
                else f"valid settings: {', '.join(sorted(hints))}"
            )
            problems.append(f"{path}: {prefix}{key} is not a setting; {advice}")
            del values[key]
        elif (
            isinstance(hint, type)
            and issubclass(hint, msgspec.Struct)
            and isinstance(values[key], dict)
        ):
            _check_keys(path, hint, values[key], problems, f"{prefix}{key}.")


def _convert(kind: type[T], values: dict[str, Any], problems: list[str]) -> T | None:
    """Convert value by value, so that every error is reported."""
    valid: dict[str, Any] = {}
    for leaf in _leaves(kind):
        value = _get(values, leaf.path)
        if value is None:
            continue
        try:
            converted = msgspec.convert(value, leaf.type, strict=False)
            if leaf.trouble is not None and converted and (trouble := leaf.trouble(converted)):
                suffix = ENDING if _get(values, leaf.file_path) else ""
                problems.append(f"{leaf.variable}{suffix}: {trouble}")
            else:
                _set(valid, leaf.path, converted)
        except msgspec.ValidationError as error:
            shown = "" if leaf.secret else f", got {scrub(str(value)[:80])!r}"
            problems.append(f"{leaf.variable}: {_plain(error)}{shown}; give {_expected(leaf.type)}")
    try:
        return msgspec.convert(msgspec.to_builtins(valid, enc_hook=str), kind, strict=False)
    except msgspec.ValidationError as error:
        missing = re.search(r"missing required field `(\w+)`", str(error))
        if missing:
            problems.append(
                f"{PREFIX}{missing[1].upper()}: is required; "
                f"set it, or write {missing[1]} in the file"
            )
        elif not problems:
            problems.append(f"settings: {error}")
        return None


def _expected(hint: Any) -> str:
    metas = [meta for meta in getattr(hint, "__metadata__", ()) if isinstance(meta, msgspec.Meta)]
    return next(
        (meta.description for meta in metas if meta.description),
        f"a value of type {_type_text(hint)}",
    )


def _plain(error: msgspec.ValidationError) -> str:
    return str(error).replace("`", "").removesuffix(" - at $")


def _type_text(hint: Any) -> str:
    bare = hint.__origin__ if hasattr(hint, "__metadata__") else hint
    return bare.__name__ if isinstance(bare, type) else str(bare).replace("typing.", "")


def _get(values: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(values, dict) or key not in values:
            return None
        values = values[key]
    return values


def _set(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        if not isinstance(values.get(key), dict):
            values[key] = {}
        values = values[key]
    values[path[-1]] = value
