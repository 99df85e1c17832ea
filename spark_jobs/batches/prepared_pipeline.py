"""A pipeline made ready to run: what is the same for every claim within one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import SparkSession

from schemas.event_contracts import EventContracts, load_event_contracts
from sinks.postgres.branches.participant import PostgresParticipant
from sinks.postgres.branches.preflight import check_distinct
from sinks.postgres.outputs.home_layout import HomeLayout
from sinks.postgres.publish.home import PostgresHome
from sinks.postgres.server.branch_names import HOME
from sinks.postgres.tables.shadow_tables import find_shadow_tables
from sinks.protocol.publication import Publisher
from sinks.seen_ids.claim_holder import ClaimHolder
from spark_jobs.batches.driver_stage import SMALL_BATCH_BYTES, DriverStage
from spark_jobs.batches.stage_jobs import StageJobs
from spark_jobs.engine.session import start_session
from spark_jobs.engine.settings import DriverSettings
from spark_jobs.frame.event_frame import EventFrameRecipe
from spark_jobs.frame.lookups import Lookups, Reader, lookup_readers
from spark_jobs.frame.model_file import Model, read_model
from spark_jobs.frame.predictor import Predictor
from spark_jobs.frame.python_time import PythonTime
from spark_jobs.frame.typed_expressions import check_types
from spark_jobs.pipeline import Pipeline
from spark_jobs.pipeline.redaction import Redaction, find_redaction
from spark_jobs.source.kafka_source import empty_batch, group_prefix
from spark_jobs.source.record_reader import RecordReader
from spark_jobs.source.source_places import SourcePlaces
from spark_jobs.tables.home_layout import (
    SHARDS,
    build_home_layout,
    event_columns,
    read_columns,
)
from spark_jobs.tables.shadowed_pipeline import shadowed
from spark_jobs.task.id_claims import MakeHolder, opened_id_claims
from spark_jobs.task.reported_columns import check_reported
from spark_jobs.task.samples import Sampling, sampling_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedPipeline:
    """A pipeline, valid against its contracts, and the Spark session to run it in."""

    settings: DriverSettings
    spark: SparkSession
    recipe: EventFrameRecipe
    layout: HomeLayout
    lookups: Lookups
    #: Whether tasks need of a stream's records nothing but what is read.
    computes_nothing: bool
    #: What is never shown of its rows.
    redaction: Redaction
    #: What tasks keep of them; None for nothing.
    sampling: Sampling | None
    #: Columns that a transform adds.
    added: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.layout.pipeline

    def open_home(self, *, run: str | None = None) -> PostgresHome:
        """Return the home database for one claim; whoever asks closes it."""
        check_distinct(self.dsns)
        return PostgresHome(self.settings.home_dsn, self.layout, run=run)

    @contextmanager
    def opened_databases(self, home: PostgresHome) -> Iterator[ClaimedDatabases]:
        """Open the databases beside the home for its claim, and finish what is left.

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
        """Tasks that Spark runs at a time now: executors come and go."""
        return int(self.spark.sparkContext.defaultParallelism)

    @property
    def shuffles(self) -> bool:
        """Whether a batch has tasks that are not one of a partition's."""
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
        """Open the Spark jobs of a claim, which has a name of its own.

        Args:
            home: For the claim.
            claim: Its name.
            places: Of its topics.
            tasks: Tells how many tasks are to share a batch that Spark shuffles.
            make_holder: Makes what holds the IDs of a pipeline that looks at them.
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
            )

    def _python_time(self) -> PythonTime | None:
        pipeline = self.recipe.pipeline
        if pipeline.transform is None and not pipeline.predict:
            return None
        return PythonTime("predict" if pipeline.transform is None else "transform")

    def _reader(self, places: SourcePlaces) -> RecordReader | None:
        """Return what reads small batches without Spark, where that is possible."""
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
        """Connection strings of its databases, the home among them, by name."""
        known = {**self.settings.databases, HOME: self.settings.home_dsn}
        return {name: known[name] for name in (HOME, *self.layout.databases)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDatabases:
    """What one claim publishes to."""

    home: PostgresHome
    participants: tuple[PostgresParticipant, ...]
    publisher: Publisher

    def tidy(self, *, live_from_us: int | None) -> None:
        """Leave nothing behind that the next batch has no use for."""
        self.publisher.sweep()
        self.home.tidy(live_from_us=live_from_us)
        for participant in self.participants:
            participant.tidy()


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFiles:
    """What a pipeline names that is read from files.

    Attributes:
        pipeline: The pipeline.
        path: Its own file.
        contracts: What its events are read as.
        models: One for each prediction.
    """

    pipeline: Pipeline
    path: Path
    contracts: EventContracts
    models: Sequence[Model]

    @property
    def text(self) -> str | None:
        """The pipeline file, if it is YAML; it says where things are, never secrets."""
        if self.path.suffix == ".py":
            return None
        return self.path.read_text("utf-8")


def read_pipeline_files(pipeline: Pipeline, path: Path) -> PipelineFiles:
    """Read the files beside a pipeline file; no server is asked for anything.

    Raises:
        ContractError: A contract cannot be used.
        ConfigurationError: A model cannot be.
    """
    return PipelineFiles(
        pipeline=pipeline,
        path=path,
        contracts=load_event_contracts(pipeline.source.schemas, path),
        models=[read_model(prediction, path) for prediction in pipeline.predict],
    )


def prepare_pipeline(
    settings: DriverSettings,
    files: PipelineFiles,
    readers: Sequence[Reader] | None = None,
) -> PreparedPipeline:
    """Start Spark and check the pipeline against its contracts and lookup tables.

    Args:
        settings: Where things are.
        files: The pipeline, and what it names.
        readers: One for each lookup; by default they are read where they are.

    Raises:
        ConfigurationError: Something in a file must be changed.
        RetryableError: A lookup table could not be read.
    """
    shadows = find_shadow_tables(settings.home_dsn, files.pipeline.name)
    pipeline = shadowed(files.pipeline, shadows)
    spark = start_session(settings, name=pipeline.name)
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
    *_, (_, rows) = recipe.rows(empty_batch(spark), lookups.copies, places)
    check_types(pipeline, rows)
    events = recipe.with_conditions(rows, places)
    check_reported(pipeline.reported, events.schema)
    layout = replace(
        build_home_layout(pipeline, files.contracts, events.schema),
        file_text=files.text,
        shadows=shadows,
    )
    columns = event_columns(pipeline, files.contracts, events.schema)
    added = _added(pipeline, files.contracts, columns)
    redaction = find_redaction(pipeline, added)
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
    )


def _added(
    pipeline: Pipeline, contracts: EventContracts, columns: Sequence[str]
) -> tuple[str, ...]:
    """Return the columns that a transform adds, of all that an event has."""
    known = {one.name for one in contracts.fields}
    known.update(name for one in pipeline.enrich for name in one.select)
    known.update(name for one in pipeline.predict for name in one.new_columns)
    return tuple(name for name in columns if name not in known)
