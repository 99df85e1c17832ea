"""What slows a pipeline down, by name, with the figures that tell it, and a way out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from tallyweir.sinks.diagnosis.batch_time import (
    BETWEEN,
    COMMIT,
    SPARK,
    MeasuredBatch,
    added_parts,
    staged_by_tasks,
)
from tallyweir.sinks.protocol.measures import Measures, sum_measures

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


class LoopTimes:
    """The times of a driver's loop over some batches, and of waiting since.

    A driver's first batch pays for the start of workers and code, so its times are left
    out if there are other batches.

    Args:
        batches: Batches with measures.
        partitions: Number of partitions that a batch may read.
        idle_s: Seconds that the loop has waited since the last of them.
    """

    def __init__(
        self,
        batches: Sequence[MeasuredBatch],
        *,
        partitions: int = 0,
        idle_s: float = 0.0,
    ) -> None:
        # A driver's first batch has no COMMIT before it.
        warm = [one for one in batches if "commit_before" in one.measures.seconds]
        self._batches = warm or batches
        self._partitions = partitions
        self.parts = added_parts(self._batches)
        self.parts[BETWEEN] = self.parts.get(BETWEEN, 0.0) + idle_s
        self.whole = sum(self.parts.values())
        count = max(1, len(self._batches))
        #: Records per batch.
        self.rows = sum(batch.read for batch in self._batches) / count
        #: Seconds per batch.
        self.loop_s = self.whole / count

    def share(self, *parts: str) -> float:
        """Return the share of some parts together."""
        if not self.whole:
            return 0.0
        return sum(self.parts.get(name, 0.0) for name in parts) / self.whole

    @property
    def slots(self) -> int:
        return max((one.measures.slots for one in self._batches), default=0)

    @property
    def is_by_tasks(self) -> bool:
        """Whether Spark's tasks staged the batches, and not the driver."""
        return any(staged_by_tasks(one.measures) for one in self._batches)

    def busiest_task(self, *, has_backlog: bool) -> tuple[float, int]:
        """Return the share of the busiest task in phase one, and the number of tasks.

        With a backlog, a partition without records counts as a task without work: the
        backlog is in the others.
        """
        found = []
        for one in self._batches:
            tasks = one.measures.task_seconds
            if not any(tasks) or not staged_by_tasks(one.measures):
                continue
            count = max(len(tasks), self._partitions if has_backlog else 0)
            found.append(_busiest(max(tasks), sum(tasks), count, one.measures))
        return _middle(found)

    def busiest_of_keys(self) -> tuple[float, int]:
        """Return the same for the tasks that call functions on keyed state."""
        each = ((one.measures.steps.get("keys"), one) for one in self._batches)
        return _middle(
            [
                _busiest(step.seconds_max, step.seconds, step.tasks, one.measures)
                for step, one in each
                if step is not None and step.seconds
            ]
        )

    def hottest_told(self) -> str:
        """Say which key is the hottest of its output, if any is known."""
        found = sum_measures(
            Measures(hot_keys=one.measures.hot_keys) for one in self._batches
        ).hot_keys
        each = [
            (events / one.events, key, output)
            for output, one in found.items()
            for key, events in one.keys.items()
        ]
        if not each:
            return ""
        share, key, output = max(each)
        return f"; of the events of {output}, {share:.0%} are of the key {key}"

    def commit_s(self) -> float:
        """Return the median seconds of a COMMIT; 0 if no COMMIT is known."""
        found = [
            one.measures.seconds["commit_before"]
            for one in self._batches
            if "commit_before" in one.measures.seconds
        ]
        return median(found) if found else 0.0


def _busiest(
    greatest_s: float, all_s: float, tasks: int, measures: Measures
) -> tuple[float, int]:
    """Return the share of a task, and how many tasks ran at a time.

    If there are more tasks than can run at a time, the slowest delays the batch only
    if it takes longer than a slot's share of the whole work.
    """
    return greatest_s / all_s, min(tasks, measures.slots or tasks)


def _middle(found: Sequence[tuple[float, int]]) -> tuple[float, int]:
    """Return the value of the middle batch, since one batch may have hung."""
    return sorted(found)[len(found) // 2] if found else (1.0, 1)


#: Limits on the batches used: fewer say too little, and older ones are history.
BATCHES_MIN = 3
BATCHES_MAX = 10

#: Limits in seconds: every batch waits briefly for locks and branches.
_HELD_S = 2.0
_IN_DOUBT_S = 5.0
_XMIN_S = 60.0
#: Share of the rows of a pipeline's tables that are dead and cannot be removed.
_BLOAT = 0.5
_DEAD_ROWS_MIN = 5_000
#: Share of dead letters among the records read that makes a storm.
_STORM = 0.2
#: Fewer dead letters are no storm, however few records were read.
_STORM_MIN = 10
#: Least share of the time that a cause must explain.
_SHARE_MIN = 0.2
_HALF = 0.5
#: A batch with fewer events is small.
_SMALL = 2_000
#: Work is uneven if the busiest task takes this many times its even share, or this
#: share of the largest multiple possible, which is the number of tasks.
_UNEVEN = 2.0
_UNEVEN_OF_MOST = 0.8
#: A COMMIT of so many seconds shows a slow disk.
_SLOW_COMMIT_S = 0.05
#: Parts of a batch that dead rows slow down, in the tables that they change.
_CHANGES_ROWS = ("publish_windows", "publish_keyed_state", "publish_rows", "read_keys")


class Cause(StrEnum):
    """What may slow a pipeline down."""

    IN_DOUBT = "in-doubt branch"
    LOCK = "lock held"
    DEAD_LETTERS = "dead-letter storm"
    VACUUM = "vacuum held back"
    SLOW_PYTHON = "slow Python"
    SKEW = "skewed key"
    FEW_PARTITIONS = "too few partitions"
    SMALL_BATCHES = "small batches"
    SLOW_DISK = "slow disk"
    SOURCE = "slow source"
    #: No cause above: the largest part of the time.
    STEP = "step"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What the servers show at this moment.

    Attributes:
        lag: Number of offsets that wait in Kafka; None if it does not answer.
        partitions: Number of partitions that the pipeline reads.
        since_commit_s: Seconds since its last batch; 0 without one.
        lock_wait_s: How long its driver has waited for a lock; 0 if it does not wait.
        lock_told: A sentence about this lock.
        lock_is_prepared: Whether a prepared transaction holds the lock.
        in_doubt_s: Age of the oldest branch that is decided and not committed.
        xmin_s: Age of the oldest transaction that keeps vacuum from removing rows.
        xmin_holder: The holder of that transaction.
        dead_rows: Dead rows of the pipeline's own tables, as the server counts them.
        live_rows: Live rows of these tables, as the server counts them.
    """

    lag: int | None = None
    partitions: int = 0
    since_commit_s: float = 0.0
    lock_wait_s: float = 0.0
    lock_told: str = ""
    lock_is_prepared: bool = False
    in_doubt_s: float = 0.0
    xmin_s: float = 0.0
    xmin_holder: str = ""
    dead_rows: int = 0
    live_rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """What slows a pipeline down.

    Attributes:
        cause: Its name.
        share: Share of the time of the newest batches, between 0 and 1; for a storm,
            share of the records read.
        saw: The evidence, in a sentence.
        remedy: What to do, in a sentence.
        part: The part of the time that stands out.
    """

    cause: Cause
    share: float
    saw: str
    remedy: str
    part: str | None = None

    @property
    def is_trouble(self) -> bool:
        """Whether the operator should act; waiting for events is no trouble."""
        return self.cause is not Cause.SOURCE


def find_bottleneck(
    batches: Sequence[MeasuredBatch], server: ServerFacts
) -> Bottleneck | None:
    """Name what slows a pipeline down; None while too little is known.

    Args:
        batches: The newest batches, with measures.
        server: What the servers show at this moment.
    """
    return next(iter(rank_causes(batches, server)), None)


def rank_causes(
    batches: Sequence[MeasuredBatch], server: ServerFacts
) -> list[Bottleneck]:
    """Name all that slows a pipeline, the likeliest first; see ``find_bottleneck``.

    Causes that stop it altogether come first, then those that explain most of the time.
    """
    newest = batches[-BATCHES_MAX:]
    times = LoopTimes(
        newest,
        partitions=server.partitions,
        # Whatever took long before: with nothing left to read, it waits for events.
        idle_s=server.since_commit_s if server.lag == 0 else 0.0,
    )
    held = list(_held_up(server, times))
    if len(newest) < BATCHES_MIN:
        return held
    found = [one for one in _candidates(times, server) if one.share >= _SHARE_MIN]
    # The sort is stable: of two equal shares, the first stays first.
    found.sort(key=lambda one: one.share, reverse=True)
    return [*held, *_storm(newest), *found, *_greatest(times)]


def _held_up(server: ServerFacts, times: LoopTimes) -> Iterator[Bottleneck]:
    """Yield the causes that stop the pipeline at this moment."""
    waits_for_branch = server.lock_is_prepared and server.lock_wait_s >= _HELD_S
    if waits_for_branch or server.in_doubt_s >= _IN_DOUBT_S:
        held_s = max(server.in_doubt_s, server.lock_wait_s)
        yield Bottleneck(
            cause=Cause.IN_DOUBT,
            share=held_s / (held_s + times.loop_s),
            saw=f"A prepared transaction has been in doubt for {held_s:.0f} s.",
            remedy="See where with `tallyweir indoubt list`, bring that database or "
            "the resolver back, and let it finish the branch.",
        )
    if server.lock_wait_s >= _HELD_S:
        yield Bottleneck(
            cause=Cause.LOCK,
            share=server.lock_wait_s / (server.lock_wait_s + times.loop_s),
            saw=server.lock_told,
            remedy="Let the holder commit or end its session with "
            "pg_terminate_backend, and give such sessions a lock_timeout.",
            part="publish_rows",
        )


def _storm(batches: Sequence[MeasuredBatch]) -> Iterator[Bottleneck]:
    read = sum(batch.read for batch in batches)
    dead = sum(batch.dead for batch in batches)
    if dead < max(_STORM_MIN, _STORM * read):
        return
    yield Bottleneck(
        cause=Cause.DEAD_LETTERS,
        share=dead / read,
        saw=f"{dead / read:.0%} of what was read became dead letters.",
        remedy="Look at the reasons with `tallyweir why` or on the page, and set "
        "dead_letter_limit so that such a pipeline pauses itself.",
    )


def _bloat(server: ServerFacts, times: LoopTimes) -> Iterator[Bottleneck]:
    rows = server.dead_rows + server.live_rows
    if (
        server.xmin_s < _XMIN_S
        or server.dead_rows < _DEAD_ROWS_MIN
        or server.dead_rows < _BLOAT * rows
    ):
        return
    yield Bottleneck(
        cause=Cause.VACUUM,
        share=times.share(*_CHANGES_ROWS),
        saw=f"{server.dead_rows:,} of {rows:,} rows of its tables are dead and must "
        f"stay, because of {server.xmin_holder} for {server.xmin_s:.0f} s.",
        remedy="End that transaction, or drop the replication slot if it has no "
        "reader; vacuum then removes the rows by itself.",
    )


def _candidates(times: LoopTimes, server: ServerFacts) -> Iterator[Bottleneck]:
    """Yield causes of a share of the time; of two alike, the root cause comes first."""
    has_backlog = server.lag is None or server.lag >= max(1, times.rows)
    yield from _candidates_of_tasks(times, server, has_backlog=has_backlog)
    yield from _bloat(server, times)
    own = {name: times.share(name) for name in ("transform", "predict", "keys")}
    part = max(own, key=own.__getitem__)
    yield Bottleneck(
        cause=Cause.SLOW_PYTHON,
        share=own[part],
        saw=f"The pipeline's own Python ({part}) takes {own[part]:.0%} of the time.",
        remedy="Let it process whole Arrow columns instead of single rows, and call no "
        "service from it; enrich from a table or a topic instead.",
        part=part,
    )
    commit_s = times.commit_s()
    if commit_s >= _SLOW_COMMIT_S:
        yield Bottleneck(
            cause=Cause.SLOW_DISK,
            share=times.share(COMMIT),
            saw=f"A COMMIT takes {commit_s * 1000:.0f} ms.",
            remedy="Put pg_wal on a faster disk, or look for the standby that commits "
            "wait for; batches of more events wait less often.",
            part=COMMIT,
        )
    if not has_backlog and times.share(BETWEEN, "read") >= _HALF:
        yield Bottleneck(
            cause=Cause.SOURCE,
            share=times.share(BETWEEN, "read"),
            saw="The pipeline waits for events; it has read all of them.",
            remedy="Nothing to do; the pipeline keeps up with its events.",
            part=BETWEEN,
        )
    overhead = (BETWEEN, "plan", SPARK, "publish_ledger")
    if has_backlog and times.rows < _SMALL and times.share(*overhead) >= _HALF:
        yield Bottleneck(
            cause=Cause.SMALL_BATCHES,
            share=times.share(*overhead),
            saw=f"A batch has {times.rows:,.0f} events, and the fixed cost of a batch "
            f"takes {times.share(*overhead):.0%} of the time.",
            remedy=(
                "Raise TALLYWEIR_BATCH_OFFSETS_MAX, so that each batch takes more of "
                "the waiting events."
            ),
            part=SPARK,
        )


def _candidates_of_tasks(
    times: LoopTimes, server: ServerFacts, *, has_backlog: bool
) -> Iterator[Bottleneck]:
    """Yield the causes that keep tasks from working in parallel."""
    in_tasks = times.share(*(p for p in times.parts if _is_task_part(p)))
    for (busiest, tasks), share in (
        (times.busiest_task(has_backlog=has_backlog), in_tasks),
        (times.busiest_of_keys(), times.share("keys")),
    ):
        if tasks > 1 and busiest * tasks >= min(_UNEVEN, _UNEVEN_OF_MOST * tasks):
            yield Bottleneck(
                cause=Cause.SKEW,
                share=share,
                saw=f"One of {tasks} tasks has {busiest:.0%} of their work"
                f"{times.hottest_told()}.",
                remedy="Distribute the hot key or its partition: key by more columns, "
                "or let producers use a finer partition key.",
            )
    # A laptop runs two tasks per core, so half as many partitions are enough.
    too_few = 0 < 2 * server.partitions < times.slots
    if has_backlog and too_few and times.is_by_tasks and times.rows >= _SMALL:
        yield Bottleneck(
            cause=Cause.FEW_PARTITIONS,
            share=in_tasks * (1 - server.partitions / times.slots),
            saw=f"With {server.partitions} partitions, {times.slots} tasks cannot run "
            "at the same time.",
            remedy="Give the topic at least as many partitions as tasks can run; the "
            "driver reads new partitions without a restart.",
        )


def _greatest(times: LoopTimes) -> Iterator[Bottleneck]:
    """Yield the largest part of the time, in case no other cause explains it."""
    if not times.whole:
        return
    part = max(times.parts, key=times.parts.__getitem__)
    yield Bottleneck(
        cause=Cause.STEP,
        share=times.share(part),
        saw=f"Most of the time goes into {part.replace('_', ' ')}.",
        remedy=REMEDY_OF_PART.get(part, REMEDY_OF_UNKNOWN),
        part=part,
    )


def _is_task_part(name: str) -> bool:
    return name not in {BETWEEN, "plan", SPARK, "keys", "read_keys", "copy_keys"} and (
        not name.startswith("publish")
    )
