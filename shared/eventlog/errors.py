"""Exceptions of the log: lost connections, broken invariants, misuse. Conflicts and other outcomes
are values. Must not know adapters.
"""

from __future__ import annotations


class LogUnavailable(Exception):
    """The log did not answer in time. The outcome of a pending append is unknown until its commit
    id is sent again.
    """


class LogBroken(Exception):
    """The log violates an invariant (a hole, disorder): readers stop and an operator must look."""


class LogPruned(LogBroken):
    """The events are only in files of the archive, which this process cannot read."""


class LogBusy(Exception):
    """Another process rewrites the history at this moment; nothing was changed. The remedy follows
    a semicolon.
    """


class CommitInvalid(ValueError):
    """A commit that no log accepts: no events, no id, or an event too large. Names commit and
    field.
    """


class LoginTooStrong(Exception):
    """A service logs in as a user that may change events; production refuses that."""


class LoginTooWeak(Exception):
    """The login lacks the right; the message names the login that has it after a semicolon."""


class LogNotMigrated(Exception):
    """The database has no event log, or an older one than this release needs."""
