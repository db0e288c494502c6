"""Subjects and streams on the bus.

`topolog.report.<node>` carries the newest report of a node (the last message per subject is kept).
`topolog.fact.<area>.<type>` mirrors the log, and `topolog.fact.cell.<cell>.<area>.<type>` the log
of a cell. Node names are escaped, because a dot separates tokens of a subject.
"""

from __future__ import annotations

REPORT_STREAM = "TOPOLOG_REPORTS"
REPORT_SUBJECTS = "topolog.report.*"
FACT_STREAM = "TOPOLOG_FACTS"
FACT_SUBJECTS = "topolog.fact.>"

# The subject of echoes; node names cannot begin with `_`.
ECHO = "topolog.report._echo"

# The report stream confirms a stored report on this prefix and the node's token.
RECEIPTS = "topolog.stored."
# Identifies a report in its receipt.
SENT = "Topolog-Sent"

# The server asks here about clients (`shared.bus.callout`), and this user answers.
CALLOUT, CALLOUT_USER = "$SYS.REQ.USER.AUTH", "logins"

MSG_ID = "Nats-Msg-Id"
POSITION = "Topolog-Position"
# The chain identifies the history of the position after a restore (`shared.eventlog.chain`).
CHAIN = "Topolog-Chain"


def report(node: str) -> str:
    """Return the subject of a node's reports."""
    return f"topolog.report.{escape(node)}"


def receipt(report_subject: str) -> str:
    """Return the subject of the receipts for a report's subject."""
    return RECEIPTS + report_subject.rsplit(".", 1)[-1]


def reporting(subject: str) -> str:
    """Return the node of a report's subject."""
    return unescape(subject.rsplit(".", 1)[-1])


def event(area: str, type_name: str, cell: str = "") -> str:
    """Return the subject of a relayed event."""
    return f"topolog.fact.{f'cell.{escape(cell)}.' if cell else ''}{area}.{type_name}"


def message_id(log_id: str, timeline: int, position: int, chain: str) -> str:
    """Return the deduplication id of a relayed event; `chain` distinguishes the events that one
    position held before and after a restore.
    """
    return f"{log_id}:{timeline}:{position}:{chain[:16]}"


def escape(node: str) -> str:
    """Return a node name as one subject token: `%` and `.` are percent-encoded."""
    return node.replace("%", "%25").replace(".", "%2E")


def unescape(token: str) -> str:
    return token.replace("%2E", ".").replace("%25", "%")


def inbox_prefix(user: str) -> str:
    """Return a user's inbox prefix, so that permissions can keep users out of each other's
    inboxes.
    """
    return f"_INBOX_{escape(user)}" if user and not set(user) & set(" *>") else "_INBOX"


def exporters_inbox(name: str) -> str:
    """Return an exporter's inbox prefix; no user's inbox prefix begins like it."""
    return inbox_prefix(f"exporter-{name}")
