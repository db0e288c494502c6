"""The event log: facts, the counter that orders them, heads, seen commits, epochs, leases, checkpoints, snapshots.

The append function decides a whole batch in one statement, under the lock of the counter row: positions are gapless and
become visible in order because no two appends are ever in flight at once. A trigger and the grants keep facts immutable.
"""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE fact (
    position    bigint  NOT NULL PRIMARY KEY,
    stream      text    NOT NULL,
    version     bigint  NOT NULL,
    type        text    NOT NULL,
    schema      integer NOT NULL,
    payload     bytea   NOT NULL,
    time_us     bigint  NOT NULL,
    role        text    NOT NULL,
    epoch       bigint  NOT NULL,
    commit_id   text    NOT NULL,
    correlation text    NOT NULL,
    causation   bigint  NOT NULL,
    trace       text    NOT NULL
) PARTITION BY RANGE (position);

CREATE INDEX fact_stream_version ON fact (stream, version);
CREATE INDEX fact_correlation ON fact (correlation, position) WHERE correlation <> '';

CREATE VIEW fact_json AS
    SELECT position, stream, version, type, schema, convert_from(payload, 'UTF8')::jsonb AS payload,
           to_timestamp(time_us / 1000000.0) AS time, role, epoch, commit_id, correlation, causation, trace
    FROM fact;

CREATE TABLE counter (
    singleton      boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    position       bigint  NOT NULL,
    log_id         text    NOT NULL,
    timeline       integer NOT NULL,
    partition_size bigint  NOT NULL CHECK (partition_size > 0),
    ahead          integer NOT NULL CHECK (ahead > 0),
    partitioned_to bigint  NOT NULL
) WITH (fillfactor = 10);

CREATE TABLE stream_head (stream text PRIMARY KEY, version bigint NOT NULL) WITH (fillfactor = 70);
CREATE TABLE commit_seen (commit_id text PRIMARY KEY, first bigint NOT NULL, last bigint NOT NULL);
CREATE TABLE writer (role text PRIMARY KEY, epoch bigint NOT NULL) WITH (fillfactor = 50);
CREATE TABLE lease (
    role text PRIMARY KEY, holder text NOT NULL, epoch bigint NOT NULL, expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE checkpoint (consumer text PRIMARY KEY, position bigint NOT NULL) WITH (fillfactor = 50);
CREATE TABLE snapshot (
    projection text NOT NULL, fingerprint text NOT NULL, position bigint NOT NULL, state bytea NOT NULL,
    saved_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (projection, fingerprint)
);

INSERT INTO counter (position, log_id, timeline, partition_size, ahead, partitioned_to)
    VALUES (0, gen_random_uuid()::text, 1, 1000000, 2, 0);
"""

IMMUTABLE = """
CREATE FUNCTION topolog_forbid() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'facts are append-only: % on % is forbidden; append a correcting fact instead', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'object_not_in_prerequisite_state';
END $$;

CREATE TRIGGER fact_immutable BEFORE UPDATE OR DELETE ON fact FOR EACH ROW EXECUTE FUNCTION topolog_forbid();
CREATE TRIGGER fact_no_truncate BEFORE TRUNCATE ON fact FOR EACH STATEMENT EXECUTE FUNCTION topolog_forbid();
"""

# Attaching takes a lock that stops neither readers nor inserts, which CREATE TABLE ... PARTITION OF would.
PARTITIONS = """
CREATE FUNCTION topolog_roll(reached bigint) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '250ms' AS $$
DECLARE
    size bigint; wanted bigint; edge bigint; name text;
BEGIN
    SELECT partition_size, reached + partition_size * ahead, partitioned_to INTO size, wanted, edge
        FROM counter FOR UPDATE;
    WHILE edge < wanted LOOP
        name := 'fact_' || lpad((edge + 1)::text, 16, '0');
        EXECUTE format('CREATE TABLE %I (LIKE fact INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name);
        EXECUTE format('CREATE TRIGGER fact_no_truncate BEFORE TRUNCATE ON %I '
                       'FOR EACH STATEMENT EXECUTE FUNCTION topolog_forbid()', name);
        EXECUTE format('ALTER TABLE fact ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)',
                       name, edge + 1, edge + size + 1);
        edge := edge + size;
    END LOOP;
    UPDATE counter SET partitioned_to = edge;
END $$;

SELECT topolog_roll(0);
"""

# Arrays are parallel. `*_root` holds the index of the first entry with the same name, so that the loop compares numbers
# only. Outcomes: 0 appended, 1 duplicate, 2 conflict (`blamed` is the draft's index), 3 fenced.
APPEND = """
CREATE FUNCTION topolog_append(
    commit_ids text[], id_root integer[], roles text[], role_root integer[], epochs bigint[], times_us bigint[],
    correlations text[], causations bigint[], traces text[], first_draft integer[],
    owners integer[], streams text[], stream_root integer[], expected bigint[],
    types text[], schemas integer[], payloads bytea[],
    OUT outcome integer[], OUT firsts bigint[], OUT lasts bigint[], OUT blamed integer[], OUT actual bigint[],
    OUT versions bigint[]
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    commits integer := cardinality(commit_ids);
    drafts integer := cardinality(streams);
    positions bigint[] := array_fill(NULL::bigint, ARRAY[drafts]);
    seen_first bigint[]; seen_last bigint[]; heads bigint[]; current bigint[];
    head bigint; edge bigint; margin bigint; start bigint; d integer; r integer; last_draft integer; raised boolean := false;
BEGIN
    SELECT position, partitioned_to, partition_size * ahead INTO STRICT head, edge, margin FROM counter FOR UPDATE;
    start := head;
    SELECT array_agg((SELECT s.first FROM commit_seen s WHERE s.commit_id = u.id) ORDER BY u.i),
           array_agg((SELECT s.last FROM commit_seen s WHERE s.commit_id = u.id) ORDER BY u.i),
           array_agg(CASE WHEN u.root = u.i THEN (SELECT w.epoch FROM writer w WHERE w.role = u.role) END ORDER BY u.i)
        INTO seen_first, seen_last, current
        FROM unnest(commit_ids, roles, role_root) WITH ORDINALITY AS u(id, role, root, i);
    SELECT array_agg(CASE WHEN u.root = u.i
                     THEN coalesce((SELECT h.version FROM stream_head h WHERE h.stream = u.s), 0) ELSE 0 END ORDER BY u.i)
        INTO heads FROM unnest(streams, stream_root) WITH ORDINALITY AS u(s, root, i);
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
    INSERT INTO fact
        SELECT n.position, n.stream, n.version, n.type, n.schema, n.payload, k.time_us, k.role, k.epoch, k.id,
               k.correlation, k.causation, k.trace
        FROM unnest(positions, streams, versions, types, schemas, payloads, owners)
             AS n(position, stream, version, type, schema, payload, owner)
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
    UPDATE counter SET position = head;
    PERFORM pg_notify('topolog_head', head::text);
END $$;
"""

# A change of holder waits for the append in flight (counter row), so no append of the old epoch commits after it.
LEASES = """
CREATE FUNCTION topolog_acquire(the_role text, the_holder text, ttl_s double precision) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    granted bigint; until timestamptz; held lease;
BEGIN
    UPDATE lease l SET expires_at = clock_timestamp() + ttl_s * interval '1 second'
        WHERE l.role = the_role AND l.holder = the_holder AND l.epoch = (SELECT w.epoch FROM writer w WHERE w.role = the_role)
        RETURNING l.epoch INTO granted;
    IF FOUND THEN RETURN granted; END IF;
    SELECT * INTO held FROM lease l WHERE l.role = the_role;
    IF FOUND AND held.expires_at > clock_timestamp() AND held.holder <> the_holder THEN RETURN NULL; END IF;

    PERFORM 1 FROM counter FOR UPDATE;
    SELECT * INTO held FROM lease l WHERE l.role = the_role;
    IF FOUND AND held.expires_at > clock_timestamp() AND held.holder <> the_holder THEN RETURN NULL; END IF;
    until := clock_timestamp() + ttl_s * interval '1 second';
    INSERT INTO writer AS w (role, epoch) VALUES (the_role, coalesce(held.epoch, 0) + 1)
        ON CONFLICT (role) DO UPDATE SET epoch = greatest(w.epoch, coalesce(held.epoch, 0)) + 1 RETURNING w.epoch INTO granted;
    INSERT INTO lease AS l (role, holder, epoch, expires_at) VALUES (the_role, the_holder, granted, until)
        ON CONFLICT (role) DO UPDATE SET holder = excluded.holder, epoch = excluded.epoch, expires_at = excluded.expires_at;
    RETURN granted;
END $$;

CREATE FUNCTION topolog_release(the_role text, the_holder text, the_epoch bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    UPDATE lease SET expires_at = '-infinity', holder = '' WHERE role = the_role AND holder = the_holder AND epoch = the_epoch;
$$;

CREATE FUNCTION topolog_begin_timeline() RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    UPDATE counter SET timeline = timeline + 1 RETURNING timeline;
$$;
"""

# Where roles may not be created (a managed database), the owner works alone and the trigger remains.
GRANTS = """
DO $$
BEGIN
    BEGIN
        IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'topolog_reader') THEN CREATE ROLE topolog_reader NOLOGIN; END IF;
        IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'topolog_writer') THEN CREATE ROLE topolog_writer NOLOGIN; END IF;
    EXCEPTION
        WHEN insufficient_privilege THEN RAISE NOTICE 'topolog: no right to create roles; the owner works alone';
        WHEN duplicate_object OR unique_violation THEN NULL;
    END;
    REVOKE ALL ON FUNCTION topolog_roll, topolog_append, topolog_acquire, topolog_release, topolog_begin_timeline FROM PUBLIC;
    IF (SELECT count(*) FROM pg_roles WHERE rolname IN ('topolog_reader', 'topolog_writer')) < 2 THEN RETURN; END IF;
    GRANT USAGE ON SCHEMA public TO topolog_reader, topolog_writer;
    GRANT SELECT ON fact, fact_json, counter, stream_head, commit_seen, writer, lease, checkpoint, snapshot
        TO topolog_reader, topolog_writer;
    GRANT INSERT, UPDATE ON checkpoint, snapshot TO topolog_writer;
    GRANT DELETE ON snapshot TO topolog_writer;
    GRANT EXECUTE ON FUNCTION topolog_append, topolog_acquire, topolog_release TO topolog_writer;
END $$;
"""


def upgrade() -> None:
    for script in (TABLES, IMMUTABLE, PARTITIONS, APPEND, LEASES, GRANTS):
        # The driver prepares what it executes, and one prepared statement is one command; EXECUTE takes several.
        op.get_bind().exec_driver_sql(f"DO $run$ BEGIN EXECUTE $script${script}$script$; END $run$")


def downgrade() -> None:
    raise NotImplementedError("a log is never migrated backwards; restore a backup instead")
