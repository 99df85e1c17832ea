"""The schemas by which a run's events are written, one after another, in a registry.

Each has a field that only it has; the last has none, and is the one that the pipeline's
columns are of. So drivers meet a new id in each part of a run, and must ask for it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection
from pathlib import Path

from tallyweir.schemas.contract import Contract, load_contract
from tallyweir.services.local.embedded.apicurio import Apicurio
from tallyweir.sinks.protocol.errors import FatalError


class RegisteredWriters:
    """The schemas of a run; every sender and the nemesis may use them.

    Args:
        registry: A registry without schemas, which gets them.
        subject: Their subject.
        contract_file: The last of them.
        folder: Where files of the others go.
        count: How many there are.
        read_kept: Reads the ids whose schemas the home database keeps.
    """

    def __init__(  # noqa: PLR0913 (keyword-only; each is a part of it)
        self,
        registry: Apicurio,
        *,
        subject: str,
        contract_file: Path,
        folder: Path,
        count: int,
        read_kept: Callable[[], Collection[int]],
    ) -> None:
        self.registry = registry
        self._subject = subject
        self._read_kept = read_kept
        last = json.loads(contract_file.read_text("utf-8"))
        schemas = [
            last
            | {"fields": [{"name": f"only_{n}", "type": "string"}, *last["fields"]]}
            for n in range(1, count)
        ]
        schemas.append(last)
        self._texts = [json.dumps(schema) for schema in schemas]
        self._ids = registry.register(subject, self._texts)
        self._contracts = []
        for schema, schema_id in zip(schemas, self._ids, strict=True):
            file = folder / f"writer-{schema_id}" / contract_file.name
            file.parent.mkdir(parents=True)
            file.write_text(json.dumps(schema | {"schema_id": schema_id}), "utf-8")
            self._contracts.append(load_contract(str(file)))
        self._used: set[int] = set()
        self._is_wiped = False
        self._lock = threading.RLock()

    def at(self, share: float) -> Contract:
        """Return the contract of what is sent after this share of the run's events."""
        writer = self._contracts[min(int(share * len(self._ids)), len(self._ids) - 1)]
        with self._lock:
            if writer.schema_id not in self._used:
                self.restore()
                self._used.add(writer.schema_id)
        return writer

    def wipe(self) -> bool:
        """Take all schemas away, if the home keeps those of every record.

        Other records would be dead letters, as they should be. The schemas are there
        again before the next of them is used for the first time.

        Returns:
            Whether they are gone.
        """
        with self._lock:
            if not self._used <= set(self._read_kept()):
                return False
            self.registry.wipe()
            self._is_wiped = True
        return True

    def restore(self) -> None:
        """Register the schemas again, if they are gone.

        Raises:
            FatalError: ``CHAOS_STUCK``: they have other ids than before.
        """
        with self._lock:
            if not self._is_wiped:
                return
            ids = self.registry.register(self._subject, self._texts)
            if ids != self._ids:
                raise FatalError(
                    "CHAOS_STUCK",
                    saw=f"The wiped registry gave {ids}, and {self._ids} before.",
                    why="Records that are sent from now on would name other schemas.",
                    fix="Run again; report it if it comes again.",
                )
            self._is_wiped = False
