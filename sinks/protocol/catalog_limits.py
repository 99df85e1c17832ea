"""How many buckets a catalog of seen IDs has, and how exact its filters are."""

from __future__ import annotations

#: Share of new fingerprints that a catalog's filters may report as present, unless a
#: pipeline sets another share.
FALSE_POSITIVES = 0.001

#: Number of buckets that the IDs of a horizon are filed in. A new ID is checked against
#: the filter of each bucket, or of about as many segments.
BUCKETS_PER_HORIZON = 8

#: Largest number of buckets for a horizon, or for the time ahead of the clock. IDs are
#: looked up in all of them, and each is a table. The horizon of a new pipeline has
#: eight. A server with default settings has room for the locks of a thousand
#: (``SeenIdBuckets``). This limit allows two years of daily buckets, for a pipeline
#: that began without deduplication.
BUCKETS_MAX = 750
