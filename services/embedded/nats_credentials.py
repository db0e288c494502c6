"""Who may say what on the bus: exporters' credentials, each for its own nodes, made, kept, replaced
and withdrawn in a folder.

`credentials.json` lists names, nodes and public keys; `seeds/NAME.nk` are the secrets, each for its
exporter's eyes only; `users.conf` says it all to a nats-server that others configure. Must not know
processes or connections.
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
# Made by `topolog nats credentials`, and made anew by it: who may say what. For `authorization { include "users.conf" }`; the
# password of the services' user comes from the environment of nats-server, in quotes: TOPOLOG_PASSWORD_TEXT='"..."'.
"""


class Credential(msgspec.Struct, frozen=True):
    """One exporter: its name, the nodes that it speaks for, its public key."""

    name: str
    nodes: tuple[str, ...]
    key: str


def rights(name: str, nodes: Sequence[str]) -> dict[str, list[str]]:
    """What an exporter may do: publish its nodes' reports, and hear the answers to that."""
    reports = [subjects.report(node) for node in nodes]
    receipts = [subjects.receipt(report) for report in reports]
    return {
        "publish": reports,
        "subscribe": [f"{subjects.exporters_inbox(name)}.>", *receipts],
    }


def users(credentials: Iterable[Credential]) -> list[dict[str, object]]:
    """The users of a nats-server's configuration."""
    return [
        {"nkey": each.key, "permissions": rights(each.name, each.nodes)} for each in credentials
    ]


def load(folder: Path) -> tuple[Credential, ...]:
    """The credentials of a folder, none where there is none. Raises DataFolderError."""
    path = folder / REGISTER
    try:
        return msgspec.json.decode(path.read_bytes(), type=tuple[Credential, ...])
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DataFolderError(
            f"the file {path} is not readable ({error})",
            f"Remove it, and make all anew: rm -r {folder}",
        ) from error


def keep(
    folder: Path,
    wanted: Iterable[tuple[str, Sequence[str]]],
    *,
    renew: bool = False,
    drop: Iterable[str] = (),
) -> list[Credential]:
    """Give each (name, its nodes) a credential, keeping the seeds that are there (unless `renew`),
    and withdraw those of `drop`. Returns all of the folder, sorted by name. Raises DataFolderError,
    with nothing changed for a wrong name."""
    listed = [(name, tuple(sorted(set(nodes)))) for name, nodes in wanted]
    dropped = tuple(drop)
    _check(listed, dropped)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        with _alone(folder):
            found = {each.name: each for each in load(folder) if each.name not in dropped}
            (folder / SEEDS).mkdir(exist_ok=True, mode=0o711)
            for name, nodes in listed:
                found[name] = Credential(name, nodes, nkeys.public(_seed(folder, name, renew)))
            for name in dropped:
                seed_file(folder, name).unlink(missing_ok=True)
            made = [found[name] for name in sorted(found)]
            write(folder / USERS, users_text(made).encode(), 0o644)
            write(folder / REGISTER, msgspec.json.format(msgspec.json.encode(made)) + b"\n", 0o644)
    except OSError as error:
        raise DataFolderError(
            f"credentials cannot be kept in {folder}: {error}", "Name a folder that can be written"
        ) from error
    return made


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time, where the file system has locks: who reads the register and writes it
    back forgets nobody.
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
    """The nodes of an exporter's file of nodes. Raises OSError, MsgspecError."""
    return [node.name for node in msgspec.json.decode(nodes_file.read_bytes(), type=list[_Node])]


def seed_file(folder: Path, name: str) -> Path:
    """Where the seed of a credential is."""
    return folder / SEEDS / f"{name}{SUFFIX}"


def users_text(credentials: Iterable[Credential]) -> str:
    """`users.conf`: the services' user by password, and one user a credential."""
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
                f"{path} {error}", f"Remove it, and a new one is made: rm {path}"
            ) from None
    seed = nkeys.new_seed()
    write(path, nkeys.file_text(nkeys.Login(name, seed)).encode(), 0o600)
    return seed


def _check(listed: Sequence[tuple[str, Sequence[str]]], dropped: Sequence[str]) -> None:
    for name in (*dropped, *(each for named, nodes in listed for each in (named, *nodes))):
        if not _NAME.fullmatch(name):
            raise DataFolderError(
                f"{name[:40]!r} is no name of a node (letters, digits, '-', '_' and '.', at most 253)",
                "Correct it",
            )
    for name, nodes in listed:
        if not nodes:
            raise DataFolderError(
                f"the credential {name!r} is for no node", "Name its nodes with --node"
            )
