"""Subjects and streams on the bus, declared once.

`topolog.report.<node>` carries the newest report of a node (last message per subject is kept);
`topolog.fact.<area>.<type>` mirrors the log; node names are escaped so that a dot in a name is not
a subject separator.
"""

from __future__ import annotations

REPORT_STREAM = "TOPOLOG_REPORTS"
REPORT_SUBJECTS = "topolog.report.*"
FACT_STREAM = "TOPOLOG_FACTS"
FACT_SUBJECTS = "topolog.fact.>"

ECHO = "topolog.report._echo"
"""What a reader of reports sends through their stream to hear it back; no node's name begins like that."""

MSG_ID = "Nats-Msg-Id"
POSITION = "Topolog-Position"
CHAIN = "Topolog-Chain"
"""Which history the position is of: another one after a restore has other chains (`shared.eventlog.chain`)."""


def report(node: str) -> str:
    """Where the exporter publishes a node's report."""
    return f"topolog.report.{escape(node)}"


def reporting(subject: str) -> str:
    """The node of a report's subject."""
    return unescape(subject.rsplit(".", 1)[-1])


def event(area: str, type_name: str) -> str:
    """Where the relay publishes a fact."""
    return f"topolog.fact.{area}.{type_name}"


def message_id(log_id: str, timeline: int, position: int, chain: str) -> str:
    """The duplicate-suppression id of a relayed fact; `chain` tells apart what one position held
    before and after a restore.
    """
    return f"{log_id}:{timeline}:{position}:{chain[:16]}"


def escape(node: str) -> str:
    """A node name as one subject token: `%` and `.` (legal in names, not in tokens) are
    percent-encoded.
    """
    return node.replace("%", "%25").replace(".", "%2E")


def unescape(token: str) -> str:
    """The inverse of `escape`."""
    return token.replace("%2E", ".").replace("%25", "%")


def inbox_prefix(user: str) -> str:
    """Where answers to this user come: a subject of its own, so that users can be kept from hearing
    each other's.
    """
    return f"_INBOX_{escape(user)}" if user and not set(user) & set(" *>") else "_INBOX"


def exporters_inbox(name: str) -> str:
    """Where answers to the exporter of that credential come; no user's own inbox begins like that."""
    return inbox_prefix(f"exporter-{name}")
