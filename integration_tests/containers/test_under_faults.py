"""Scenarios that take long: everybody sends, something breaks, everything counts once.

Each ends with the same reckoning, see ``reckoning``.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg import sql

from integration_tests.containers.deployment import Deployment, output_of, running
from integration_tests.containers.patience import await_true
from integration_tests.containers.reckoning import PAGE_VIEWS, Reckoning
from integration_tests.containers.scene import Scene
from integration_tests.containers.silence import silence
from integration_tests.containers.traffic import Promises
from tallyweir.schemas.contract import CONTRACTS_FOLDER
from tallyweir.services.local.embedded.state_directory import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1_800)]

_PAGE_VIEWS = 3_000
_FENCED = 76
#: A driver that thaws may first have to get new executors.
_END_TIMEOUT_S = 300
#: Sessions from an address that wait for a lock.
_WAITING = (
    "SELECT FROM pg_stat_activity WHERE client_addr = %s AND wait_event_type = 'Lock'"
)
_STAGED_TWICE = sql.SQL(
    "SELECT count(*) FROM (SELECT FROM {} GROUP BY kafka_partition, kafka_offset "
    "HAVING count(DISTINCT xmin::text) > 1) AS twice"
)
_ALL = (
    *("kafka", "postgres", "spark-master", "spark-worker-1", "spark-worker-2"),
    *("driver", "relay", "resolver", "ingest"),
)
#: Workers are among what breaks; a driver would stage such batches itself.
_TASKS_ONLY = {"TALLYWEIR_SMALL_BATCH_OFFSETS_MAX": "0"}
_DRIVER = ["python", "-P", "-m", "tallyweir.spark_jobs"]
_PIPELINES = "/etc/tallyweir/pipelines"


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pipeline of the compose file, and beside it both versions of its contract."""
    folder = tmp_path_factory.mktemp("pipelines")
    folder.chmod(0o755)
    text = (ROOT / "docker" / "pipelines" / "departures.yaml").read_text("utf-8")
    (folder / "departures.yaml").write_text(
        text.replace(
            "schema: flight_departure.v1 ", "schema: flight_departure.v1.avsc "
        )
    )
    first = CONTRACTS_FOLDER / "flight_departure.v1.avsc"
    shutil.copy(first, folder)
    contract = json.loads(first.read_text("utf-8"))
    gate = {"name": "gate", "type": ["null", "string"], "default": None}
    contract["fields"].append(gate)
    (folder / "flight_departure.v2.avsc").write_text(json.dumps(contract))
    _write_page_views(folder)
    return folder


def _write_page_views(folder: Path) -> None:
    shutil.copy(CONTRACTS_FOLDER / "page_view.v1.avsc", folder)
    text = (ROOT / "spark_jobs" / "pipelines" / "page-views.yaml").read_text("utf-8")
    (folder / "page-views.yaml").write_text(
        text.replace("schema: page_view.v1", "schema: page_view.v1.avsc")
    )
    views = (
        {
            "event_id": str(uuid.UUID(int=number)),
            "user_id": number % 97,
            "page": f"/{number % 13}",
            "country": "NZ",
            "viewed_at": f"2013-01-12T10:00:{number % 60:02}Z",
            "value": number / 4,
        }
        for number in range(_PAGE_VIEWS)
    )
    (folder / "page-views.jsonl").write_text("\n".join(map(json.dumps, views)))


def _page_view_rights(file: str) -> list[str]:
    users = {"producer": "demo", "driver": "driver", "relay": "relay"}
    return [
        *("kafka-access", file, "--partitions=4"),
        *(
            f"--user={service}=/run/secrets/kafka_{user}.properties"
            for service, user in users.items()
        ),
    ]


@pytest.fixture(scope="module")
def scene(system: Deployment, secrets: Path, pipelines: Path) -> Iterator[Scene]:
    """A system of its own, whose Postgres has a small disk.

    The other one rests: its drivers, checks of health and broker would take a fifth of
    two cores. This module is the last by name, so nobody needs it afterwards.
    """
    deployment = Deployment(
        secrets,
        {"driver": {**_TASKS_ONLY, "TALLYWEIR_BATCH_OFFSETS_MAX": "2000"}},
        mounts={"./pipelines": pipelines},
        volume_options={
            "postgres": {
                "type": "tmpfs",
                "device": "tmpfs",
                "o": "size=1g,uid=999,gid=999,mode=700",
            }
        },
    )
    with system.resting(), running(deployment) as disturbed:
        disk = disturbed.hold("postgres")
        disturbed.start("kafka", "postgres", "spark-master")
        disturbed.start("migrate", "kafka-access", "spark-worker-1", "spark-worker-2")
        disturbed.start("resolver", "relay", "ingest", "driver")
        yield Scene(disturbed, secrets, pipelines, disk)


def test_everybody_may_send_at_once(scene: Scene) -> None:
    """Without a fault: repeats, aborted transactions, two versions, broken records."""
    with scene.under_load("calm") as traffic:
        scene.await_batches(10)
    assert traffic.promises.aborted


def test_two_pipelines_share_a_cluster(scene: Scene, pipelines: Path) -> None:
    """Page views beside flights, with a driver of their own, which is killed."""
    file = f"{_PIPELINES}/page-views.yaml"
    with scene.under_load("two-pipelines"):
        output_of(scene.system.run("kafka-access", *_page_view_rights(file)))
        driver = scene.system.run("driver", *_DRIVER, file)
        for seed in ("1", "2"):
            views = ["--input", f"{_PIPELINES}/page-views.jsonl", "--seed", seed]
            faults = ["--duplicates", "0.1", "--poison", "0.02"]
            output_of(scene.system.run("tallyweir", "emit", file, *views, *faults))
            driver.kill()
            driver.start()
        reckoning = Reckoning(scene.system, pipelines, PAGE_VIEWS)
        reckoning.reckon(Promises(acknowledged=[], aborted=[]))
        driver.stop(timeout=130)


def test_a_second_driver_takes_over_from_a_paused_one(scene: Scene) -> None:
    """The one that wakes up is fenced, and has published nothing since."""
    with scene.under_load("takeover"):
        first = scene.system.container("driver")
        first.update(restart_policy={"Name": "no"})
        first.pause()
        before = scene.batches_by_epoch()
        second = scene.system.run("driver", *_DRIVER, f"{_PIPELINES}/departures.yaml")
        scene.await_batches(3)
        first.unpause()
        assert first.wait(timeout=_END_TIMEOUT_S)["StatusCode"] == _FENCED
        assert "FENCED" in scene.system.log("driver")
    after = scene.batches_by_epoch()
    assert {epoch: after[epoch] for epoch in before} == before
    second.stop(timeout=130)
    assert second.wait()["StatusCode"] == 0
    first.update(restart_policy={"Name": "on-failure"})
    first.start()
    scene.system.await_ready("driver")


def test_everything_may_be_restarted_one_after_the_other(scene: Scene) -> None:
    """As an upgrade does it; the next one waits until events flow again."""
    with scene.under_load("restarts"):
        for service in _ALL:
            scene.restart(service)
            scene.await_batches(2)


def test_what_a_zombie_task_stages_is_never_published(scene: Scene) -> None:
    """A worker freezes in mid-stage, and thaws when its task has long run elsewhere."""
    with scene.under_load("zombie"), scene.system.connected() as postgres:
        # Executors are on both workers again, whatever happened before.
        scene.restart("driver")
        scene.await_batches(2)
        staging = scene.staging_of("output_0")
        zombie = scene.system.container("spark-worker-1")
        with postgres.transaction():
            postgres.execute(
                sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(staging)
            )
            address = scene.system.address("spark-worker-1")
            await_true(
                lambda: bool(postgres.execute(_WAITING, (address,)).fetchall()),
                "a task of the worker to stage",
            )
            zombie.pause()
        # Spark gives a silent worker up after a minute.
        scene.await_batches(3)
        staged_twice = _STAGED_TWICE.format(staging)
        before = postgres.execute(staged_twice).fetchall()
        zombie.unpause()
        await_true(
            lambda: postgres.execute(staged_twice).fetchall() != before,
            "the zombie's rows to be staged beside those that were published",
        )


def test_a_full_disk_of_postgres_stops_the_pipeline_until_there_is_space(
    scene: Scene,
) -> None:
    """The driver says why it waits, and needs nobody to go on."""
    with scene.under_load("disk-full"):
        scene.fill_disk()
        await_true(
            lambda: "No space left on device" in scene.system.log("driver"),
            "the driver to say that the disk is full",
        )
        scene.free_disk()
        scene.system.await_ready("postgres")


@pytest.mark.parametrize("service", ["driver", "spark-worker-1"])
def test_silence_between_a_service_and_postgres_passes(
    scene: Scene, service: str
) -> None:
    """Packets vanish, nobody gets a reset: it is noticed, and then got over."""
    with scene.under_load(f"silence-{service}"):
        # A worker that was given up has no executors until a driver asks anew.
        scene.restart("driver")
        scene.await_batches(2)
        restarts = scene.count_restarts()
        with silence(scene.system, service, "postgres"):
            await_true(
                lambda: scene.count_restarts() > restarts,
                "the driver to notice that Postgres is silent",
            )
