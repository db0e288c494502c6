"""A lease ends with the session of its holder, and roles that many share are looked after by those who share them.

A holder's session keeps an advisory lock, named after role and epoch, for as long as it lives: a process that is killed loses its
connection, and with it the lock, at once. A paused one keeps both until the lease runs out. A lease that was granted by the
release before has no session, and ends by time alone.
"""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

SESSIONS = """
ALTER TABLE lease ADD COLUMN session boolean NOT NULL DEFAULT false;

CREATE FUNCTION topolog_lease_key(the_role text, the_epoch bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtextextended('topolog lease ' || the_role || ' ' || the_epoch, 0);
$$;

-- The process (pid of the server's) whose session keeps the lock of the lease; NULL for none.
CREATE FUNCTION topolog_lease_session(the_role text, the_epoch bigint) RETURNS integer
LANGUAGE sql VOLATILE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT l.pid FROM pg_locks l, topolog_lease_key(the_role, the_epoch) AS key
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
          AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
          AND l.classid::bigint = (key >> 32) & 4294967295 AND l.objid::bigint = key & 4294967295
        LIMIT 1;
$$;

CREATE FUNCTION topolog_alive(held lease) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = public, pg_temp AS $$
    SELECT held.holder <> '' AND held.expires_at > clock_timestamp()
        AND (NOT held.session OR topolog_lease_session(held.role, held.epoch) IS NOT NULL);
$$;
"""

# A lease is at most its length from now whenever anybody looks at it (migration 0003).
LEASES = """
CREATE OR REPLACE FUNCTION topolog_acquire(the_role text, the_holder text, ttl_s double precision) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    granted bigint; until timestamptz; held lease;
BEGIN
    UPDATE lease l SET expires_at = clock_timestamp() + ttl_s * interval '1 second', granted_s = ttl_s, session = true
        WHERE l.role = the_role AND l.holder = the_holder AND l.epoch = (SELECT w.epoch FROM writer w WHERE w.role = the_role)
        RETURNING l.epoch INTO granted;
    IF FOUND THEN
        -- A session that was lost is another one now. Whoever asked in between may have taken the lease already.
        IF topolog_lease_session(the_role, granted) IS NULL THEN
            PERFORM pg_try_advisory_lock(topolog_lease_key(the_role, granted));
        END IF;
        RETURN granted;
    END IF;
    UPDATE lease l SET expires_at = clock_timestamp() + coalesce(l.granted_s, ttl_s) * interval '1 second'
        WHERE l.role = the_role AND l.expires_at > clock_timestamp() + coalesce(l.granted_s, ttl_s) * interval '1 second';
    SELECT * INTO held FROM lease l WHERE l.role = the_role;
    IF FOUND AND held.holder <> the_holder AND topolog_alive(held) THEN RETURN NULL; END IF;

    PERFORM 1 FROM counter FOR UPDATE;
    SELECT * INTO held FROM lease l WHERE l.role = the_role;
    IF FOUND AND held.holder <> the_holder AND topolog_alive(held) THEN RETURN NULL; END IF;
    until := clock_timestamp() + ttl_s * interval '1 second';
    INSERT INTO writer AS w (role, epoch) VALUES (the_role, coalesce(held.epoch, 0) + 1)
        ON CONFLICT (role) DO UPDATE SET epoch = greatest(w.epoch, coalesce(held.epoch, 0)) + 1 RETURNING w.epoch INTO granted;
    PERFORM pg_try_advisory_lock(topolog_lease_key(the_role, granted));
    INSERT INTO lease AS l (role, holder, epoch, expires_at, granted_s, session)
        VALUES (the_role, the_holder, granted, until, ttl_s, true)
        ON CONFLICT (role) DO UPDATE SET holder = excluded.holder, epoch = excluded.epoch, expires_at = excluded.expires_at,
            granted_s = excluded.granted_s, session = true;
    RETURN granted;
END $$;

CREATE OR REPLACE FUNCTION topolog_release(the_role text, the_holder text, the_epoch bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE lease SET expires_at = '-infinity', holder = '' WHERE role = the_role AND holder = the_holder AND epoch = the_epoch;
    IF topolog_lease_session(the_role, the_epoch) = pg_backend_pid() THEN
        PERFORM pg_advisory_unlock(topolog_lease_key(the_role, the_epoch));
    END IF;
END $$;
"""

# Who is gone is closed: its epoch is raised under the counter row, so that no append of it commits after it was counted out.
MEMBERS = """
CREATE FUNCTION topolog_members(the_role text) RETURNS TABLE (member text, held_by text, held_epoch bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    gone text;
BEGIN
    UPDATE lease l SET expires_at = clock_timestamp() + l.granted_s * interval '1 second'
        WHERE starts_with(l.role, the_role || '/') AND l.expires_at > clock_timestamp() + l.granted_s * interval '1 second';
    FOR gone IN
        SELECT l.role FROM lease l WHERE starts_with(l.role, the_role || '/') AND l.holder <> '' AND NOT topolog_alive(l)
            ORDER BY l.role
    LOOP
        PERFORM 1 FROM counter FOR UPDATE;
        UPDATE lease l SET expires_at = '-infinity', holder = ''
            WHERE l.role = gone AND l.holder <> '' AND NOT topolog_alive(l);
        IF FOUND THEN
            UPDATE writer w SET epoch = w.epoch + 1 WHERE w.role = gone;
        END IF;
    END LOOP;
    RETURN QUERY SELECT l.role, l.holder, l.epoch FROM lease l
        WHERE starts_with(l.role, the_role || '/') AND topolog_alive(l) ORDER BY l.role;
END $$;
"""

GRANTS = """
REVOKE ALL ON FUNCTION topolog_lease_key, topolog_lease_session, topolog_alive, topolog_members FROM PUBLIC;
DO $$
BEGIN
    IF (SELECT count(*) FROM pg_roles WHERE rolname IN ('topolog_reader', 'topolog_writer')) < 2 THEN RETURN; END IF;
    GRANT EXECUTE ON FUNCTION topolog_members TO topolog_writer;
END $$;
"""


def upgrade() -> None:
    for script in (SESSIONS, LEASES, MEMBERS, GRANTS):
        # The driver prepares what it executes, and one prepared statement is one command; EXECUTE takes several.
        op.get_bind().exec_driver_sql(f"DO $run$ BEGIN EXECUTE $script${script}$script$; END $run$")


def downgrade() -> None:
    raise NotImplementedError("a log is never migrated backwards; restore a backup instead")
