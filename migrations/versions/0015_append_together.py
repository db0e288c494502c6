"""Append for several processes with one flush: whoever has the turn appends what the others have queued meanwhile.

The counter's row stays locked until the commit is flushed, so processes that send single commits waited for a flush each. A client
that sees slow flushes calls `topolog_append_or_queue`. If another has the turn, it leaves the commits in `append_request` (unlogged,
committed without a flush), and the client waits for the turn with `topolog_append_queued`. The holder of the turn calls the
functions of 0012 and 0013 for each request in the order of arrival, so that all rules stay theirs, and answers in the requests'
rows. An answer becomes visible, and the turn free, after the flush. A crash empties the table; the senders repeat their commits by
id. A request is dropped after 10 s, because its sender has given up after lock_timeout.
"""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0013"
branch_labels = None
depends_on = None

TABLE = """
CREATE UNLOGGED TABLE append_request (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ids text[] NOT NULL, roles text[], epochs bigint[], times_us bigint[], correlations text[], causations bigint[], traces text[],
    places bigint[], place_chains bytea[], follows integer[], last_draft integer[],
    streams text[], expected bigint[], types text[], schemas integer[], payloads bytea[], notify boolean NOT NULL,
    outcome integer[], firsts bigint[], lasts bigint[], blamed integer[], actual bigint[], versions bigint[]
);
"""

_ARGUMENTS = """
    ids text[], roles text[], epochs bigint[], times_us bigint[], correlations text[], causations bigint[], traces text[],
    places bigint[], place_chains bytea[], follows integer[], last_draft integer[],
    streams text[], expected bigint[], types text[], schemas integer[], payloads bytea[], notify boolean"""
_ANSWER = """OUT outcome integer[], OUT firsts bigint[], OUT lasts bigint[], OUT blamed integer[], OUT actual bigint[],
    OUT versions bigint[]"""
_TURN = "x'746F706F61707064'::bigint"

# A commit of one event without a predecessor in the batch has the function of 0013.
ONE_REQUEST = f"""
CREATE FUNCTION topolog_append_request(r append_request, {_ANSWER}) LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF r.last_draft = ARRAY[1] AND r.follows = ARRAY[0] THEN
        SELECT a.* INTO outcome, firsts, lasts, blamed, actual, versions FROM topolog_append(
            r.ids[1], r.roles[1], r.epochs[1], r.times_us[1], r.correlations[1], r.causations[1], r.traces[1], r.places[1],
            r.place_chains[1], r.streams[1], r.expected[1], r.types[1], r.schemas[1], r.payloads[1], r.notify) a;
    ELSE
        SELECT a.* INTO outcome, firsts, lasts, blamed, actual, versions FROM topolog_append(
            r.ids, r.roles, r.epochs, r.times_us, r.correlations, r.causations, r.traces, r.places, r.place_chains, r.follows,
            r.last_draft, r.streams, r.expected, r.types, r.schemas, r.payloads, r.notify) a;
    END IF;
END $$;
"""

# The caller has the turn. An error of another's request is its sender's: the empty answer makes it append alone.
SERVE = """
CREATE FUNCTION topolog_serve_requests(own bigint) RETURNS void LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    r append_request; a record;
BEGIN
    FOR r IN SELECT * FROM append_request q WHERE q.id <> own ORDER BY q.id LOOP
        IF r.made_at < clock_timestamp() - interval '10 s' THEN
            DELETE FROM append_request q WHERE q.id = r.id;
        ELSIF r.outcome IS NULL THEN
            BEGIN
                SELECT * INTO a FROM topolog_append_request(r);
            EXCEPTION WHEN OTHERS THEN
                SELECT '{}'::integer[] AS outcome, NULL::bigint[] AS firsts, NULL::bigint[] AS lasts, NULL::integer[] AS blamed,
                       NULL::bigint[] AS actual, NULL::bigint[] AS versions INTO a;
            END;
            UPDATE append_request q SET outcome = a.outcome, firsts = a.firsts, lasts = a.lasts, blamed = a.blamed,
                                        actual = a.actual, versions = a.versions WHERE q.id = r.id;
        END IF;
    END LOOP;
END $$;
"""

# Append now if the turn is free, else return the number of the request.
APPEND = f"""
CREATE FUNCTION topolog_append_or_queue({_ARGUMENTS}, OUT request bigint, {_ANSWER})
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    r append_request;
BEGIN
    IF NOT pg_try_advisory_xact_lock({_TURN}) THEN
        INSERT INTO append_request AS q (ids, roles, epochs, times_us, correlations, causations, traces, places, place_chains,
                                         follows, last_draft, streams, expected, types, schemas, payloads, notify)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) RETURNING q.id INTO request;
        PERFORM set_config('synchronous_commit', 'off', true);
        RETURN;
    END IF;
    PERFORM topolog_serve_requests(0);
    r := ROW(0, NULL, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
             NULL, NULL, NULL, NULL, NULL, NULL)::append_request;
    SELECT a.* INTO outcome, firsts, lasts, blamed, actual, versions FROM topolog_append_request(r) a;
END $$;
"""

# Wait for the turn, then return the answer that another has left, or append with the others' requests. No answer: the request is
# gone, or it is to be appended alone.
WAIT = f"""
CREATE FUNCTION topolog_append_queued(request bigint, {_ANSWER})
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    r append_request;
BEGIN
    PERFORM pg_advisory_xact_lock({_TURN});
    DELETE FROM append_request q WHERE q.id = request RETURNING q.* INTO r;
    IF r.id IS NULL OR r.outcome IS NOT NULL THEN
        outcome := r.outcome; firsts := r.firsts; lasts := r.lasts; blamed := r.blamed; actual := r.actual;
        versions := r.versions;
        PERFORM set_config('synchronous_commit', 'off', true);
        RETURN;
    END IF;
    PERFORM topolog_serve_requests(request);
    SELECT a.* INTO outcome, firsts, lasts, blamed, actual, versions FROM topolog_append_request(r) a;
END $$;
"""

_SIGNATURES = """topolog_append_or_queue(text[], text[], bigint[], bigint[], text[], bigint[], text[], bigint[], bytea[], integer[],
    integer[], text[], bigint[], text[], integer[], bytea[], boolean), topolog_append_queued(bigint)"""

GRANTS = f"""
REVOKE ALL ON FUNCTION {_SIGNATURES}, topolog_append_request(append_request), topolog_serve_requests(bigint) FROM PUBLIC;
DO $$
BEGIN
    IF (SELECT count(*) FROM pg_roles WHERE rolname IN ('topolog_reader', 'topolog_writer')) < 2 THEN RETURN; END IF;
    GRANT EXECUTE ON FUNCTION {_SIGNATURES} TO topolog_writer;
END $$;
"""


def upgrade() -> None:
    for script in (TABLE, ONE_REQUEST, SERVE, APPEND, WAIT, GRANTS):
        op.get_bind().exec_driver_sql(f"DO $run$ BEGIN EXECUTE $script${script}$script$; END $run$")


def downgrade() -> None:
    raise NotImplementedError("a log is never migrated backwards; restore a backup instead")
