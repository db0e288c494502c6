"""Where archived facts stand: compressed blocks in place of partitions of rows, and which block holds what of a stream.

Readers go on from rows to blocks by themselves. Only the owner writes here (`topolog log archive`, `topolog log redact`).
"""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE archived_block (
    first bigint PRIMARY KEY, last bigint NOT NULL CHECK (last >= first), sha256 bytea NOT NULL, data bytea NOT NULL
);
ALTER TABLE archived_block ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE TABLE archived_stream (
    stream text NOT NULL, first_version bigint NOT NULL, last_version bigint NOT NULL, block bigint NOT NULL,
    PRIMARY KEY (stream, first_version)
);
"""

GRANTS = """
DO $$
BEGIN
    IF (SELECT count(*) FROM pg_roles WHERE rolname IN ('topolog_reader', 'topolog_writer')) < 2 THEN RETURN; END IF;
    GRANT SELECT ON archived_block, archived_stream TO topolog_reader, topolog_writer;
END $$;
"""


def upgrade() -> None:
    for script in (TABLES, GRANTS):
        op.get_bind().exec_driver_sql(f"DO $run$ BEGIN EXECUTE $script${script}$script$; END $run$")


def downgrade() -> None:
    raise NotImplementedError("a log is never migrated backwards; restore a backup instead")
