"""The pages stay quick with 100 pipelines, one of which has 10,000 batches."""

from __future__ import annotations

import math
from collections.abc import Iterator

import psycopg
import pytest
from playwright.sync_api import Page, expect
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from integration_tests.harness.monitor_service import running_monitor
from integration_tests.ledger_scenario import PIPELINE, LedgerScenario

_PIPELINES = 100
_BATCHES = 10_000
_MAX_MS = 100
#: What else works on the machine only adds to a time, so that the quickest counts.
_TIMES_MAX = 50
_CHARTS = 13

#: The half hour that is charted has all of the batches.
_MANY = """
INSERT INTO tallyweir.pipeline
    (pipeline, definition, definition_hash, shards, bucket_seconds, watermark)
SELECT 'pipeline-' || number, definition, definition_hash, shards, bucket_seconds, now()
FROM tallyweir.pipeline, generate_series(2, %(pipelines)s) AS number;

INSERT INTO tallyweir.batch
    (pipeline, sequence, epoch, spark_batch_id, checksum, planned_at, staged_at,
     published_at, watermark_before, watermark_after)
SELECT pipeline, number, 2, number, 0, at - interval '180 ms', at - interval '30 ms',
       at, watermark, watermark
FROM tallyweir.pipeline,
     generate_series(last_sequence + 1, %(batches)s) AS number,
     LATERAL (SELECT now() - (%(batches)s - number) * interval '175 ms') AS moment (at)
WHERE pipeline = %(crowded)s;

INSERT INTO tallyweir.batch_partition
    (pipeline, sequence, topic, partition, from_offset, until_offset, read, committed,
     duplicate, dead, expired, filtered, late)
SELECT pipeline, number, 'orders', partition, number * 100, number * 100 + 100, 100, 90,
       7, 0, 1, 1, 1
FROM tallyweir.pipeline,
     generate_series(last_sequence + 1, %(batches)s) AS number,
     generate_series(0, 3) AS partition
WHERE pipeline = %(crowded)s;

INSERT INTO tallyweir.batch_measures
SELECT pipeline, sequence, %(measures)s
FROM tallyweir.batch
WHERE pipeline = %(crowded)s;

INSERT INTO tallyweir.pipeline_gauge
SELECT pipeline, date_bin('30 s', at, 'epoch'), 5, 4000, 40, 90, NULL, 0, 0, 0, 0,
       40960, 90, 81920
FROM tallyweir.pipeline,
     generate_series(now() - interval '30 min', now() - interval '30 s', '30 s')
         AS moment (at);

UPDATE tallyweir.pipeline SET last_sequence = %(batches)s WHERE pipeline = %(crowded)s;
"""

#: About what a batch writes of itself.
_MEASURES = {
    "seconds": {f"publish_{part}": 0.01 for part in range(8)} | {"stage": 0.1},
    "steps": {
        f"step_{step}": {
            "seconds": 0.012345,
            "seconds_max": 0.012345,
            "cpu_seconds": 0.012345,
            "rows_in": 400,
            "rows_out": 400,
            "tasks": 1,
        }
        for step in range(8)
    },
    "ages": {str(bucket): 20 for bucket in range(60, 80)},
    "ids": {"asked": 400, "looked_up": 8, "met": 6},
}

#: Of the width that the first chart has, what is drawn.
_FILLED = """() => {
  const figure = document.querySelector("figure");
  return figure.querySelector("canvas").clientWidth / figure.clientWidth;
}"""
_FILLED_MIN = 0.8

#: From the choice of a page until what it shows is painted.
_GO_TO = """(hash) => new Promise((done) => {
  const began = performance.now();
  const watch = new MutationObserver(() => {
    watch.disconnect();
    requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
  });
  watch.observe(document.getElementById("view"), { childList: true });
  location.hash = hash;
})"""


@pytest.fixture
def crowded_monitor(
    home_dsn: str,
    kafka_bootstrap: str,
    scenario: LedgerScenario,
    connection: psycopg.Connection[TupleRow],
) -> Iterator[str]:
    """The address of a monitor that has much to show."""
    assert scenario.sequence < _BATCHES
    amounts = {
        "pipelines": _PIPELINES,
        "batches": _BATCHES,
        "crowded": PIPELINE,
        "measures": Jsonb(_MEASURES),
    }
    for statement in _MANY.split(";\n\n"):
        connection.execute(statement, amounts)
    connection.commit()
    # Autovacuum would do it within a minute.
    connection.autocommit = True
    connection.execute("ANALYZE")
    with running_monitor(home_dsn, kafka_bootstrap) as client:
        yield str(client.base_url).rstrip("/")


def test_no_page_takes_a_tenth_of_a_second(page: Page, crowded_monitor: str) -> None:
    """The database, the monitor and the browser together, up to the page's charts."""
    page.goto(crowded_monitor)
    expect(page.locator("tbody tr")).to_have_count(_PIPELINES)
    here = f"#/{PIPELINE}"
    places = (
        here,
        f"{here}/batches",
        f"{here}/batches/5000",
        f"{here}/dead-letters",
        f"{here}/dead-letters/UNDECODABLE",
        f"{here}/why/0-6",
        "#/",
    )
    quickest = dict.fromkeys(places, math.inf)
    for _ in range(_TIMES_MAX):
        for place in places:
            quickest[place] = min(quickest[place], page.evaluate(_GO_TO, place))
            if place == here:
                expect(page.locator("figure canvas")).to_have_count(_CHARTS)
                assert page.evaluate(_FILLED) > _FILLED_MIN
        if max(quickest.values()) < _MAX_MS:
            break
    for place, ms in quickest.items():
        print(f"{ms:6.1f} ms  {place}")  # noqa: T201 - shown where it fails
    assert max(quickest.values()) < _MAX_MS, quickest
