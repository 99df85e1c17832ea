"""A missing package is named with the extra that brings it."""

from __future__ import annotations

import importlib.util
import tomllib

import pytest

from tallyweir.services.local.embedded import extras
from tallyweir.services.local.embedded.extras import package_folder
from tallyweir.services.local.embedded.state_directory import ROOT
from tallyweir.sinks.protocol.errors import ConfigurationError


def test_a_package_that_is_there_has_a_folder() -> None:
    """It is found without an import."""
    folder = package_folder("pyspark")
    assert (folder / "__init__.py").is_file()


def test_a_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where Tallyweir was installed without any extra."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match="PACKAGE_MISSING") as caught:
        package_folder("pyspark")
    assert caught.value.fix == "pip install 'tallyweir[spark]'"


def test_every_package_belongs_to_the_extra_that_is_named() -> None:
    """An extra that lacks it would be of no help."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pins = {
        extra: " ".join(found).replace("-", "_")
        for extra, found in project["optional-dependencies"].items()
    }
    for package, extra in extras._EXTRAS.items():
        assert package in pins[extra]
