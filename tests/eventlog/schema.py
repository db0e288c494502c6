"""The tables and columns of a migrated database. A migration that adds one adds it here, too."""

COLUMNS = {
    "fact": (
        "position stream version type schema payload time_us role epoch commit_id correlation "
        "causation trace chain"
    ),
    "counter": ("singleton position log_id timeline partition_size ahead partitioned_to chain"),
    "stream_head": "stream version",
    "commit_seen": "commit_id first last",
    "writer": "role epoch",
    "lease": "role holder epoch expires_at granted_s session",
    "checkpoint": "consumer position",
    "snapshot": "projection fingerprint position state saved_at chain",
    "older_snapshot": "projection fingerprint position chain state saved_at",
    "pod_name": "hash position",
    "pod_name_from": "position one nodes",
    "projection_mark": "projection fingerprint position chain digest made_at",
    "schema_works_from": "revision one",
    "archived_block": "first last sha256 data",
    "pruned": "position archive one",
    "pruned_stream": "id version last",
    "archived_stream": "stream first_version last_version block",
}
