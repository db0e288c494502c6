"""Services that log in as members of the log's roles may see its revision, which they check when they start."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Where the roles could not be created there is nobody to grant it to.
GRANT = """
DO $$
BEGIN
    IF (SELECT count(*) FROM pg_roles WHERE rolname IN ('topolog_reader', 'topolog_writer')) < 2 THEN RETURN; END IF;
    GRANT SELECT ON alembic_version TO topolog_reader, topolog_writer;
END $$;
"""


def upgrade() -> None:
    op.get_bind().exec_driver_sql(GRANT)


def downgrade() -> None:
    raise NotImplementedError("a log is never migrated backwards; restore a backup instead")
