"""Choose the account of Postgres, which refuses to run as root.

A normal user runs it. Root uses a service account if that can reach binaries and data; else a user
namespace, whose files belong to root; else (containers refuse namespaces) a service account that
may enter closed folders; else an error. The owner of existing data is kept.
"""

import os
import pwd
import subprocess
from pathlib import Path

from services.embedded.binaries import PostgresBinaries
from services.embedded.child import (
    AccountIdentity,
    Identity,
    PlainIdentity,
    ReachingAccountIdentity,
    UserNamespaceIdentity,
)
from services.embedded.errors import ServerBinaryError
from services.embedded.spawn import run_tool

_SERVICE_ACCOUNTS = ("topolog", "postgres", "nobody")


def choose_identity(binaries: PostgresBinaries, data_dir: Path, cluster: Path) -> Identity:
    """Return the identity for the database at `cluster` in `data_dir`. Raises ServerBinaryError if
    root has no usable account.

    For a service account, `data_dir` becomes 0711: that account can enter it, and only root can
    list it.
    """
    if os.geteuid() != 0:
        return PlainIdentity()
    account, namespace = _account(cluster), _namespace()
    if cluster.exists() and cluster.stat().st_uid == 0 and _works(binaries, namespace):
        return namespace
    if account is not None and _works(binaries, account) and _opens_to(data_dir, account):
        return account
    if _works(binaries, namespace):
        return namespace
    reaching = (
        ReachingAccountIdentity(account.name, account.uid, account.gid)
        if account is not None
        else None
    )
    if reaching is not None and _works(binaries, reaching) and _enters(data_dir, reaching):
        return reaching
    raise ServerBinaryError(
        f"Postgres does not run as root, no service account ({', '.join(_SERVICE_ACCOUNTS)}) can "
        f"reach both {binaries.folder} and {data_dir}, and user namespaces are refused here",
        "Run as a normal user, use folders that others may enter, or set TOPOLOG_DATABASE_URL",
    )


def give_to(identity: Identity, path: Path) -> None:
    """Make `path` and its contents belong to the identity's account, if the identity changes the
    account.
    """
    if not isinstance(identity, AccountIdentity | ReachingAccountIdentity):
        return
    for folder, _folders, files in os.walk(path):
        for name in ("", *files):
            os.chown(
                os.path.join(folder, name) if name else folder,
                identity.uid,
                identity.gid,
                follow_symlinks=False,
            )


def _account(cluster: Path) -> AccountIdentity | None:
    owner = cluster.stat().st_uid if cluster.exists() else 0
    for entry in _owner_entry(owner) + _service_entries():
        return AccountIdentity(entry.pw_name, entry.pw_uid, entry.pw_gid)
    return None


def _owner_entry(uid: int) -> list[pwd.struct_passwd]:
    try:
        return [pwd.getpwuid(uid)] if uid != 0 else []
    except KeyError:
        return []


def _service_entries() -> list[pwd.struct_passwd]:
    by_name = {entry.pw_name: entry for entry in pwd.getpwall() if entry.pw_uid != 0}
    return [by_name[name] for name in _SERVICE_ACCOUNTS if name in by_name]


def _namespace() -> UserNamespaceIdentity:
    """Use the uid of a real account inside, because initdb looks up its own uid."""
    for inner in reversed(_service_entries()):
        return UserNamespaceIdentity(inner.pw_name, inner.pw_uid, inner.pw_gid)
    return UserNamespaceIdentity("nobody", 65534, 65534)


def _works(binaries: PostgresBinaries, identity: Identity) -> bool:
    try:
        # --show makes nothing, but looks for its own files and for postgres, as the real run does.
        run_tool((binaries.tool("initdb"), "--show", "--no-locale", "-D", "/nonexistent"), identity)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def _opens_to(data_dir: Path, account: AccountIdentity) -> bool:
    mode = data_dir.stat().st_mode & 0o777
    data_dir.chmod(0o711)
    if _enters(data_dir, account):
        return True
    data_dir.chmod(mode)
    return False


def _enters(data_dir: Path, identity: Identity) -> bool:
    try:
        run_tool(("/bin/sh", "-c", 'cd "$1"', "sh", str(data_dir)), identity)
    except (OSError, subprocess.SubprocessError):
        return False
    return True
