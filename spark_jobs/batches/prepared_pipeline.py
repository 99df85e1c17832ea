"""A pipeline ready to run: what all claims share, and the parts of one claim."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from pyspark.sql import SparkSession

from tallyweir.schemas.event_contracts import EventContracts, load_event_contracts
from tallyweir.schemas.pipeline import Pipeline
from tallyweir.schemas.pipeline.columns import columns_by_step
from tallyweir.schemas.pipeline.redaction import Redaction, find_redaction
from tallyweir.sinks.kafka_admin import KafkaAdmin
from tallyweir.sinks.postgres.branches.participant import PostgresParticipant
from tallyweir.sinks.postgres.branches.preflight import check_distinct
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.publish.home import PostgresHome
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.postgres.tables.shadow_tables import find_shadow_tables
from tallyweir.sinks.protocol.identity import Epoch
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.publisher import Publisher
from tallyweir.sinks.seen_ids.claim_holder import ClaimHolder
from tallyweir.spark_jobs.batches.driver_stage import SMALL_BATCH_BYTES, DriverStage
from tallyweir.spark_jobs.batches.open_id_holder import MakeHolder, opened_id_claims
from tallyweir.spark_jobs.batches.stage_jobs import StageJobs
from tallyweir.spark_jobs.engine.driver_settings import DriverSettings
from tallyweir.spark_jobs.engine.spark_session import start_spark_session
from tallyweir.spark_jobs.frame.event_frame import EventFrameRecipe
from tallyweir.spark_jobs.frame.lookups import Lookups, Reader, lookup_readers
from tallyweir.spark_jobs.frame.predictor import Model, Predictor, read_model
from tallyweir.spark_jobs.frame.python_time import PythonTime
from tallyweir.spark_jobs.frame.typed_expressions import check_computed, check_types
from tallyweir.spark_jobs.registry.known_schemas import (
    KnownSchemas,
    pin_contracts,
    reads_registry,
)
from tallyweir.spark_jobs.source.kafka_source import empty_batch, group_prefix
from tallyweir.spark_jobs.source.record_reader import RecordReader
from tallyweir.spark_jobs.source.source_places import SourcePlaces
from tallyweir.spark_jobs.tables.layout_builder import (
    SHARDS,
    build_layout,
    event_columns,
    read_columns,
)
from tallyweir.spark_jobs.tables.shadowed_pipeline import shadowed
from tallyweir.spark_jobs.task.sampling import Sampling, sampling_of
from tallyweir.spark_jobs.task.task_measures import check_reported


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedPipeline:
    """A pipeline, valid against its contracts, and the Spark session to run it in."""

    settings: DriverSettings
    spark: SparkSession
    recipe: EventFrameRecipe
    layout: PipelineLayout
    lookups: Lookups
    #: Whether tasks need only what Kafka has of a stream's records.
    computes_nothing: bool
    #: Fields of its rows that are never shown.
    redaction: Redaction
    #: Samples that tasks keep of them; None for none.
    sampling: Sampling | None
    #: Columns that the transform adds.
    added: tuple[str, ...]
    #: What is known of the schema registry; None if files have the contracts.
    known_schemas: KnownSchemas | None

    @property
    def name(self) -> str:
        return self.layout.pipeline

    def open_home(self, *, run: str | None = None) -> PostgresHome:
        """Return the home database for one claim; the caller closes it."""
        check_distinct(self.dsns)
        return PostgresHome(self.settings.home_dsn, self.layout, run=run)

    @contextmanager
    def opened_databases(self, home: PostgresHome) -> Iterator[ClaimedDatabases]:
        """Open the participants for the home's claim, and finish branches in doubt.

        Raises:
            TallyweirError: As ``Publisher.start`` does.
        """
        dsns = self.dsns
        with ExitStack() as opened:
            participants = [
                PostgresParticipant(dsns[database], database, home.layout, home.claim)
                for database in home.layout.databases
            ]
            for participant in participants:
                opened.callback(participant.close)
            publisher = Publisher(home, participants)
            publisher.start()
            home.drop_superseded_staging()
            yield ClaimedDatabases(
                home=home, participants=tuple(participants), publisher=publisher
            )

    @property
    def parallelism(self) -> int:
        """Number of tasks that Spark can run now, with the present executors."""
        return int(self.spark.sparkContext.defaultParallelism)

    @property
    def shuffles(self) -> bool:
        """Whether a batch has tasks that do not read one partition each."""
        is_transformed = self.recipe.pipeline.transform is not None
        return is_transformed or bool(self.layout.keyed)

    @contextmanager
    def opened_jobs(
        self,
        home: PostgresHome,
        *,
        claim: str,
        places: SourcePlaces,
        tasks: Callable[[], int],
        make_holder: MakeHolder = ClaimHolder,
    ) -> Iterator[StageJobs]:
        """Open the Spark jobs of a claim.

        Args:
            home: Home database of the claim.
            claim: Unique name of the claim.
            places: Places of its topics.
            tasks: Returns the number of tasks for a batch that Spark shuffles.
            make_holder: Makes the holder of IDs, if the pipeline deduplicates by ID.
        """
        with ExitStack() as opened:
            claims = None
            if home.layout.horizon_us is not None:
                claims = opened.enter_context(
                    opened_id_claims(
                        self.settings,
                        home.layout,
                        home.claim,
                        directory=self.settings.fresh_directory(
                            "seen_ids", self.name, claim
                        ),
                        conf=self.spark.sparkContext.getConf(),
                        make_holder=make_holder,
                    )
                )
            driver_stage = opened.enter_context(
                closing(
                    DriverStage(
                        offsets_max=min(
                            self.settings.small_batch_offsets_max,
                            self.settings.batch_offsets_max,
                        ),
                        holder=None if claims is None else claims.holder,
                        reader=self._reader(places),
                    )
                )
            )
            yield StageJobs(
                spark=self.spark,
                home=home,
                layout=home.layout,
                recipe=self.recipe,
                lookups=self.lookups,
                places=places,
                claims=claims,
                driver_stage=driver_stage,
                as_read=self.recipe.columns_as_read(places)
                if self.computes_nothing
                else None,
                tasks=lambda: min(tasks(), SHARDS),
                python_time=self._python_time(),
                redaction=self.redaction,
                sampling=self.sampling,
                known_schemas=self.known_schemas,
            )

    def _python_time(self) -> PythonTime | None:
        pipeline = self.recipe.pipeline
        if pipeline.transform is None and not pipeline.predict:
            return None
        return PythonTime("predict" if pipeline.transform is None else "transform")

    def _reader(self, places: SourcePlaces) -> RecordReader | None:
        """Return a reader of small batches without Spark, if that is possible."""
        if not self.computes_nothing or self.recipe.reads_headers:
            return None
        return RecordReader(
            self.settings.kafka_bootstrap,
            group=f"{group_prefix(self.name)}-driver",
            places=places,
            bytes_max=SMALL_BATCH_BYTES,
        )

    @property
    def dsns(self) -> dict[str, str]:
        """Connection strings of its databases by name, including the home."""
        known = self.settings.dsns
        return {name: known[name] for name in (HOME, *self.layout.databases)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDatabases:
    """The databases that one claim publishes to."""

    home: PostgresHome
    participants: tuple[PostgresParticipant, ...]
    publisher: Publisher

    def tidy(self, *, live_from_us: int | None) -> None:
        """Remove everything that the next batch does not need."""
        self.publisher.sweep()
        self.home.tidy(live_from_us=live_from_us)
        for participant in self.participants:
            participant.tidy()


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFiles:
    """A pipeline with the files that it names.

    Attributes:
        pipeline: The pipeline.
        path: Its own file.
        contracts: Contracts of its events.
        models: One model for each prediction.
        known_schemas: What is known of the schema registry that has its contract; None
            if files have it.
    """

    pipeline: Pipeline
    path: Path
    contracts: EventContracts
    models: Sequence[Model]
    known_schemas: KnownSchemas | None = None

    @property
    def text(self) -> str | None:
        """Text of the pipeline file, if it is YAML; it never has secrets."""
        if self.path.suffix == ".py":
            return None
        return self.path.read_text("utf-8")


def read_pipeline_files(
    pipeline: Pipeline, path: Path, home_dsn: str, *, newest: bool = False
) -> PipelineFiles:
    """Read the files that a pipeline names.

    This needs no server, unless the contract is in a schema registry.

    Args:
        pipeline: The pipeline.
        path: Its own file.
        home_dsn: The home database.
        newest: As in ``pin_contracts``.

    Raises:
        ContractError: A contract cannot be used.
        ConfigurationError: A model cannot be used, or as ``pin_contracts``.
        RetryableError: As ``pin_contracts``.
    """
    models = [read_model(prediction, path) for prediction in pipeline.predict]
    known_schemas = None
    if reads_registry(pipeline):
        pipeline, known_schemas = pin_contracts(pipeline, path, home_dsn, newest=newest)
    contracts = (
        load_event_contracts(
            pipeline.source.schemas, path, key=pipeline.source.key_reference
        )
        if known_schemas is None
        else known_schemas.contracts
    )
    return PipelineFiles(
        pipeline=pipeline,
        path=path,
        contracts=contracts,
        models=models,
        known_schemas=known_schemas,
    )


def prepare_pipeline(
    settings: DriverSettings,
    files: PipelineFiles,
    readers: Sequence[Reader] | None = None,
) -> PreparedPipeline:
    """Start Spark and check the pipeline against its contracts and lookup tables.

    Args:
        settings: Settings of the driver.
        files: The pipeline, and the files that it names.
        readers: One reader for each lookup; by default, readers of their real sources.

    Raises:
        ConfigurationError: A file has a mistake.
        RetryableError: A lookup table could not be read.
    """
    shadows = find_shadow_tables(settings.home_dsn, files.pipeline.name)
    pipeline = shadowed(files.pipeline, shadows)
    spark = start_spark_session(settings, name=pipeline.name)
    if readers is None:
        readers = lookup_readers(spark, settings, pipeline.enrich, files.path)
    lookups = Lookups(spark, pipeline.enrich, readers)
    lookups.refresh(0)
    recipe = EventFrameRecipe(
        pipeline=pipeline,
        contracts=files.contracts,
        predictors=[Predictor(spark, model) for model in files.models],
    )
    places = SourcePlaces(pipeline.source.topics)
    steps = recipe.rows(empty_batch(spark), lookups.copies, places)
    _, decoded = next(steps)
    check_computed(pipeline.compute, decoded)
    *_, rows = decoded, *(frame for _, frame in steps)
    check_types(pipeline, rows)
    events = recipe.with_conditions(rows)
    check_reported(pipeline.reported, events.schema)
    layout = replace(
        build_layout(pipeline, files.contracts, events.schema),
        file_text=files.text,
        shadows=shadows,
    )
    columns = event_columns(pipeline, files.contracts, events.schema)
    added = _added(pipeline, files.contracts, columns)
    redaction = find_redaction(pipeline, files.contracts, added)
    return PreparedPipeline(
        settings=settings,
        spark=spark,
        recipe=recipe,
        layout=layout,
        lookups=lookups,
        computes_nothing=recipe.computes_nothing(events, read_columns(layout)),
        redaction=redaction,
        sampling=sampling_of(pipeline, files.contracts, redaction, added),
        added=added,
        known_schemas=files.known_schemas,
    )


def _added(
    pipeline: Pipeline, contracts: EventContracts, columns: Sequence[str]
) -> tuple[str, ...]:
    """Return those columns of an event that the transform adds."""
    steps = columns_by_step(pipeline, [one.name for one in contracts.fields])
    known = set(chain(*steps.values()))
    return tuple(name for name in columns if name not in known)


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeParts:
    """The parts of a bridge; all of them belong to one claim of one epoch."""

    databases: ClaimedDatabases
    jobs: StageJobs
    admin: KafkaAdmin
    checkpoint: Path
    starts: Mapping[TopicPartition, int]

    @property
    def home(self) -> PostgresHome:
        return self.databases.home

    @property
    def epoch(self) -> Epoch:
        return self.home.claim.epoch
