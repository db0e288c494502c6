"""Let the login that prunes also archive, and list the pods of nodes.

The whole CronJob then runs with the rights of `topolog_pruner`, and the owner's login stays with
the migration. A question about a node reads only its own events and those of its pods.

`topolog_archive_block` adds a compressed block of rows that exist, and no block overlaps another.
`topolog_drop_partition` drops a full partition that every consumer has passed and whose positions
blocks hold. Both run in one transaction of the caller. The content of a block is not compared with
its rows: a wrong one breaks the hash chain, which `topolog replay verify` reports.

`pod_name` also has `node/<name>` for events that are the first to put a pod on a node and are not
on a stream of the node. Earlier events are not listed; `pod_name_from` says after which position
the list is complete.
"""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

BLOCK = """
CREATE FUNCTION topolog_archive_block(
    the_first bigint, the_last bigint, the_sha256 bytea, the_data bytea, streams text[], first_versions bigint[],
    last_versions bigint[]
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF (SELECT count(*) FROM fact f WHERE f.position BETWEEN the_first AND the_last) <> the_last - the_first + 1
       OR EXISTS (SELECT 1 FROM archived_block b WHERE b.first <= the_last AND b.last >= the_first) THEN
        RAISE EXCEPTION 'positions % to % are not all rows', the_first, the_last USING ERRCODE = 'object_in_use';
    END IF;
    INSERT INTO archived_block (first, last, sha256, data) VALUES (the_first, the_last, the_sha256, the_data);
    INSERT INTO archived_stream (stream, first_version, last_version, block)
        SELECT s.stream, s.first_version, s.last_version, the_first
            FROM unnest(streams, first_versions, last_versions) AS s(stream, first_version, last_version);
END $$;
"""

DROP = """
CREATE FUNCTION topolog_drop_partition(the_first bigint) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    edge bigint; late text; name text := 'fact_' || lpad(the_first::text, 16, '0');
BEGIN
    SELECT the_first + c.partition_size - 1 INTO edge FROM counter c WHERE the_first + c.partition_size - 1 <= c.position;
    IF NOT FOUND OR (SELECT sum(b.last - b.first + 1) FROM archived_block b WHERE b.first >= the_first AND b.last <= edge)
                    IS DISTINCT FROM edge - the_first + 1 THEN
        RAISE EXCEPTION 'partition % is not archived as a whole', name USING ERRCODE = 'object_in_use';
    END IF;
    SELECT c.consumer INTO late FROM checkpoint c WHERE c.position <= edge LIMIT 1;
    IF FOUND THEN RAISE EXCEPTION 'consumer % has not passed position %', late, edge USING ERRCODE = 'object_in_use'; END IF;
    EXECUTE format('ALTER TABLE fact DETACH PARTITION %I', name);
    EXECUTE format('DROP TABLE %I', name);
END $$;
"""

# As in 0010, with nodes. A pod's later sighting is listed by its node only.
NODES = """
CREATE FUNCTION topolog_pod_keys(payload bytea, with_name boolean) RETURNS SETOF text LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    observed json := convert_from(payload, 'UTF8')::json;
BEGIN
    IF with_name THEN RETURN NEXT observed -> 'pod' ->> 'name'; END IF;
    RETURN NEXT 'node/' || nullif(observed ->> 'node', '');
EXCEPTION WHEN data_exception THEN
    RETURN;
END $$;

CREATE OR REPLACE FUNCTION topolog_list_pod() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO pod_name (hash, position)
        SELECT topolog_name_hash(k.name), NEW.position FROM topolog_pod_keys(NEW.payload, NEW.version <= 3) AS k(name)
            WHERE k.name IS NOT NULL
        ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER fact_pod_name AFTER INSERT ON fact FOR EACH ROW
    WHEN (NEW.type IN ('PodObserved', 'HoldBegun', 'NominationObserved')
          AND (NEW.version <= 3 OR position('"node":"'::bytea IN NEW.payload) > 0)) EXECUTE FUNCTION topolog_list_pod();
ALTER TABLE pod_name_from ADD COLUMN nodes bigint NOT NULL DEFAULT 0;
UPDATE pod_name_from SET nodes = (SELECT position FROM counter);
"""

_FUNCTIONS = """topolog_archive_block(bigint, bigint, bytea, bytea, text[], bigint[], bigint[]), topolog_drop_partition(bigint)"""
_PRUNE = """topolog_prune(bigint, text, text[], text[], bigint[], text[], bigint[], bigint[], bytea[], bytea[], bigint[])"""

# The role may have been created after 0012, by an operator of databases whose owner may not.
GRANTS = f"""
REVOKE ALL ON FUNCTION {_FUNCTIONS} FROM PUBLIC;
DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'topolog_pruner') THEN
        GRANT EXECUTE ON FUNCTION {_FUNCTIONS}, {_PRUNE} TO topolog_pruner;
    END IF;
END $$;
"""


def upgrade() -> None:
    for script in (BLOCK, DROP, NODES, GRANTS):
        op.get_bind().exec_driver_sql(f"DO $run$ BEGIN EXECUTE $script${script}$script$; END $run$")


def downgrade() -> None:
    raise NotImplementedError("a log is never migrated backwards; restore a backup instead")
