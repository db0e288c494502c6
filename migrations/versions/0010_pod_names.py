"""At which positions a pod of a name was first observed, so that a question by name reads no other events.

A trigger fills the table, because it then holds for every writer: appends, imports, and releases before 0010, which work on
this schema. It stores a hash: the event at the position has the name, and readers compare it there. Rows that were archived
before this migration are not in the table; `pod_name_from` says after which position it is complete.
"""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

# `json` and not `jsonb`, which refuses a NUL in any text of the pod. An event that cannot be read is not listed: that must
# not stop the append.
FUNCTIONS = """
CREATE FUNCTION topolog_name_hash(name text) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT ('x' || substr(md5(name), 1, 16))::bit(64)::bigint
$$;

CREATE FUNCTION topolog_pod_name(payload bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN convert_from(payload, 'UTF8')::json -> 'pod' ->> 'name';
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $$;

CREATE FUNCTION topolog_list_pod() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO pod_name (hash, position)
        SELECT topolog_name_hash(n.name), NEW.position FROM topolog_pod_name(NEW.payload) AS n(name)
            WHERE n.name IS NOT NULL
        ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
"""

# Appends wait from CREATE TRIGGER on, so the long INSERT comes before it and a short one lists what was appended meanwhile.
TABLES = """
CREATE TABLE pod_name (hash bigint NOT NULL, position bigint NOT NULL, PRIMARY KEY (hash, position));
CREATE TABLE pod_name_from (position bigint NOT NULL, one boolean PRIMARY KEY DEFAULT true CHECK (one));
INSERT INTO pod_name_from (position) SELECT coalesce(max(last), 0) FROM archived_block;
INSERT INTO pod_name (hash, position)
    SELECT topolog_name_hash(n.name), f.position FROM fact f, topolog_pod_name(f.payload) AS n(name)
        WHERE f.type = 'PodObserved' AND f.version <= 3 AND n.name IS NOT NULL;
CREATE TRIGGER fact_pod_name AFTER INSERT ON fact FOR EACH ROW
    WHEN (NEW.type = 'PodObserved' AND NEW.version <= 3) EXECUTE FUNCTION topolog_list_pod();
INSERT INTO pod_name (hash, position)
    SELECT topolog_name_hash(n.name), f.position FROM fact f, topolog_pod_name(f.payload) AS n(name)
        WHERE f.position > (SELECT coalesce(max(position), 0) FROM pod_name)
          AND f.type = 'PodObserved' AND f.version <= 3 AND n.name IS NOT NULL;
"""

GRANTS = """
DO $$
BEGIN
    IF (SELECT count(*) FROM pg_roles WHERE rolname IN ('topolog_reader', 'topolog_writer')) < 2 THEN RETURN; END IF;
    GRANT SELECT ON pod_name, pod_name_from TO topolog_reader, topolog_writer;
END $$;
"""


def upgrade() -> None:
    for script in (FUNCTIONS, TABLES, GRANTS):
        op.get_bind().exec_driver_sql(f"DO $run$ BEGIN EXECUTE $script${script}$script$; END $run$")


def downgrade() -> None:
    raise NotImplementedError("a log is never migrated backwards; restore a backup instead")
