"""Marks: what folds promised at which place, by the code that folded; and with which older code a schema still works.

`schema_works_from` has one row, the oldest revision whose code works on the schema as it is. A migration that an older release
cannot live with raises it in the same transaction; one that only adds leaves it, so that old replicas may start again while
new ones take their place, and a release can be rolled back.
"""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE projection_mark (
    projection text NOT NULL, fingerprint text NOT NULL, position bigint NOT NULL, chain bytea NOT NULL, digest text NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (projection, fingerprint, position)
);
CREATE TABLE schema_works_from (revision text NOT NULL, one boolean PRIMARY KEY DEFAULT true CHECK (one));
INSERT INTO schema_works_from (revision) VALUES ('0006');
"""

GRANTS = """
DO $$
BEGIN
    IF (SELECT count(*) FROM pg_roles WHERE rolname IN ('topolog_reader', 'topolog_writer')) < 2 THEN RETURN; END IF;
    GRANT SELECT ON projection_mark, schema_works_from TO topolog_reader, topolog_writer;
    GRANT INSERT, UPDATE, DELETE ON projection_mark TO topolog_writer;
END $$;
"""


def upgrade() -> None:
    for script in (TABLES, GRANTS):
        op.get_bind().exec_driver_sql(f"DO $run$ BEGIN EXECUTE $script${script}$script$; END $run$")


def downgrade() -> None:
    raise NotImplementedError("a log is never migrated backwards; restore a backup instead")
