"""Become another program: take an identity, tie its life to the parent's, execute it. A separate
program.

    python -I -S launch.py KIND UID GID DEATH_SIGNAL PARENT_PID PROGRAM [ARGUMENT...]

This is not done between fork and exec of the parent, because hooks of libraries (gRPC,
OpenTelemetry) start threads in such a fork, and Linux refuses a user namespace to a process with
threads. Imports only the standard library, because the identity may be unable to read anything
else. Exit code 126 if the identity cannot be taken, 127 if the program cannot be run; stderr says
why.
"""

import ctypes
import os
import sys

CANNOT_BECOME, CANNOT_RUN = 126, 127

_PR_SET_PDEATHSIG = 1
_PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP = 28, 1 << 2
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 47, 2
_CAP_DAC_OVERRIDE = 1
_CAPABILITY_VERSION_3 = 0x20080522
_CLONE_NEWUSER = 0x10000000
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def become(kind: str, uid: int, gid: int) -> None:
    """Take the identity. Raises OSError."""
    if kind == "account":
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    elif kind == "reaching":
        _become_reaching(uid, gid)
    elif kind == "namespace":
        _enter_user_namespace(uid, gid)


def _become_reaching(uid: int, gid: int) -> None:
    """Change to the account with CAP_DAC_OVERRIDE as an ambient capability, which survives exec
    (capabilities(7)).
    """
    if _LIBC is None:
        raise OSError("capabilities are Linux only")
    # Without this bit setuid(2) drops the capability, and access(2), which initdb uses, ignores it.
    _LIBC.prctl(_PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP, 0, 0, 0)
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    bit = 1 << _CAP_DAC_OVERRIDE
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    effective_permitted_inheritable = (ctypes.c_uint32 * 6)(bit, bit, bit, 0, 0, 0)
    if _LIBC.capset(header, effective_permitted_inheritable) != 0:
        raise OSError(ctypes.get_errno(), "the capability to enter closed folders is refused here")
    if _LIBC.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "ambient capabilities are refused here")


def _enter_user_namespace(uid: int, gid: int) -> None:
    outer_uid, outer_gid = os.geteuid(), os.getegid()
    if _LIBC is None or _LIBC.unshare(_CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "user namespaces are refused here")
    _write_to_kernel("/proc/self/setgroups", "deny")
    _write_to_kernel("/proc/self/uid_map", f"{uid} {outer_uid} 1")
    _write_to_kernel("/proc/self/gid_map", f"{gid} {outer_gid} 1")


def _write_to_kernel(path: str, text: str) -> None:
    opened = os.open(path, os.O_WRONLY)
    try:
        os.write(opened, text.encode())
    except OSError as error:
        raise OSError(error.errno, f"{path} refuses {text!r}: {error.strerror}") from error
    finally:
        os.close(opened)


def die_with(parent_pid: int, death_signal: int) -> None:
    """Set the parent-death signal. Call it after `become`, because Linux clears the signal when
    credentials change (prctl(2)).
    """
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent_pid:
            os._exit(CANNOT_RUN)


def main(arguments: list[str]) -> int:
    """Return only if the program does not run."""
    kind, uid, gid, death_signal, parent_pid, *program = arguments
    try:
        become(kind, int(uid), int(gid))
        die_with(int(parent_pid), int(death_signal))
    except OSError as error:
        print(
            f"before the start, as {kind} {uid}:{gid}: {type(error).__name__}: {error}",
            file=sys.stderr,
        )
        return CANNOT_BECOME
    try:
        os.execvp(program[0], program)
    except OSError as error:
        print(f"cannot run {program[0]}: {error.strerror}", file=sys.stderr)
        return CANNOT_RUN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
