"""Append commits in loops of plain statements. The few commits of a usual batch take half of Postgres' time.

The function of 0007 builds sets from arrays with about 15 statements a batch, which is faster only from ten commits on. Checks,
outcomes and chain are the same. `notify` wakes the listeners, so that a writer can wake them once for several batches. The
earlier functions remain for services of earlier releases; they notify in every batch.
"""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

# Arrays are parallel; commit c has the drafts after those of the commit before it, up to `last_draft[c]`. `places` are where
# commits were decided, 0 for none. `follows` holds the index of the commit that must have been appended, 0 for none, -1 for one
# that the batch lacks. Outcomes: 0 appended, 1 duplicate, 2 conflict (`blamed` is the draft's index, 0 the place), 3 fenced.
APPEND = """
CREATE FUNCTION topolog_append(
    ids text[], roles text[], epochs bigint[], times_us bigint[], correlations text[], causations bigint[], traces text[],
    places bigint[], place_chains bytea[], follows integer[], last_draft integer[],
    streams text[], expected bigint[], types text[], schemas integer[], payloads bytea[], notify boolean,
    OUT outcome integer[], OUT firsts bigint[], OUT lasts bigint[], OUT blamed integer[], OUT actual bigint[],
    OUT versions bigint[]
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    start bigint; head bigint; edge bigint; margin bigint; link bytea; current bigint; stands bigint; seen commit_seen;
    first_draft integer; until integer := 0; unfollowed boolean;
BEGIN
    SELECT c.position, c.partitioned_to, c.partition_size * c.ahead, c.chain INTO STRICT start, edge, margin, link
        FROM counter c FOR UPDATE;
    head := start;
    outcome := array_fill(2, ARRAY[cardinality(ids)]); blamed := array_fill(0, ARRAY[cardinality(ids)]);
    firsts := array_fill(0::bigint, ARRAY[cardinality(ids)]); lasts := firsts; actual := firsts;
    versions := array_fill(0::bigint, ARRAY[cardinality(streams)]);

    <<commits>>
    FOR c IN 1 .. cardinality(ids) LOOP
        first_draft := until + 1; until := last_draft[c];
        SELECT * INTO seen FROM commit_seen s WHERE s.commit_id = ids[c];
        IF FOUND THEN
            outcome[c] := 1; firsts[c] := seen.first; lasts[c] := seen.last;
            CONTINUE;
        END IF;
        SELECT w.epoch INTO current FROM writer w WHERE w.role = roles[c];
        IF epochs[c] > 0 AND epochs[c] < current THEN
            outcome[c] := 3; actual[c] := current;
            CONTINUE;
        END IF;
        IF places[c] > 0
           AND NOT EXISTS (SELECT 1 FROM fact f WHERE f.position = places[c] AND f.chain = place_chains[c]) THEN
            actual[c] := start;
            CONTINUE;
        END IF;
        unfollowed := follows[c] < 0 OR (follows[c] > 0 AND outcome[follows[c]] <> 0);
        FOR d IN first_draft .. until LOOP
            IF expected[d] >= 0 OR unfollowed THEN
                SELECT h.version INTO stands FROM stream_head h WHERE h.stream = streams[d];
                stands := coalesce(stands, 0);
                IF unfollowed OR expected[d] <> stands THEN
                    blamed[c] := d; actual[c] := stands;
                    CONTINUE commits;
                END IF;
            END IF;
        END LOOP;
        outcome[c] := 0; firsts[c] := head + 1; lasts[c] := head + until - first_draft + 1;
        IF lasts[c] + margin > edge THEN
            BEGIN
                PERFORM topolog_roll(lasts[c]);
                edge := lasts[c] + margin;
            EXCEPTION WHEN lock_not_available THEN
                IF lasts[c] > edge THEN RAISE; END IF;
                margin := 0;
            END;
        END IF;
        FOR d IN first_draft .. until LOOP
            head := head + 1;
            INSERT INTO stream_head AS h (stream, version) VALUES (streams[d], 1)
                ON CONFLICT (stream) DO UPDATE SET version = h.version + 1 RETURNING h.version INTO stands;
            versions[d] := stands;
            link := sha256(link || topolog_body(head, streams[d], stands, types[d], schemas[d], payloads[d], times_us[c],
                                                roles[c], epochs[c], ids[c], correlations[c], causations[c], traces[c]));
            INSERT INTO fact (position, stream, version, type, schema, payload, time_us, role, epoch, commit_id,
                              correlation, causation, trace, chain)
                VALUES (head, streams[d], stands, types[d], schemas[d], payloads[d], times_us[c], roles[c], epochs[c], ids[c],
                        correlations[c], causations[c], traces[c], link);
        END LOOP;
        INSERT INTO commit_seen (commit_id, first, last) VALUES (ids[c], firsts[c], head);
        IF epochs[c] > coalesce(current, 0) THEN
            INSERT INTO writer AS w (role, epoch) VALUES (roles[c], epochs[c])
                ON CONFLICT (role) DO UPDATE SET epoch = excluded.epoch WHERE w.epoch < excluded.epoch;
        END IF;
    END LOOP;

    IF head = start THEN RETURN; END IF;
    UPDATE counter SET position = head, chain = link;
    IF notify THEN PERFORM pg_notify('topolog_head', head::text); END IF;
END $$;
"""

_SIGNATURE = """topolog_append(text[], text[], bigint[], bigint[], text[], bigint[], text[], bigint[], bytea[], integer[],
    integer[], text[], bigint[], text[], integer[], bytea[], boolean)"""

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
