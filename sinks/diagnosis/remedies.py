"""What helps if one part of a batch takes most of its time, in a sentence each."""

from __future__ import annotations

REMEDY_OF_PART = {
    "between": "Spark plans the next batch; raise TALLYWEIR_BATCH_OFFSETS_MAX if "
    "batches are small.",
    "plan": "The home database or a lookup's refresh answers slowly; look at both.",
    "spark": "Spark starts tasks and shuffles; larger batches need it less often.",
    "read": "Reading and what Spark computes take longest: more partitions and cores, "
    "or fewer lookups and expressions.",
    "decode": (
        "More partitions and cores share the decoding out; fewer fields in the "
        "outputs avoid some of it."
    ),
    "validate": "Simplify or drop rules; each is an expression over every event.",
    "deduplicate": "Shorten deduplicate.horizon, or give the driver more memory for "
    "the catalog.",
    "windows": "Fewer groups or aggregates, or larger windows, make fewer partials.",
    "make_rows": "Fewer or narrower outputs make fewer rows.",
    "copy": "Staging is bound by Postgres: give it memory and CPU, or narrow the rows.",
    "transform": "The pipeline's transform takes longest; work on whole Arrow columns.",
    "predict": "The models take longest; smaller ones, or more cores, help.",
    "keys": "Functions on keyed state take longest; do less for each key.",
    "publish": "Publishing takes longest; look at the home database.",
    "read_keys": "Reading keyed state takes longest: keep less of it per key.",
    "copy_keys": "Changed state takes longest to write: keep less of it per key.",
    "publish_rows": "Indexes and constraints of the target tables cost most; drop "
    "those that are not used, or set `parallel` branches.",
    "publish_ledger": "The ledger's own rows take longest: larger batches, or a faster "
    "connection to the home database.",
    "publish_windows": "Merging windows takes longest: fewer groups in a batch, so "
    "larger windows, fewer keys, or larger batches.",
    "publish_seen_ids": "The catalog takes the IDs; a faster disk for the home helps.",
    "publish_event_logs": (
        "Many events do not become results; see dead letters and duplicates."
    ),
    "publish_keyed_state": "Changing keyed state takes longest: keep less per key.",
    "publish_lock": "Another session holds the pipeline's row; look for the resolver "
    "or a batch run.",
    "publish_commit": "COMMIT waits for the disk or a standby; a faster pg_wal helps.",
    "publish_samples": "Samples take longest: keep fewer rows of each step.",
    "publish_other": "Other databases take long to prepare their branches.",
}

#: A ledger may hold measures that a newer or an older release has written.
REMEDY_OF_UNKNOWN = (
    "Another version of Tallyweir measured this part; see the documentation of that "
    "version."
)
