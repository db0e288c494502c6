"""Append a single commit of one event without arrays. Postgres needs half of the time, and so does the client.

Most appends at a few pods per second are such commits. The function handles only the plain case: the stream was not pruned, the
epoch is the newest, no expectation fails, no partition is to be made. Anything else, refusals too, it leaves to the function of
0012, so that no rule exists twice. The outcome has the form of that function.
"""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

# The row of the counter is locked before the second statement, whose snapshot therefore has all appends before this one.
APPEND = """
CREATE FUNCTION topolog_append(
    the_id text, the_role text, the_epoch bigint, the_time bigint, the_correlation text, the_causation bigint, the_trace text,
    the_place bigint, place_chain bytea, the_stream text, the_expected bigint, the_type text, the_schema integer,
    the_payload bytea, notify boolean,
    OUT outcome integer[], OUT firsts bigint[], OUT lasts bigint[], OUT blamed integer[], OUT actual bigint[],
    OUT versions bigint[]
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    head bigint; full_from bigint; link bytea; stands bigint; plain boolean;
BEGIN
    SELECT c.position + 1, c.partitioned_to - c.partition_size * c.ahead, c.chain INTO STRICT head, full_from, link
        FROM counter c FOR UPDATE;
    SELECT s.version,
           head <= full_from AND the_epoch > 0 AND s.epoch = the_epoch
           AND (the_expected < 0 OR the_expected = s.version - 1)
           AND (s.version > 1 OR NOT EXISTS (SELECT 1 FROM pruned_stream p WHERE p.id = md5(the_stream)::uuid))
           AND NOT EXISTS (SELECT 1 FROM commit_seen c WHERE c.commit_id = the_id)
           AND (the_place = 0 OR EXISTS (SELECT 1 FROM fact f WHERE f.position = the_place AND f.chain = place_chain)),
           sha256(link || topolog_body(head, the_stream, s.version, the_type, the_schema, the_payload, the_time, the_role,
                                       the_epoch, the_id, the_correlation, the_causation, the_trace))
        INTO stands, plain, link
        FROM (SELECT coalesce((SELECT h.version FROM stream_head h WHERE h.stream = the_stream), 0) + 1 AS version,
                     (SELECT w.epoch FROM writer w WHERE w.role = the_role) AS epoch) s;
    IF plain IS NOT TRUE THEN
        SELECT a.* INTO outcome, firsts, lasts, blamed, actual, versions
            FROM topolog_append(
                ARRAY[the_id], ARRAY[the_role], ARRAY[the_epoch], ARRAY[the_time], ARRAY[the_correlation], ARRAY[the_causation],
                ARRAY[the_trace], ARRAY[the_place], ARRAY[place_chain], ARRAY[0], ARRAY[1], ARRAY[the_stream],
                ARRAY[the_expected], ARRAY[the_type], ARRAY[the_schema], ARRAY[the_payload], notify) a;
        RETURN;
    END IF;
    WITH stream AS (INSERT INTO stream_head (stream, version) VALUES (the_stream, stands)
                    ON CONFLICT (stream) DO UPDATE SET version = excluded.version),
         seen AS (INSERT INTO commit_seen (commit_id, first, last) VALUES (the_id, head, head)),
         counted AS (UPDATE counter SET position = head, chain = link)
    INSERT INTO fact (position, stream, version, type, schema, payload, time_us, role, epoch, commit_id,
                      correlation, causation, trace, chain)
        VALUES (head, the_stream, stands, the_type, the_schema, the_payload, the_time, the_role, the_epoch, the_id,
                the_correlation, the_causation, the_trace, link);
    IF notify THEN PERFORM pg_notify('topolog_head', head::text); END IF;
    outcome := ARRAY[0]; firsts := ARRAY[head]; lasts := firsts; blamed := outcome; actual := ARRAY[0::bigint];
    versions := ARRAY[stands];
END $$;
"""

_SIGNATURE = """topolog_append(text, text, bigint, bigint, text, bigint, text, bigint, bytea, text, bigint, text, integer, bytea,
    boolean)"""

GRANTS = f"""
REVOKE ALL ON FUNCTION {_SIGNATURE} FROM PUBLIC;
DO $$
BEGIN
    IF (SELECT count(*) FROM pg_roles WHERE rolname IN ('topolog_reader', 'topolog_writer')) < 2 THEN RETURN; END IF;
    GRANT EXECUTE ON FUNCTION {_SIGNATURE} TO topolog_writer;
END $$;
"""


def upgrade() -> None:
    for script in (APPEND, GRANTS):
        op.get_bind().exec_driver_sql(f"DO $run$ BEGIN EXECUTE $script${script}$script$; END $run$")


def downgrade() -> None:
    raise NotImplementedError("a log is never migrated backwards; restore a backup instead")
