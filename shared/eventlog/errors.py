"""What may go wrong with the log beyond an outcome: transport, a broken invariant, a misuse. Knows
no adapter.
"""

from __future__ import annotations


class LogUnavailable(Exception):
    """The log could not be reached in time; nothing is known about what was being appended until
    its commit id is sent again.
    """


class LogBroken(Exception):
    """The log contradicts its own promise (a hole, disorder); a reader must stop and an operator
    must look.
    """


class LogBusy(Exception):
    """Somebody else rewrites the history just now; nothing was changed. Says, after a semicolon,
    what to do.
    """


class CommitInvalid(ValueError):
    """A commit that no log can take: no facts, no id, or a fact too large. Names the commit and the
    field.
    """


class LoginTooStrong(Exception):
    """A service logs in as somebody who may change facts, and that is refused here."""


class LoginTooWeak(Exception):
    """The login lacks the right; says, after a semicolon, whose has it."""


class LogNotMigrated(Exception):
    """The database has no event log, or an older one than this release needs."""
