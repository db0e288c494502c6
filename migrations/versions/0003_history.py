"""The history of a log becomes part of its identity: a hash chain over facts, and places of it that decisions and snapshots name.

What `chain` holds is told in `shared/eventlog/chain.py`. Rows that are older keep an empty one: the counter starts with the chain
over all of them, so that the first new row vouches for them too, and nothing is rewritten. The function of the release before
remains, for services that still run while the new one is rolled out.
"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

COLUMNS = """
ALTER TABLE fact ADD COLUMN chain bytea NOT NULL DEFAULT '';
ALTER TABLE counter ADD COLUMN chain bytea NOT NULL DEFAULT '';
ALTER TABLE snapshot ADD COLUMN chain bytea NOT NULL DEFAULT '';

CREATE FUNCTION topolog_body(
    place bigint, stream text, version bigint, type text, schema integer, payload bytea, time_us bigint, role text, epoch bigint,
    commit_id text, correlation text, causation bigint, trace text
) RETURNS bytea LANGUAGE sql STABLE AS $$
    SELECT sha256(payload) || convert_to(
        concat_ws(',', place, version, schema, time_us, epoch, causation, length(stream), length(type), length(role),
                  length(commit_id), length(correlation), length(trace))
        || ':' || stream || type || role || commit_id || correlation || trace, 'UTF8')
$$;
"""

OLDER_ROWS = """
DO $chain$
DECLARE
    old fact; link bytea := '';
BEGIN
    PERFORM 1 FROM counter FOR UPDATE;
    FOR old IN SELECT * FROM fact ORDER BY position LOOP
        link := sha256(link || topolog_body(old.position, old.stream, old.version, old.type, old.schema, old.payload, old.time_us,
                                            old.role, old.epoch, old.commit_id, old.correlation, old.causation, old.trace));
    END LOOP;
    UPDATE counter SET chain = link;
END $chain$;
"""

# `places` are those that commits of the batch were decided at; `place_of` holds the index for each commit, 0 for none. A commit
# decided at a place that this history lacks is a conflict (outcome 2) that blames no draft (0).
APPEND = """
CREATE FUNCTION topolog_append(
    commit_ids text[], id_root integer[], roles text[], role_root integer[], epochs bigint[], times_us bigint[],
    correlations text[], causations bigint[], traces text[], first_draft integer[],
    owners integer[], streams text[], stream_root integer[], expected bigint[],
    types text[], schemas integer[], payloads bytea[],
    place_of integer[], places bigint[], place_chains bytea[],
    OUT outcome integer[], OUT firsts bigint[], OUT lasts bigint[], OUT blamed integer[], OUT actual bigint[],
    OUT versions bigint[]
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    commits integer := cardinality(commit_ids);
    drafts integer := cardinality(streams);
    positions bigint[] := array_fill(NULL::bigint, ARRAY[drafts]);
    seen_first bigint[]; seen_last bigint[]; heads bigint[]; current bigint[];
    head bigint; edge bigint; margin bigint; start bigint; d integer; r integer; last_draft integer; raised boolean := false;
    held boolean[]; bodies bytea[]; links bytea[]; link bytea;
BEGIN
    SELECT position, partitioned_to, partition_size * ahead, chain INTO STRICT head, edge, margin, link FROM counter FOR UPDATE;
    start := head;
    SELECT array_agg((SELECT s.first FROM commit_seen s WHERE s.commit_id = u.id) ORDER BY u.i),
           array_agg((SELECT s.last FROM commit_seen s WHERE s.commit_id = u.id) ORDER BY u.i),
           array_agg(CASE WHEN u.root = u.i THEN (SELECT w.epoch FROM writer w WHERE w.role = u.role) END ORDER BY u.i)
        INTO seen_first, seen_last, current
        FROM unnest(commit_ids, roles, role_root) WITH ORDINALITY AS u(id, role, root, i);
    SELECT array_agg(CASE WHEN u.root = u.i
                     THEN coalesce((SELECT h.version FROM stream_head h WHERE h.stream = u.s), 0) ELSE 0 END ORDER BY u.i)
        INTO heads FROM unnest(streams, stream_root) WITH ORDINALITY AS u(s, root, i);
    SELECT array_agg(p.position = 0 OR EXISTS (SELECT 1 FROM fact f WHERE f.position = p.position AND f.chain = p.chain)
                     ORDER BY p.i)
        INTO held FROM unnest(places, place_chains) WITH ORDINALITY AS p(position, chain, i);
    outcome := array_fill(0, ARRAY[commits]); firsts := array_fill(0::bigint, ARRAY[commits]); lasts := firsts;
    blamed := outcome; actual := firsts; versions := array_fill(0::bigint, ARRAY[drafts]);

    FOR c IN 1 .. commits LOOP
        last_draft := CASE WHEN c < commits THEN first_draft[c + 1] - 1 ELSE drafts END;
        IF seen_first[id_root[c]] IS NOT NULL THEN
            outcome[c] := 1; firsts[c] := seen_first[id_root[c]]; lasts[c] := seen_last[id_root[c]];
            CONTINUE;
        END IF;
        r := role_root[c];
        IF epochs[c] > 0 AND epochs[c] < current[r] THEN
            outcome[c] := 3; actual[c] := current[r];
            CONTINUE;
        END IF;
        IF place_of[c] > 0 AND NOT held[place_of[c]] THEN
            outcome[c] := 2; actual[c] := start;
            CONTINUE;
        END IF;
        d := first_draft[c];
        WHILE d <= last_draft LOOP
            EXIT WHEN expected[d] >= 0 AND expected[d] <> heads[stream_root[d]];
            d := d + 1;
        END LOOP;
        IF d <= last_draft THEN
            outcome[c] := 2; blamed[c] := d; actual[c] := heads[stream_root[d]];
            CONTINUE;
        END IF;
        IF epochs[c] > coalesce(current[r], 0) THEN
            current[r] := epochs[c]; raised := true;
        END IF;
        firsts[c] := head + 1;
        FOR d IN first_draft[c] .. last_draft LOOP
            r := stream_root[d]; head := head + 1; heads[r] := heads[r] + 1;
            positions[d] := head; versions[d] := heads[r];
        END LOOP;
        lasts[c] := head; seen_first[id_root[c]] := firsts[c]; seen_last[id_root[c]] := head;
    END LOOP;

    IF head = start THEN RETURN; END IF;
    IF head + margin > edge THEN
        BEGIN
            PERFORM topolog_roll(head);
        EXCEPTION WHEN lock_not_available THEN
            IF head > edge THEN RAISE; END IF;
        END;
    END IF;
    SELECT array_agg(topolog_body(n.position, n.stream, n.version, n.type, n.schema, n.payload, k.time_us, k.role, k.epoch, k.id,
                                  k.correlation, k.causation, k.trace) ORDER BY n.i)
        INTO bodies
        FROM unnest(positions, streams, versions, types, schemas, payloads, owners) WITH ORDINALITY
             AS n(position, stream, version, type, schema, payload, owner, i)
        JOIN unnest(commit_ids, roles, epochs, times_us, correlations, causations, traces) WITH ORDINALITY
             AS k(id, role, epoch, time_us, correlation, causation, trace, i) ON k.i = n.owner;
    links := array_fill(NULL::bytea, ARRAY[drafts]);
    FOR d IN 1 .. drafts LOOP
        IF positions[d] IS NOT NULL THEN
            link := sha256(link || bodies[d]); links[d] := link;
        END IF;
    END LOOP;
    INSERT INTO fact (position, stream, version, type, schema, payload, time_us, role, epoch, commit_id,
                      correlation, causation, trace, chain)
        SELECT n.position, n.stream, n.version, n.type, n.schema, n.payload, k.time_us, k.role, k.epoch, k.id,
               k.correlation, k.causation, k.trace, n.link
        FROM unnest(positions, streams, versions, types, schemas, payloads, owners, links)
             AS n(position, stream, version, type, schema, payload, owner, link)
        JOIN unnest(commit_ids, roles, epochs, times_us, correlations, causations, traces) WITH ORDINALITY
             AS k(id, role, epoch, time_us, correlation, causation, trace, i) ON k.i = n.owner
        WHERE n.position IS NOT NULL;
    INSERT INTO stream_head AS h (stream, version)
        SELECT u.stream, u.version FROM unnest(streams, heads, stream_root) WITH ORDINALITY AS u(stream, version, root, i)
        WHERE u.root = u.i AND u.version > 0
        ON CONFLICT (stream) DO UPDATE SET version = excluded.version WHERE h.version <> excluded.version;
    INSERT INTO commit_seen (commit_id, first, last)
        SELECT u.id, u.first, u.last FROM unnest(commit_ids, outcome, firsts, lasts) AS u(id, outcome, first, last)
        WHERE u.outcome = 0;
    IF raised THEN
        INSERT INTO writer AS w (role, epoch)
            SELECT u.role, u.epoch FROM unnest(roles, current, role_root) WITH ORDINALITY AS u(role, epoch, root, i)
            WHERE u.root = u.i AND u.epoch IS NOT NULL
            ON CONFLICT (role) DO UPDATE SET epoch = excluded.epoch WHERE w.epoch < excluded.epoch;
    END IF;
    UPDATE counter SET position = head, chain = link;
    PERFORM pg_notify('topolog_head', head::text);
END $$;
"""

APPEND_OF_0001 = """
CREATE OR REPLACE FUNCTION topolog_append(
    commit_ids text[], id_root integer[], roles text[], role_root integer[], epochs bigint[], times_us bigint[],
    correlations text[], causations bigint[], traces text[], first_draft integer[],
    owners integer[], streams text[], stream_root integer[], expected bigint[],
    types text[], schemas integer[], payloads bytea[],
    OUT outcome integer[], OUT firsts bigint[], OUT lasts bigint[], OUT blamed integer[], OUT actual bigint[],
    OUT versions bigint[]
) LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT * FROM topolog_append(commit_ids, id_root, roles, role_root, epochs, times_us, correlations, causations, traces,
        first_draft, owners, streams, stream_root, expected, types, schemas, payloads,
        array_fill(0, ARRAY[cardinality(commit_ids)]), '{}'::bigint[], '{}'::bytea[])
$$;
"""

# A new timeline ends the leases and raises every epoch: whoever wrote on the timeline before is fenced.
TIMELINE = """
CREATE OR REPLACE FUNCTION topolog_begin_timeline() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    begun integer;
BEGIN
    UPDATE counter SET timeline = timeline + 1 RETURNING timeline INTO begun;
    UPDATE writer SET epoch = epoch + 1;
    UPDATE lease SET expires_at = '-infinity', holder = '';
    RETURN begun;
END $$;
"""

# A lease is at most its length from now whenever anybody looks at it: a clock that was set back shortens it, where it would have
# lasted until the clock is back where it was.
LEASES = """
ALTER TABLE lease ADD COLUMN granted_s double precision;

CREATE OR REPLACE FUNCTION topolog_acquire(the_role text, the_holder text, ttl_s double precision) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    granted bigint; until timestamptz; held lease;
BEGIN
    UPDATE lease l SET expires_at = clock_timestamp() + ttl_s * interval '1 second', granted_s = ttl_s
        WHERE l.role = the_role AND l.holder = the_holder AND l.epoch = (SELECT w.epoch FROM writer w WHERE w.role = the_role)
        RETURNING l.epoch INTO granted;
    IF FOUND THEN RETURN granted; END IF;
    UPDATE lease l SET expires_at = clock_timestamp() + coalesce(l.granted_s, ttl_s) * interval '1 second'
        WHERE l.role = the_role AND l.expires_at > clock_timestamp() + coalesce(l.granted_s, ttl_s) * interval '1 second';
    SELECT * INTO held FROM lease l WHERE l.role = the_role;
    IF FOUND AND held.expires_at > clock_timestamp() AND held.holder <> the_holder THEN RETURN NULL; END IF;

    PERFORM 1 FROM counter FOR UPDATE;
    SELECT * INTO held FROM lease l WHERE l.role = the_role;
    IF FOUND AND held.expires_at > clock_timestamp() AND held.holder <> the_holder THEN RETURN NULL; END IF;
    until := clock_timestamp() + ttl_s * interval '1 second';
    INSERT INTO writer AS w (role, epoch) VALUES (the_role, coalesce(held.epoch, 0) + 1)
        ON CONFLICT (role) DO UPDATE SET epoch = greatest(w.epoch, coalesce(held.epoch, 0)) + 1 RETURNING w.epoch INTO granted;
    INSERT INTO lease AS l (role, holder, epoch, expires_at, granted_s) VALUES (the_role, the_holder, granted, until, ttl_s)
        ON CONFLICT (role) DO UPDATE SET holder = excluded.holder, epoch = excluded.epoch, expires_at = excluded.expires_at,
            granted_s = excluded.granted_s;
    RETURN granted;
END $$;
"""

# A payload that holds NUL characters (JSON may, jsonb may not) or is no JSON at all must not take the view down with it.
JSON_VIEW = """
CREATE FUNCTION topolog_json(payload bytea) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN convert_from(payload, 'UTF8')::jsonb;
EXCEPTION WHEN data_exception OR character_not_in_repertoire THEN
    BEGIN
        RETURN replace(convert_from(payload, 'UTF8'), '\\u0000', '\\ufffd')::jsonb;
    EXCEPTION WHEN data_exception OR character_not_in_repertoire THEN
        RETURN jsonb_build_object('unreadable', encode(payload, 'base64'));
    END;
END $$;
CREATE OR REPLACE VIEW fact_json AS
    SELECT position, stream, version, type, schema, topolog_json(payload) AS payload,
           to_timestamp(time_us / 1000000.0) AS time, role, epoch, commit_id, correlation, causation, trace
    FROM fact;
"""

GRANTS = """
REVOKE ALL ON FUNCTION topolog_append(text[], integer[], text[], integer[], bigint[], bigint[], text[], bigint[], text[],
    integer[], integer[], text[], integer[], bigint[], text[], integer[], bytea[], integer[], bigint[], bytea[]) FROM PUBLIC;
DO $$
BEGIN
    IF (SELECT count(*) FROM pg_roles WHERE rolname IN ('topolog_reader', 'topolog_writer')) < 2 THEN RETURN; END IF;
    GRANT EXECUTE ON FUNCTION topolog_append(text[], integer[], text[], integer[], bigint[], bigint[], text[], bigint[], text[],
        integer[], integer[], text[], integer[], bigint[], text[], integer[], bytea[], integer[], bigint[], bytea[])
        TO topolog_writer;
END $$;
"""


def upgrade() -> None:
    for script in (COLUMNS, OLDER_ROWS, APPEND, APPEND_OF_0001, TIMELINE, LEASES, GRANTS, JSON_VIEW):
        # The driver prepares what it executes, and one prepared statement is one command; EXECUTE takes several.
        op.get_bind().exec_driver_sql(f"DO $run$ BEGIN EXECUTE $script${script}$script$; END $run$")


def downgrade() -> None:
    raise NotImplementedError("a log is never migrated backwards; restore a backup instead")
