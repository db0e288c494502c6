"""Remember commit ids only of commits that expect no version, in 20 characters each, and drop an index that no query uses.

A commit that expects version n of a stream and is sent again finds its event there, at version n + 1: `topolog_commit_at` returns
its positions. Any other is in `commit_seen` by the first 120 bits of the id's SHA-256 (`topolog_commit_key`); rows of earlier
migrations have the whole id. A pod's ids took 1.7 KB with their index, and take 0.5 KB. The functions of earlier releases, of
pruning, and of lost histories know both forms from here on.
"""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

# Both are STABLE so that Postgres inlines the first. A commit has at most 2,000 events (`limits.py`).
FIND = """
CREATE FUNCTION topolog_commit_key(id text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT encode(substring(sha256(convert_to(id, 'UTF8')) FOR 15), 'base64')
$$;

CREATE FUNCTION topolog_commit_at(the_stream text, the_version bigint, id text, OUT first bigint, OUT last bigint)
LANGUAGE plpgsql STABLE SET search_path = public, pg_temp AS $$
DECLARE
    place bigint;
BEGIN
    SELECT f.position INTO place FROM fact f WHERE f.stream = the_stream AND f.version = the_version AND f.commit_id = id;
    IF FOUND THEN
        SELECT min(f.position), max(f.position) INTO first, last
            FROM fact f WHERE f.position BETWEEN place - 2000 AND place + 2000 AND f.commit_id = id;
    END IF;
END $$;
"""

# As in 0012, but the versions that a commit expects show whether it was appended before.
APPEND = """
CREATE OR REPLACE FUNCTION topolog_append(
    ids text[], roles text[], epochs bigint[], times_us bigint[], correlations text[], causations bigint[], traces text[],
    places bigint[], place_chains bytea[], follows integer[], last_draft integer[],
    streams text[], expected bigint[], types text[], schemas integer[], payloads bytea[], notify boolean,
    OUT outcome integer[], OUT firsts bigint[], OUT lasts bigint[], OUT blamed integer[], OUT actual bigint[],
    OUT versions bigint[]
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    start bigint; head bigint; edge bigint; margin bigint; link bytea; current bigint; stands bigint; seen_first bigint;
    seen_last bigint; first_draft integer; until integer := 0; unfollowed boolean; by_version boolean;
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
        by_version := false; seen_first := NULL;
        FOR d IN first_draft .. until LOOP
            IF expected[d] >= 0 THEN
                by_version := true;
                SELECT h.version INTO stands FROM stream_head h WHERE h.stream = streams[d];
                versions[d] := stands;
                IF stands > expected[d] THEN
                    SELECT s.first, s.last INTO seen_first, seen_last
                        FROM topolog_commit_at(streams[d], expected[d] + 1, ids[c]) s;
                    EXIT WHEN seen_first IS NOT NULL;
                END IF;
            END IF;
        END LOOP;
        IF NOT by_version THEN
            SELECT s.first, s.last INTO seen_first, seen_last FROM commit_seen s
                WHERE s.commit_id IN (topolog_commit_key(ids[c]), ids[c]);
        END IF;
        IF seen_first IS NOT NULL THEN
            outcome[c] := 1; firsts[c] := seen_first; lasts[c] := seen_last;
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
            IF expected[d] >= 0 OR unfollowed OR places[c] = 0 THEN
                IF expected[d] >= 0 THEN
                    stands := versions[d];
                ELSE
                    SELECT h.version INTO stands FROM stream_head h WHERE h.stream = streams[d];
                END IF;
                IF stands IS NULL THEN
                    SELECT p.version INTO stands FROM pruned_stream p WHERE p.id = md5(streams[d])::uuid;
                    IF FOUND AND expected[d] < 0 AND places[c] = 0 THEN
                        blamed[c] := d; actual[c] := stands;
                        CONTINUE commits;
                    END IF;
                END IF;
                stands := coalesce(stands, 0);
                IF unfollowed OR (expected[d] >= 0 AND expected[d] <> stands) THEN
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
            UPDATE stream_head h SET version = h.version + 1 WHERE h.stream = streams[d] RETURNING h.version INTO stands;
            IF NOT FOUND THEN
                INSERT INTO stream_head AS h (stream, version)
                    VALUES (streams[d], 1 + coalesce(
                        (SELECT p.version FROM pruned_stream p WHERE p.id = md5(streams[d])::uuid), 0))
                    RETURNING h.version INTO stands;
            END IF;
            versions[d] := stands;
            link := sha256(link || topolog_body(head, streams[d], stands, types[d], schemas[d], payloads[d], times_us[c],
                                                roles[c], epochs[c], ids[c], correlations[c], causations[c], traces[c]));
            INSERT INTO fact (position, stream, version, type, schema, payload, time_us, role, epoch, commit_id,
                              correlation, causation, trace, chain)
                VALUES (head, streams[d], stands, types[d], schemas[d], payloads[d], times_us[c], roles[c], epochs[c], ids[c],
                        correlations[c], causations[c], traces[c], link);
        END LOOP;
        IF NOT by_version THEN
            INSERT INTO commit_seen (commit_id, first, last) VALUES (topolog_commit_key(ids[c]), firsts[c], head);
        END IF;
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

# As in 0013.
APPEND_ONE = """
CREATE OR REPLACE FUNCTION topolog_append(
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
           AND (the_expected >= 0 OR NOT EXISTS (
               SELECT 1 FROM commit_seen c WHERE c.commit_id IN (topolog_commit_key(the_id), the_id)))
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
         seen AS (INSERT INTO commit_seen (commit_id, first, last)
                  SELECT topolog_commit_key(the_id), head, head WHERE the_expected < 0),
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

_LOST = "NOT EXISTS (SELECT 1 FROM commit_seen WHERE commit_id = the_commit)"
# Function, part of its text, and what replaces it.
OTHERS = (
    ("topolog_append", "s.commit_id = u.id", "s.commit_id IN (topolog_commit_key(u.id), u.id)"),
    ("topolog_prune", "= ANY(ids)", "= ANY(ids || ARRAY(SELECT topolog_commit_key(i) FROM unnest(ids) AS i))"),
    (
        "topolog_history_lost",
        _LOST,
        _LOST.replace("= the_commit", "IN (topolog_commit_key(the_commit), the_commit)")
        + " AND EXISTS (SELECT 1 FROM fact WHERE position = the_position AND commit_id <> the_commit)",
    ),
)
REPLACE = """
DO $do$
DECLARE
    f oid;
BEGIN
    FOR f IN SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND p.proname = '{name}'
                 AND position('{old}' IN p.prosrc) > 0 LOOP
        EXECUTE replace(pg_get_functiondef(f), '{old}', '{new}');
    END LOOP;
END $do$;
"""

RIGHTS = """
DROP INDEX fact_correlation;
REVOKE ALL ON FUNCTION topolog_commit_at(text, bigint, text) FROM PUBLIC;
"""


def upgrade() -> None:
    others = [REPLACE.format(name=name, old=old, new=new) for name, old, new in OTHERS]
    for script in (FIND, APPEND, APPEND_ONE, *others, RIGHTS):
        op.get_bind().exec_driver_sql(f"DO $run$ BEGIN EXECUTE $script${script}$script$; END $run$")


def downgrade() -> None:
    raise NotImplementedError("a log is never migrated backwards; restore a backup instead")
