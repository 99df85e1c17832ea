"""The Spark session of a driver, with the settings that exactly-once depends on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from spark_jobs.engine.scratch_directory import scratch_directory
from spark_jobs.engine.settings import DriverSettings


def quoted(option: str) -> str:
    """Return an option as Spark's launcher reads one that may hold spaces."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


#: A length field in a hostile payload may ask for gigabytes. Avro allocates them
#: before it notices that the payload is too short, and the JVM dies; these bounds
#: turn that into an error of one record.
_AVRO_LIMITS = (
    "-Dorg.apache.avro.limits.bytes.maxLength=16777216 "
    "-Dorg.apache.avro.limits.string.maxLength=16777216 "
    "-Dorg.apache.avro.limits.collectionItems.maxLength=1000000"
)

#: The JVM's optimising compiler takes a core for minutes at Java's own thresholds: a
#: driver runs thousands of methods some thousand times for each batch, and a dozen for
#: each event. With these the latter are optimised as soon, and the others hardly.
_COMPILER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)

#: The optimising compiler leaves out what this names: in a driver's first minute half
#: of its time went there. For each batch Spark reads the byte code of its closures,
#: looks for classes and serialises tasks, which is no work to speak of once compiled by
#: the simple compiler. What runs for events is not named, nor is what that may call.
_DIRECTIVES = Path(__file__).with_name("compiler_directives.json")
_LEFT_OUT = (
    "-XX:+UnlockDiagnosticVMOptions "
    f"{quoted(f'-XX:CompilerDirectivesFile={_DIRECTIVES}')}"
)

#: Spark's classes are more than the JVM makes room for at first, and at each step to
#: more it stops to collect the whole heap: 90 and 140 ms in a driver's first seconds.
_ROOM = "-XX:MetaspaceSize=256m"

#: The JVM may collect for a twentieth of its time. Its own goal is a hundredth, which a
#: stream of batches misses with any heap: so it took more and more of what it may, for
#: a quarter of an hour, and was not faster for it.
_COLLECTING = "-XX:+UseParallelGC -XX:GCTimeRatio=19"

#: What PySpark asks the JVM for, by these names, at each batch. For a name without a
#: package the JVM looks into all jars on its path, one package after the other.
_JVM_NAMES = (
    "PythonSQLUtils",
    "PythonUtils",
    "SimplePythonFunction",
    "org.apache.spark.sql.Observation",
    "org.apache.spark.sql.api.python.PythonSQLUtils",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.classic.SparkSession$",
    "org.apache.spark.sql.execution.python.UserDefinedPythonFunction",
    "org.apache.spark.sql.functions",
)

#: Refused or forced, each for a reason that ``docs/protocol.md`` gives.
_SAFETY = {
    # Two copies of one task would both be voted for.
    "spark.speculation": "false",
    # Adaptive execution merges shuffle partitions by size, which differs between
    # runs; tasks must get the same rows at every attempt.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
}

#: What an expression that a pipeline has gives is exact, or it raises an exception,
#: which ``exact_expressions.py`` catches for the event at hand.
_EXACT = {
    "spark.sql.ansi.enabled": "true",
    # Of decimals that need too many digits Spark would drop places, or digits.
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.legacy.decimal.retainFractionDigitsOnTruncate": "true",
    # Spark would compute what two expressions share, and what one mentions twice,
    # before both: there nothing catches an exception.
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.alwaysInlineCommonExpr": "true",
    # ``a + 1 + 2`` would become ``a + (1 + 2)``, which may overflow where it does not.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer"
    ".ReorderAssociativeOperator",
    # A text in an expression is what it says, and not what the environment holds.
    "spark.sql.variable.substitute": "false",
}

_SPEED = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Batches end by their rows alone. Where they may also end by their bytes, Spark
    # adds up the sizes of all columns at each row. A task's rows all come to be in the
    # memory of its Python, so a batch of them is the smaller part.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "spark_jobs.engine.python_daemon",
    # Shuffled rows stay on the machine or its network for a moment; packing them
    # costs more than moving them.
    "spark.shuffle.compress": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    # The JVM compiles no longer method; Spark makes several of it then.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # PySpark would look through its caller's stack at each column that is made, to
    # quote it in an error's message.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.shuffle.sort.bypassMergeThreshold": "400",
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
}

#: How Spark writes its two log entries for each batch. Its own choice starts processes
#: for each file, which takes longer than staging a small batch; these write a file and
#: rename it. ``docs/adr/0005-checkpoint-files.md`` says why that is safe.
_CHECKPOINT_FILES = {
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution"
    ".streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}

#: A frozen worker still accepts connections, its kernel does; with Spark's own limits
#: (two minutes, four times) a batch would wait eight minutes for its shuffled rows
#: before another worker makes them again.
_PATIENCE = {
    "spark.shuffle.io.connectionTimeout": "30s",
    "spark.shuffle.io.maxRetries": "1",
}


def start_session(
    settings: DriverSettings, *, name: str, java_options: str = ""
) -> SparkSession:
    """Start Spark in this process.

    Args:
        settings: The driver's settings.
        name: The application's name in Spark's pages and logs.
        java_options: More of them for the driver's JVM.
    """
    scratch = scratch_directory(settings.state_directory / "scratch")
    logging = Path(__file__).with_name("log4j2.properties")
    log_file = settings.state_directory / "logs" / f"{name}.spark.log"
    log_file.parent.mkdir(parents=True, exist_ok=True)
    if settings.class_archive is not None:
        shared = f"-XX:SharedArchiveFile={settings.class_archive}"
        java_options += f" {quoted(shared)}"
    java_options = (
        # What it says of classes that it cannot archive is of no use to anybody.
        f"{java_options} -Xlog:cds=off -Xlog:cds+dynamic=off "
        f"{_COMPILER} {_LEFT_OUT} {_ROOM} {_COLLECTING} "
        f"{_AVRO_LIMITS} {quoted(f'-Djava.io.tmpdir={scratch}')} "
        f"-Dlog4j2.configurationFile={logging.as_uri()} "
        f"{quoted(f'-Dtallyweir.log={log_file}')}"
    )
    builder = (
        SparkSession.builder.appName(name)
        .master(settings.spark_master)
        .config("spark.driver.memory", settings.driver_memory)
        .config("spark.driver.extraJavaOptions", java_options)
        .config("spark.executor.extraJavaOptions", f"{_COMPILER} {_AVRO_LIMITS}")
        .config("spark.jars", settings.spark_jars)
        .config("spark.local.dir", str(scratch))
        .config("spark.sql.warehouse.dir", str(settings.state_directory / "warehouse"))
    )
    if settings.spark_master.startswith("local"):
        # Nobody else needs to reach the driver; elsewhere Spark finds the address.
        # What comes to its ports would be deserialised, whoever on this machine sent
        # it; in this mode Spark draws the secret itself and shows it nowhere.
        for key, value in {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.authenticate": "true",
        }.items():
            builder = builder.config(key, value)
    # Only where a profile is chosen: else Spark's own files say.
    for key, value in settings.executors.items():
        builder = builder.config(key, value)
    ours = {**_SAFETY, **_EXACT, **_SPEED, **_CHECKPOINT_FILES, **_PATIENCE}
    for key, value in ours.items():
        builder = builder.config(key, value)
    # Where it starts in the main thread, PySpark takes Ctrl-C for itself.
    with _output_to(log_file), ThreadPoolExecutor(max_workers=1) as starter:
        spark = starter.submit(builder.getOrCreate).result()
    _remember_names(spark)
    return spark


def _remember_names(spark: SparkSession) -> None:
    """Have PySpark find these names where it looks first, and ask the JVM no more."""
    jvm = spark.sparkContext._jvm  # noqa: SLF001 - PySpark looks names up in it
    assert jvm is not None, "the session runs"
    for name in _JVM_NAMES:
        setattr(jvm, name, getattr(jvm, name))


@contextmanager
def _output_to(log_file: Path) -> Iterator[None]:
    """Give the JVM that starts in here the log file as its output and its errors.

    The JVM and Spark's launcher print there before any logging begins, in the middle
    of what a person or a program reads.
    """
    kept = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
    log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for descriptor in kept:
            os.dup2(log, descriptor)
        yield
    finally:
        for descriptor, former in kept.items():
            os.dup2(former, descriptor)
            os.close(former)
        os.close(log)
