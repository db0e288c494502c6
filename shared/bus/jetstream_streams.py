"""The streams as JetStream keeps them, and their repair.

After a full disk a stream never answers a publication again, even when there is space again
(nats-server 2.15, measured). Only deleting and recreating it helps. Its content is on the log or is
sent again.

The report stream sends receipts instead of acknowledgements (`jetstream_receipts` says why).
"""

from __future__ import annotations

from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RePublish, StorageType, StreamConfig
from nats.js.errors import APIError, NotFoundError

from shared.bus import subjects
from shared.bus.port import StreamLimits

_SERVER_FAULT = 500


def stream_configs(limits: StreamLimits) -> list[StreamConfig]:
    """Return the configurations of the report and event streams."""
    reports = StreamConfig(
        name=subjects.REPORT_STREAM,
        description="The newest report of every node.",
        subjects=[subjects.REPORT_SUBJECTS],
        max_msgs_per_subject=1,
        no_ack=True,
        republish=RePublish(
            src=subjects.REPORT_SUBJECTS,
            dest=subjects.RECEIPTS + "{{wildcard(1)}}",
            headers_only=True,
        ),
        max_bytes=limits.report_bytes,
        max_age=limits.report_age_s,
    )
    events = StreamConfig(
        name=subjects.FACT_STREAM,
        description="A mirror of the event log, which still holds what is dropped here.",
        subjects=[subjects.FACT_SUBJECTS],
        max_bytes=limits.event_bytes,
        max_age=limits.event_age_s,
    )
    for config in (reports, events):
        config.storage = StorageType.FILE
        config.discard = DiscardPolicy.OLD
        config.max_msg_size = limits.message_bytes
        config.duplicate_window = limits.duplicate_window_s
        config.num_replicas = limits.replicas
    return [reports, events]


async def heal(js: JetStreamContext, config: StreamConfig) -> str:
    """Recreate the stream if it is broken; return the problem, "" if there was none. Raises what
    the client raises.
    """
    assert config.name is not None
    try:
        # Purging an unread subject is harmless, and a broken stream refuses it with the error that
        # broke it.
        await js.purge_stream(config.name, subject=_UNREAD[config.name])
    except NotFoundError:
        problem = "there is no such stream"
    except APIError as error:
        if error.code != _SERVER_FAULT:
            raise
        problem = str(error.description)
        await js.delete_stream(config.name)
    else:
        return ""
    await js.add_stream(config)
    return problem


_UNREAD = {subjects.REPORT_STREAM: subjects.ECHO, subjects.FACT_STREAM: "topolog.fact.none.none"}
