"""A driver's settings, from its environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.spark_jobs.engine.driver_settings import (
    NO_PROFILE,
    PROFILES,
    DriverSettings,
)

_LEAST = {"TALLYWEIR_KAFKA_BOOTSTRAP": "broker:9092"}


def test_only_the_broker_must_be_named() -> None:
    """Everything else has a default; an empty DSN leaves it to the PG* variables."""
    settings = DriverSettings.from_environment(_LEAST, {})
    assert ("broker:9092", "", NO_PROFILE.batch_offsets_max) == (
        settings.kafka_bootstrap,
        settings.home_dsn,
        settings.batch_offsets_max,
    )
    assert settings.spark_master.startswith("local[")
    assert settings.state_directory.is_absolute()


def test_settings_are_taken_from_the_environment() -> None:
    """Relative state directories are resolved at once, before anything moves."""
    settings = DriverSettings.from_environment(
        {
            **_LEAST,
            "TALLYWEIR_STATE_DIR": "somewhere",
            "TALLYWEIR_BATCH_OFFSETS_MAX": "7",
            "TALLYWEIR_SPARK_MASTER": "local[1]",
        },
        {},
    )
    assert (Path.cwd() / "somewhere", 7, "local[1]") == (
        settings.state_directory,
        settings.batch_offsets_max,
        settings.spark_master,
    )


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_says_what_the_environment_does_not(name: str) -> None:
    """And Spark's executors are left to Spark's own files where there is none."""
    profile = PROFILES[name]
    settings = DriverSettings.from_environment(
        {**_LEAST, "TALLYWEIR_PROFILE": name, "TALLYWEIR_DRIVER_MEMORY": "1g"}, {}
    )
    assert settings.batch_offsets_max == profile.batch_offsets_max
    assert settings.driver_memory == "1g"
    assert settings.executors["spark.executor.memory"] == profile.executor_memory
    assert not DriverSettings.from_environment(_LEAST, {}).executors


def test_an_unknown_profile_is_told_with_the_nearest_one() -> None:
    """A typing error must not run a pipeline with other settings than meant."""
    with pytest.raises(ConfigurationError) as caught:
        DriverSettings.from_environment({**_LEAST, "TALLYWEIR_PROFILE": "stream"}, {})
    assert "PROFILE_UNKNOWN" == caught.value.code
    assert "Did you mean streaming?" in caught.value.saw


@pytest.mark.parametrize("environment", [{}, {"TALLYWEIR_KAFKA_BOOTSTRAP": ""}])
def test_without_a_broker_there_is_no_driver(environment: dict[str, str]) -> None:
    """An empty address is none."""
    with pytest.raises(ConfigurationError) as caught:
        DriverSettings.from_environment(environment, {})
    assert "SETTING_MISSING" == caught.value.code


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", "", "1_000"])
def test_a_batch_is_a_whole_number_above_zero(text: str) -> None:
    """The error names the variable and what it holds."""
    with pytest.raises(ConfigurationError) as caught:
        DriverSettings.from_environment(
            {**_LEAST, "TALLYWEIR_BATCH_OFFSETS_MAX": text}, {}
        )
    assert "SETTING_INVALID" == caught.value.code
    assert f"TALLYWEIR_BATCH_OFFSETS_MAX is {text!r}" in caught.value.saw


def test_no_password_is_printed() -> None:
    """Settings end up in logs."""
    settings = DriverSettings.from_environment(
        {
            **_LEAST,
            "TALLYWEIR_HOME_DSN": "postgresql://u:hush-hush@h/d",
            "TALLYWEIR_DATABASES": '{"billing": "host=b password=be-quiet"}',
        },
        {},
    )
    assert "host=b password=be-quiet" == settings.databases["billing"]
    assert "hush-hush" not in repr(settings)
    assert "be-quiet" not in repr(settings)


def test_a_pipelines_databases_must_be_given() -> None:
    """A driver that cannot know where to write does not start."""
    with pytest.raises(ConfigurationError) as caught:
        DriverSettings.from_environment(_LEAST, {"billing": ""})
    assert "DATABASE_UNKNOWN" == caught.value.code


@pytest.mark.parametrize("text", ["0", "65536", "http"])
def test_the_port_of_claims_is_a_port(text: str) -> None:
    """Without one it is any that is free, which a firewall cannot know."""
    assert 0 == DriverSettings.from_environment(_LEAST, {}).claims_port
    given = {**_LEAST, "TALLYWEIR_CLAIMS_PORT": "65535"}
    assert 65_535 == DriverSettings.from_environment(given, {}).claims_port
    with pytest.raises(ConfigurationError) as caught:
        DriverSettings.from_environment({**_LEAST, "TALLYWEIR_CLAIMS_PORT": text}, {})
    assert "SETTING_INVALID" == caught.value.code
    assert "at most 65535" in caught.value.why


def test_a_driver_without_assertions_does_not_start() -> None:
    """Some of what keeps a batch from being published wrongly are assertions."""
    program = (
        "from tallyweir.spark_jobs.engine.driver_settings import DriverSettings\n"
        f"DriverSettings.from_environment({_LEAST}, {{}})"
    )
    ended = {
        options: subprocess.run(
            [sys.executable, *options, "-c", program],
            capture_output=True,
            text=True,
            check=False,
        ).stderr
        for options in ((), ("-O",))
    }
    assert ended[()] == ""
    assert "ASSERTIONS_OFF" in ended[("-O",)]
