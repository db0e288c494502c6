"""Exporter credentials for NATS, each for its own nodes: create, keep, replace and withdraw them in
a folder.

`credentials.json` lists names, nodes and public keys; `seeds/NAME.nk` are the secrets, each for one
exporter; `users.conf` is for a nats-server that is configured elsewhere. Must not know processes or
connections.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from services.embedded.errors import DataFolderError
from services.embedded.files import write
from shared.bus import nkeys, subjects

REGISTER, SEEDS, USERS = "credentials.json", "seeds", "users.conf"
SUFFIX = ".nk"
_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._]{0,252}")
_HEAD = """\
# Users and permissions, written and replaced by `topolog nats credentials`. For
# `authorization { include "users.conf" }`. The password of the services' user comes from the
# environment of nats-server, in quotes: TOPOLOG_PASSWORD_TEXT='"..."'.
"""


class Credential(msgspec.Struct, frozen=True):
    """One exporter: its name, its nodes, its public key."""

    name: str
    nodes: tuple[str, ...]
    key: str


def rights(name: str, nodes: Sequence[str]) -> dict[str, list[str]]:
    """Return the permissions of an exporter: publish its nodes' reports, and receive the
    acknowledgements.
    """
    reports = [subjects.report(node) for node in nodes]
    receipts = [subjects.receipt(report) for report in reports]
    return {
        "publish": reports,
        "subscribe": [f"{subjects.exporters_inbox(name)}.>", *receipts],
    }


def users(credentials: Iterable[Credential]) -> list[dict[str, object]]:
    """Return the users for a nats-server's configuration."""
    return [
        {"nkey": credential.key, "permissions": rights(credential.name, credential.nodes)}
        for credential in credentials
    ]


def load(folder: Path) -> tuple[Credential, ...]:
    """Return the credentials of a folder, none if it does not exist. Raises DataFolderError."""
    path = folder / REGISTER
    try:
        return msgspec.json.decode(path.read_bytes(), type=tuple[Credential, ...])
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DataFolderError(
            f"the file {path} is not readable ({error})",
            f"Remove the folder and create the credentials again: rm -r {folder}",
        ) from error


def keep(
    folder: Path,
    wanted: Iterable[tuple[str, Sequence[str]]],
    *,
    renew: bool = False,
    drop: Iterable[str] = (),
) -> list[Credential]:
    """Give each (name, nodes) a credential, keep existing seeds (unless `renew`), and withdraw
    `drop`.

    Returns all credentials of the folder, sorted by name. Raises DataFolderError; an invalid name
    changes nothing.
    """
    listed = [(name, tuple(sorted(set(nodes)))) for name, nodes in wanted]
    dropped = tuple(drop)
    _check(listed, dropped)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        with _alone(folder):
            by_name = {
                credential.name: credential
                for credential in load(folder)
                if credential.name not in dropped
            }
            (folder / SEEDS).mkdir(exist_ok=True, mode=0o711)
            for name, nodes in listed:
                by_name[name] = Credential(name, nodes, nkeys.public(_seed(folder, name, renew)))
            for name in dropped:
                seed_file(folder, name).unlink(missing_ok=True)
            made = [by_name[name] for name in sorted(by_name)]
            write(folder / USERS, users_text(made).encode(), 0o644)
            write(folder / REGISTER, msgspec.json.format(msgspec.json.encode(made)) + b"\n", 0o644)
    except OSError as error:
        raise DataFolderError(
            f"credentials cannot be written to {folder}: {error}", "Use a writable folder"
        ) from error
    return made


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock the folder if its file system has locks, because two writers of the register would lose
    entries.
    """
    opened = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


class _Node(msgspec.Struct):
    name: str


def names_in(nodes_file: Path) -> list[str]:
    """Return the nodes of an exporter's file of nodes. Raises OSError, MsgspecError."""
    return [node.name for node in msgspec.json.decode(nodes_file.read_bytes(), type=list[_Node])]


def seed_file(folder: Path, name: str) -> Path:
    """Return the path of a seed."""
    return folder / SEEDS / f"{name}{SUFFIX}"


def users_text(credentials: Iterable[Credential]) -> str:
    """Return `users.conf`: the services' user with a password, and a user per credential."""
    lines = [f"  {msgspec.json.encode(user).decode()}" for user in users(credentials)]
    return "\n".join(
        [
            _HEAD + "users: [",
            "  { user: topolog, password: $TOPOLOG_PASSWORD_TEXT }",
            *lines,
            "]",
            "",
        ]
    )


def _seed(folder: Path, name: str, renew: bool) -> str:
    path = seed_file(folder, name)
    if not renew:
        try:
            return nkeys.read(path).seed
        except FileNotFoundError:
            pass
        except nkeys.KeyInvalid as error:
            raise DataFolderError(
                f"{path} {error}", f"Remove it, and a new one is created: rm {path}"
            ) from None
    seed = nkeys.new_seed()
    write(path, nkeys.file_text(nkeys.Login(name, seed)).encode(), 0o600)
    return seed


def _check(listed: Sequence[tuple[str, Sequence[str]]], dropped: Sequence[str]) -> None:
    names = [*dropped]
    for name, nodes in listed:
        names += [name, *nodes]
    for name in names:
        if not _NAME.fullmatch(name):
            raise DataFolderError(
                f"{name[:40]!r} is no node name (letters, digits, '-', '_' and '.', at most 253)",
                "Correct it",
            )
    for name, nodes in listed:
        if not nodes:
            raise DataFolderError(
                f"the credential {name!r} has no node", "Name its nodes with --node"
            )
