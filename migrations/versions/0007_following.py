"""A commit may follow another of its batch: it is appended only where that one was, in the same transaction.

Versions alone do not tell: a reservation that was decided with the one before it in mind expects the version that this one makes,
and another's fact may have made the same. So several reservations on one node go in one statement. The functions of the releases
before remain, for services that still run while the new one is rolled out.
"""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

# `follows` holds for each commit the index of the one that must have been appended, 0 for none, -1 for one that the batch lacks.
# Where it was not, that is a conflict (outcome 2) that blames the first draft.
APPEND = """
CREATE FUNCTION topolog_append(
    commit_ids text[], id_root integer[], roles text[], role_root integer[], epochs bigint[], times_us bigint[],
    correlations text[], causations bigint[], traces text[], first_draft integer[],
    owners integer[], streams text[], stream_root integer[], expected bigint[],
    types text[], schemas integer[], payloads bytea[],
    place_of integer[], places bigint[], place_chains bytea[], follows integer[],
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
        IF follows[c] < 0 OR (follows[c] > 0 AND outcome[follows[c]] <> 0) THEN
            outcome[c] := 2; blamed[c] := d; actual[c] := heads[stream_root[d]];
            CONTINUE;
        END IF;
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

APPEND_OF_0003 = """
CREATE OR REPLACE FUNCTION topolog_append(
    commit_ids text[], id_root integer[], roles text[], role_root integer[], epochs bigint[], times_us bigint[],
    correlations text[], causations bigint[], traces text[], first_draft integer[],
    owners integer[], streams text[], stream_root integer[], expected bigint[],
    types text[], schemas integer[], payloads bytea[],
    place_of integer[], places bigint[], place_chains bytea[],
    OUT outcome integer[], OUT firsts bigint[], OUT lasts bigint[], OUT blamed integer[], OUT actual bigint[],
    OUT versions bigint[]
) LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT * FROM topolog_append(commit_ids, id_root, roles, role_root, epochs, times_us, correlations, causations, traces,
        first_draft, owners, streams, stream_root, expected, types, schemas, payloads,
        place_of, places, place_chains, array_fill(0, ARRAY[cardinality(commit_ids)]))
$$;
"""

GRANTS = """
REVOKE ALL ON FUNCTION topolog_append(text[], integer[], text[], integer[], bigint[], bigint[], text[], bigint[], text[],
    integer[], integer[], text[], integer[], bigint[], text[], integer[], bytea[], integer[], bigint[], bytea[], integer[])
    FROM PUBLIC;
DO $$
BEGIN
    IF (SELECT count(*) FROM pg_roles WHERE rolname IN ('topolog_reader', 'topolog_writer')) < 2 THEN RETURN; END IF;
    GRANT EXECUTE ON FUNCTION topolog_append(text[], integer[], text[], integer[], bigint[], bigint[], text[], bigint[], text[],
    integer[], integer[], text[], integer[], bigint[], text[], integer[], bytea[], integer[], bigint[], bytea[], integer[])
        TO topolog_writer;
END $$;
"""


def upgrade() -> None:
    for script in (APPEND, APPEND_OF_0003, GRANTS):
        op.get_bind().exec_driver_sql(f"DO $run$ BEGIN EXECUTE $script${script}$script$; END $run$")


def downgrade() -> None:
    raise NotImplementedError("a log is never migrated backwards; restore a backup instead")
