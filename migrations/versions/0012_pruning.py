"""Prune archived blocks behind a horizon: their events are in files, and a compact row of each ended stream stays.

`pruned` says up to which position, and where the files are. `pruned_stream` keeps the version of a stream that ended behind the
horizon, so that a late commit meets the version that it had met before. `topolog_prune` does one block, and only what every
consumer has passed; role `topolog_pruner` may call it and read, nothing else. The append function continues a pruned stream at
its version. Releases before 0012 do not know pruned streams: the first pruning forbids their start and their append functions.
"""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE pruned (
    position bigint NOT NULL, archive text NOT NULL, one boolean PRIMARY KEY DEFAULT true CHECK (one)
);
INSERT INTO pruned (position, archive) VALUES (0, '');
CREATE TABLE pruned_stream (id uuid PRIMARY KEY, version bigint NOT NULL, last bigint NOT NULL);
"""

# As in 0011, but a stream without a head continues a pruned one. A commit that expects no version and names no place of this
# history cannot be told from one that was sent before the horizon, so a pruned stream refuses it (outcome 2).
APPEND = """
CREATE OR REPLACE FUNCTION topolog_append(
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
            IF expected[d] >= 0 OR unfollowed OR places[c] = 0 THEN
                SELECT h.version INTO stands FROM stream_head h WHERE h.stream = streams[d];
                IF NOT FOUND THEN
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

# `ids` are the commits of the block, `in_block` its streams from `first_versions` on. `ended` are streams without events after the
# block, at `versions`. `kept` are positions that stay as blocks of one event: its last, where readers begin, and those of stream
# `log`, which every start reads (`log_versions`, 0 for the last). Without a
# block only the place of the files changes.
PRUNE = """
CREATE FUNCTION topolog_prune(
    block bigint, the_archive text, ids text[], in_block text[], first_versions bigint[], ended text[], versions bigint[],
    kept bigint[], hashes bytea[], datas bytea[], log_versions bigint[]
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    edge bigint; late text;
BEGIN
    IF block IS NULL THEN
        UPDATE pruned SET archive = the_archive WHERE archive <> the_archive;
        RETURN;
    END IF;
    SELECT b.last INTO STRICT edge FROM archived_block b WHERE b.first = block;
    SELECT n.name INTO late FROM topolog_unpassed(edge) AS n(name) LIMIT 1;
    IF FOUND THEN RAISE EXCEPTION '% has not passed position %', late, edge USING ERRCODE = 'object_in_use'; END IF;
    UPDATE pruned SET position = edge, archive = the_archive WHERE position = block - 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'position % is not the first that is not pruned', block USING ERRCODE = 'object_in_use';
    END IF;
    IF block = 1 THEN
        UPDATE schema_works_from SET revision = '0012' WHERE revision < '0012';
        DROP FUNCTION IF EXISTS topolog_append(text[], integer[], text[], integer[], bigint[], bigint[], text[], bigint[], text[],
            integer[], integer[], text[], integer[], bigint[], text[], integer[], bytea[]);
        DROP FUNCTION IF EXISTS topolog_append(text[], integer[], text[], integer[], bigint[], bigint[], text[], bigint[], text[],
            integer[], integer[], text[], integer[], bigint[], text[], integer[], bytea[], integer[], bigint[], bytea[]);
        DROP FUNCTION IF EXISTS topolog_append(text[], integer[], text[], integer[], bigint[], bigint[], text[], bigint[], text[],
            integer[], integer[], text[], integer[], bigint[], text[], integer[], bytea[], integer[], bigint[], bytea[], integer[]);
    END IF;
    WITH gone AS (
        DELETE FROM stream_head h USING unnest(ended, versions) AS e(stream, version)
            WHERE h.stream = e.stream AND h.version = e.version RETURNING h.stream, h.version)
    INSERT INTO pruned_stream (id, version, last) SELECT md5(gone.stream)::uuid, gone.version, edge FROM gone
        ON CONFLICT (id) DO UPDATE SET version = excluded.version, last = excluded.last;
    DELETE FROM commit_seen s WHERE s.commit_id = ANY(ids) AND s.last <= edge;
    DELETE FROM archived_stream a USING unnest(in_block, first_versions) AS s(stream, version)
        WHERE a.stream = s.stream AND a.first_version = s.version;
    DELETE FROM archived_block b WHERE b.first = block
        OR (b.first = block - 1 AND b.last = block - 1
            AND NOT EXISTS (SELECT 1 FROM archived_stream a WHERE a.stream = 'log' AND a.block = b.first));
    INSERT INTO archived_block (first, last, sha256, data)
        SELECT k.position, k.position, k.hash, k.data FROM unnest(kept, hashes, datas) AS k(position, hash, data);
    INSERT INTO archived_stream (stream, first_version, last_version, block)
        SELECT 'log', k.version, k.version, k.position FROM unnest(kept, log_versions) AS k(position, version) WHERE k.version > 0;
END $$;
"""

# What keeps a position from being pruned: consumers that have not passed it, and projections without a checkpoint after it, from
# which a release with other code starts.
UNPASSED = """
CREATE FUNCTION topolog_unpassed(edge bigint) RETURNS SETOF text LANGUAGE sql STABLE
SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT 'consumer ' || c.consumer FROM checkpoint c WHERE c.position <= edge
    UNION ALL
    SELECT 'projection ' || p.projection FROM (SELECT DISTINCT split_part(projection, '.', 1) FROM snapshot) AS p(projection)
        WHERE NOT EXISTS (
            SELECT 1 FROM snapshot s WHERE s.projection = p.projection || '.checkpoint' AND s.position > edge)
    UNION ALL
    SELECT 'no checkpoint' WHERE NOT EXISTS (
        SELECT 1 FROM snapshot s WHERE s.projection LIKE '%.checkpoint' AND s.position > edge)
$$;
"""

# Of a commit that the log acknowledged before the horizon nothing is known.
LOST = """
CREATE OR REPLACE FUNCTION topolog_history_lost(
    the_timeline integer, followed integer, the_position bigint, the_chain bytea, the_commit text
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    head bigint;
BEGIN
    SELECT position INTO head FROM counter WHERE timeline = the_timeline FOR UPDATE;
    IF NOT FOUND THEN RETURN NULL; END IF;
    IF the_position > head OR followed > the_timeline
       OR (the_commit <> '' AND the_position > (SELECT position FROM pruned)
           AND NOT EXISTS (SELECT 1 FROM commit_seen WHERE commit_id = the_commit))
       OR (the_chain <> '' AND EXISTS (SELECT 1 FROM fact WHERE position = the_position AND chain NOT IN ('', the_chain))) THEN
        UPDATE counter SET timeline = greatest(timeline, followed);
        RETURN topolog_begin_timeline();
    END IF;
    RETURN NULL;
END $$;
"""

_PRUNE = """topolog_prune(bigint, text, text[], text[], bigint[], text[], bigint[], bigint[], bytea[], bytea[], bigint[])"""

GRANTS = f"""
REVOKE ALL ON FUNCTION {_PRUNE}, topolog_unpassed(bigint) FROM PUBLIC;
DO $$
BEGIN
    IF (SELECT count(*) FROM pg_roles WHERE rolname IN ('topolog_reader', 'topolog_writer')) < 2 THEN RETURN; END IF;
    GRANT SELECT ON pruned, pruned_stream TO topolog_reader, topolog_writer;
    GRANT EXECUTE ON FUNCTION topolog_unpassed(bigint) TO topolog_reader;
    BEGIN
        IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'topolog_pruner') THEN
            CREATE ROLE topolog_pruner NOLOGIN IN ROLE topolog_reader;
        END IF;
        GRANT EXECUTE ON FUNCTION {_PRUNE} TO topolog_pruner;
    EXCEPTION
        WHEN insufficient_privilege OR undefined_object THEN
            RAISE NOTICE 'topolog: no right to create roles; the owner prunes';
        WHEN duplicate_object OR unique_violation THEN
            GRANT EXECUTE ON FUNCTION {_PRUNE} TO topolog_pruner;
    END;
END $$;
"""


def upgrade() -> None:
    for script in (TABLES, APPEND, UNPASSED, PRUNE, LOST, GRANTS):
        op.get_bind().exec_driver_sql(f"DO $run$ BEGIN EXECUTE $script${script}$script$; END $run$")


def downgrade() -> None:
    raise NotImplementedError("a log is never migrated backwards; restore a backup instead")
