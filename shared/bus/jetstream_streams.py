"""The two streams as JetStream keeps them, and their cure. Must not know connections or messages.

A stream whose disk was full answers no publication ever again, also after there is space
(nats-server 2.15, measured): only when it is deleted and made anew. What it held is on the log or
comes again.
"""

from __future__ import annotations

from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, StorageType, StreamConfig
from nats.js.errors import APIError, NotFoundError

from shared.bus import subjects
from shared.bus.streams import StreamLimits

_SERVER_FAULT = 500


def stream_configs(limits: StreamLimits) -> list[StreamConfig]:
    """Reports and facts."""
    reports = StreamConfig(
        name=subjects.REPORT_STREAM,
        description="The newest report of every node.",
        subjects=[subjects.REPORT_SUBJECTS],
        max_msgs_per_subject=1,
        max_bytes=limits.report_bytes,
        max_age=limits.report_age_s,
    )
    events = StreamConfig(
        name=subjects.FACT_STREAM,
        description="A mirror of the event log; what is dropped here is still there.",
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
    """Make the stream anew if it is spoilt; what was wrong with it, empty for one that is well.
    Raises what the client raises.
    """
    assert config.name is not None
    try:
        # To purge what nobody reads harms nothing, and a spoilt stream refuses it with the error
        # that spoilt it.
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
