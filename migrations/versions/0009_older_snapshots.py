"""Older snapshots: the newest stays in `snapshot`, earlier ones let questions start near their answer.

A release before 0009 reads and writes `snapshot` alone, so it works on this schema, too.
"""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE older_snapshot (
    projection text NOT NULL, fingerprint text NOT NULL, position bigint NOT NULL, chain bytea NOT NULL,
    state bytea NOT NULL, saved_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (projection, fingerprint, position)
);
"""

GRANTS = """
DO $$
BEGIN
    IF (SELECT count(*) FROM pg_roles WHERE rolname IN ('topolog_reader', 'topolog_writer')) < 2 THEN RETURN; END IF;
    GRANT SELECT ON older_snapshot TO topolog_reader, topolog_writer;
    GRANT INSERT, UPDATE, DELETE ON older_snapshot TO topolog_writer;
END $$;
"""


def upgrade() -> None:
    for script in (TABLES, GRANTS):
        op.get_bind().exec_driver_sql(f"DO $run$ BEGIN EXECUTE $script${script}$script$; END $run$")


def downgrade() -> None:
    raise NotImplementedError("a log is never migrated backwards; restore a backup instead")
