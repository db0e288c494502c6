"""The tables of the log for SQLAlchemy, for queries by people and tools. Services use SQL of their
own.

The migrations create the tables; a test compares these declarations with a migrated database.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)

metadata = MetaData()

event = Table(
    "fact",
    metadata,
    Column("position", BigInteger, primary_key=True),
    Column("stream", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("schema", Integer, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("time_us", BigInteger, nullable=False),
    Column("role", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("commit_id", Text, nullable=False),
    Column("correlation", Text, nullable=False),
    Column("causation", BigInteger, nullable=False),
    Column("trace", Text, nullable=False),
    Column("chain", LargeBinary, nullable=False),
)
counter = Table(
    "counter",
    metadata,
    Column("singleton", Boolean, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("log_id", Text, nullable=False),
    Column("timeline", Integer, nullable=False),
    Column("partition_size", BigInteger, nullable=False),
    Column("ahead", Integer, nullable=False),
    Column("partitioned_to", BigInteger, nullable=False),
    Column("chain", LargeBinary, nullable=False),
)
stream_head = Table(
    "stream_head",
    metadata,
    Column("stream", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
)
commit_seen = Table(
    "commit_seen",
    metadata,
    Column("commit_id", Text, primary_key=True),
    Column("first", BigInteger, nullable=False),
    Column("last", BigInteger, nullable=False),
)
writer = Table(
    "writer",
    metadata,
    Column("role", Text, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
)
lease = Table(
    "lease",
    metadata,
    Column("role", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    Column("granted_s", Double),
    Column("session", Boolean, nullable=False),
)
checkpoint = Table(
    "checkpoint",
    metadata,
    Column("consumer", Text, primary_key=True),
    Column("position", BigInteger, nullable=False),
)
snapshot = Table(
    "snapshot",
    metadata,
    Column("projection", Text, primary_key=True),
    Column("fingerprint", Text, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("state", LargeBinary, nullable=False),
    Column("saved_at", DateTime(timezone=True), nullable=False),
    Column("chain", LargeBinary, nullable=False),
)
older_snapshot = Table(
    "older_snapshot",
    metadata,
    Column("projection", Text, primary_key=True),
    Column("fingerprint", Text, primary_key=True),
    Column("position", BigInteger, primary_key=True),
    Column("chain", LargeBinary, nullable=False),
    Column("state", LargeBinary, nullable=False),
    Column("saved_at", DateTime(timezone=True), nullable=False),
)
pod_name = Table(
    "pod_name",
    metadata,
    Column("hash", BigInteger, primary_key=True),
    Column("position", BigInteger, primary_key=True),
)
pod_name_from = Table(
    "pod_name_from",
    metadata,
    Column("position", BigInteger, nullable=False),
    Column("one", Boolean, primary_key=True),
)
projection_mark = Table(
    "projection_mark",
    metadata,
    Column("projection", Text, primary_key=True),
    Column("fingerprint", Text, primary_key=True),
    Column("position", BigInteger, primary_key=True),
    Column("chain", LargeBinary, nullable=False),
    Column("digest", Text, nullable=False),
    Column("made_at", DateTime(timezone=True), nullable=False),
)
schema_works_from = Table(
    "schema_works_from",
    metadata,
    Column("revision", Text, nullable=False),
    Column("one", Boolean, primary_key=True),
)
archived_block = Table(
    "archived_block",
    metadata,
    Column("first", BigInteger, primary_key=True),
    Column("last", BigInteger, nullable=False),
    Column("sha256", LargeBinary, nullable=False),
    Column("data", LargeBinary, nullable=False),
)
archived_stream = Table(
    "archived_stream",
    metadata,
    Column("stream", Text, primary_key=True),
    Column("first_version", BigInteger, primary_key=True),
    Column("last_version", BigInteger, nullable=False),
    Column("block", BigInteger, nullable=False),
)
