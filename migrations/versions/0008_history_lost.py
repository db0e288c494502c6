"""A reader that had read more than the log holds now begins a timeline: a replica that lagged was promoted, or a backup was
restored without a word. Until the cluster is listed on it nothing is decided; leases end, and every epoch rises by one.

The database looks itself whether it lacks what the reader had. Two readers that notice the same begin one timeline.
"""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

# NULL: another timeline has begun since, or nothing is missing (a proxy answered from a replica that lagged for a moment). Of
# rows that are archived, or older than chains, nothing is said.
LOST = """
CREATE FUNCTION topolog_history_lost(
    the_timeline integer, followed integer, the_position bigint, the_chain bytea, the_commit text
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    head bigint;
BEGIN
    SELECT position INTO head FROM counter WHERE timeline = the_timeline FOR UPDATE;
    IF NOT FOUND THEN RETURN NULL; END IF;
    IF the_position > head OR followed > the_timeline
       OR (the_commit <> '' AND NOT EXISTS (SELECT 1 FROM commit_seen WHERE commit_id = the_commit))
       OR (the_chain <> '' AND EXISTS (SELECT 1 FROM fact WHERE position = the_position AND chain NOT IN ('', the_chain))) THEN
        UPDATE counter SET timeline = greatest(timeline, followed);
        RETURN topolog_begin_timeline();
    END IF;
    RETURN NULL;
END $$;
"""

GRANTS = """
REVOKE ALL ON FUNCTION topolog_history_lost(integer, integer, bigint, bytea, text) FROM PUBLIC;
DO $$
BEGIN
    IF (SELECT count(*) FROM pg_roles WHERE rolname IN ('topolog_reader', 'topolog_writer')) < 2 THEN RETURN; END IF;
    GRANT EXECUTE ON FUNCTION topolog_history_lost(integer, integer, bigint, bytea, text) TO topolog_writer;
END $$;
"""


def upgrade() -> None:
    for script in (LOST, GRANTS):
        op.get_bind().exec_driver_sql(f"DO $run$ BEGIN EXECUTE $script${script}$script$; END $run$")


def downgrade() -> None:
    raise NotImplementedError("a log is never migrated backwards; restore a backup instead")
