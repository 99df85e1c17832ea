"""The Spark session of a driver, with the settings that exactly-once depends on.

Spark's files are in a scratch directory, which ends with the driver's process.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from tallyweir.spark_jobs.engine.driver_settings import DriverSettings


def quoted(option: str) -> str:
    """Quote an option that may hold spaces, for Spark's launcher."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


#: A length field in a hostile payload can ask for gigabytes. Avro allocates them before
#: it notices that the payload is too short, and the JVM dies. These limits turn that
#: into an error of one record.
_AVRO_LIMITS = (
    "-Dorg.apache.avro.limits.bytes.maxLength=16777216 "
    "-Dorg.apache.avro.limits.string.maxLength=16777216 "
    "-Dorg.apache.avro.limits.collectionItems.maxLength=1000000"
)

#: With Java's own thresholds, the JVM's optimising compiler keeps a core busy for
#: minutes: a driver runs thousands of methods some thousand times for each batch, and
#: about a dozen for each event. With these thresholds the JVM optimises the methods for
#: events as early, and the others hardly ever.
_COMPILER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)

#: The optimising compiler skips the methods that this file names: in a driver's first
#: minute it spent half of its time on them. For each batch Spark reads the byte code of
#: its closures, looks for classes and serialises tasks; the simple compiler makes this
#: fast enough. The file names no method that runs for events or that such a method may
#: call.
_DIRECTIVES = Path(__file__).with_name("compiler_directives.json")
_LEFT_OUT = (
    "-XX:+UnlockDiagnosticVMOptions "
    f"{quoted(f'-XX:CompilerDirectivesFile={_DIRECTIVES}')}"
)

#: Spark's classes exceed the JVM's initial metaspace. At each step to a larger one the
#: JVM stops and collects the whole heap: 90 and 140 ms in a driver's first seconds.
_ROOM = "-XX:MetaspaceSize=256m"

#: The JVM may collect garbage for a twentieth of its time. Its default is a hundredth,
#: which a stream of batches misses with any heap. So the JVM took more and more of its
#: allowed heap, for a quarter of an hour, without getting faster.
_COLLECTING = "-XX:+UseParallelGC -XX:GCTimeRatio=19"

#: The names that PySpark asks the JVM for at each batch. For a name without a package
#: the JVM searches all jars on its path, one package after the other.
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

#: Settings that correctness requires; ``docs/protocol.md`` gives the reasons.
_SAFETY = {
    # With speculation, both copies of a task would vote.
    "spark.speculation": "false",
    # Adaptive execution merges shuffle partitions by size, which differs between
    # runs; tasks must get the same rows at every attempt.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
}

#: With these, a pipeline's expression gives an exact value or raises an exception.
#: ``exact_expressions.py`` catches it for the single event.
_EXACT = {
    "spark.sql.ansi.enabled": "true",
    # Otherwise Spark drops decimal places, or digits, of decimals that need too many.
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.legacy.decimal.retainFractionDigitsOnTruncate": "true",
    # Otherwise Spark computes a subexpression that two expressions share, or that one
    # contains twice, before both. No code catches an exception there.
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.alwaysInlineCommonExpr": "true",
    # Otherwise ``a + 1 + 2`` becomes ``a + (1 + 2)``, which overflows in other cases.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer"
    ".ReorderAssociativeOperator",
    # Otherwise Arrow converts what a function in a transform gives: a text into a
    # number, for example.
    "spark.sql.execution.pythonUDF.arrow.enabled": "false",
    "spark.sql.execution.pythonUDTF.arrow.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "false",
    # Otherwise Spark replaces ``${…}`` in a text with a value from the environment.
    "spark.sql.variable.substitute": "false",
}

_SPEED = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Only the number of rows ends an Arrow batch. With a limit of bytes, Spark adds up
    # the sizes of all columns at each row. A task's Python holds all of its rows in
    # memory in the end, so a single batch of them matters less.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "tallyweir.spark_jobs.engine.python_daemon",
    # Shuffled rows stay on the machine or its network for a moment; compressing them
    # costs more than moving them.
    "spark.shuffle.compress": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    # The JVM does not compile longer methods; with this limit Spark splits them.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # Otherwise PySpark inspects its caller's stack for each new column, to quote it in
    # error messages.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.shuffle.sort.bypassMergeThreshold": "400",
    # Otherwise Spark sums each shuffled row up, and fails the job if a lost task gives
    # other rows. ``stage_jobs.py`` finds such rows, and stages the batch again.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
}

#: How Spark writes its two log entries for each batch. Spark's default starts processes
#: for each file, which takes longer than staging a small batch. With these settings
#: Spark writes a file and renames it; ``docs/adr/0005-checkpoint-files.md`` says why
#: that is safe.
_CHECKPOINT_FILES = {
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution"
    ".streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}

#: The kernel of a frozen worker still accepts connections. With Spark's own limits (two
#: minutes, four times) a batch would wait eight minutes for its shuffled rows before
#: another worker computes them again.
_PATIENCE = {
    "spark.shuffle.io.connectionTimeout": "30s",
    "spark.shuffle.io.maxRetries": "1",
}


def start_spark_session(
    settings: DriverSettings, *, name: str, java_options: str = ""
) -> SparkSession:
    """Start Spark in this process.

    Args:
        settings: The driver's settings.
        name: The application's name in Spark's pages and logs.
        java_options: Additional options for the driver's JVM.
    """
    scratch = scratch_directory(settings.state_directory / "scratch")
    logging = Path(__file__).with_name("log4j2.properties")
    log_file = settings.state_directory / "logs" / f"{name}.spark.log"
    log_file.parent.mkdir(parents=True, exist_ok=True)
    if settings.class_archive is not None:
        shared = f"-XX:SharedArchiveFile={settings.class_archive}"
        java_options += f" {quoted(shared)}"
    java_options = (
        # The JVM's warnings about classes that it cannot archive are useless.
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
        # In local mode no other machine needs to reach the driver; in other modes Spark
        # finds the address. Without authentication Spark would deserialise whatever a
        # process on this machine sends to its ports. In local mode Spark draws the
        # secret itself and shows it nowhere.
        for key, value in {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.authenticate": "true",
        }.items():
            builder = builder.config(key, value)
    # Without a profile this is empty, and Spark's own files decide.
    for key, value in settings.executors.items():
        builder = builder.config(key, value)
    ours = {**_SAFETY, **_EXACT, **_SPEED, **_CHECKPOINT_FILES, **_PATIENCE}
    for key, value in ours.items():
        builder = builder.config(key, value)
    # If PySpark starts in the main thread, it installs its own handler for Ctrl-C.
    with _output_to(log_file), ThreadPoolExecutor(max_workers=1) as starter:
        spark = starter.submit(builder.getOrCreate).result()
    _remember_names(spark)
    return spark


def _remember_names(spark: SparkSession) -> None:
    """Cache these names where PySpark looks first, so that it does not ask the JVM."""
    jvm = spark.sparkContext._jvm  # noqa: SLF001 - PySpark looks names up in it
    assert jvm is not None, "the session runs"
    for name in _JVM_NAMES:
        setattr(jvm, name, getattr(jvm, name))


@contextmanager
def _output_to(log_file: Path) -> Iterator[None]:
    """Redirect the output and errors of a JVM that starts in the block to the log file.

    The JVM and Spark's launcher print before logging begins. Their lines would
    otherwise appear between the lines that people or programs read.
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


_LOCK_NAME = "in-use.lock"

#: The locks of this process. The kernel releases them when it ends, in whatever way.
_held: list[int] = []


def scratch_directory(parent: Path) -> Path:
    """Make a directory for this process, and delete those whose process is gone.

    Spark deletes its files when it ends, but a killed process cannot delete them. Its
    files would otherwise stay.

    Args:
        parent: The directory that holds the scratch directories of all processes.
    """
    parent.mkdir(parents=True, exist_ok=True)
    # Let in one process at a time; otherwise one could delete a directory that another
    # is about to lock.
    gate = _open_lock(parent / _LOCK_NAME)
    try:
        fcntl.flock(gate, fcntl.LOCK_EX)
        for former in parent.iterdir():
            if former.is_dir() and _is_left(former):
                shutil.rmtree(former, ignore_errors=True)
        directory = parent / uuid.uuid4().hex
        directory.mkdir()
        lock = _open_lock(directory / _LOCK_NAME)
        fcntl.flock(lock, fcntl.LOCK_EX)
        _held.append(lock)
    finally:
        os.close(gate)
    return directory


def _is_left(directory: Path) -> bool:
    lock = _open_lock(directory / _LOCK_NAME)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


def _open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
