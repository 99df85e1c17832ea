"""The plan of what becomes of a pipeline when another version comes into force."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from psycopg import sql

from tallyweir.sinks.postgres.versions.held_knowledge import HeldKnowledge
from tallyweir.sinks.protocol.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedVersion:
    """A version as it is kept, or as it would be.

    Attributes:
        definition: The definition as the ledger holds it.
        layout: The version's tables, as ``layout_to_json`` describes them.
        file_text: The pipeline file, if it was YAML.
    """

    definition: Mapping[str, Any]
    definition_hash: str
    layout: Mapping[str, Any]
    file_text: str | None = None


class PlanVerdict(Enum):
    """Whether a version can follow another one, from good to bad."""

    COMPATIBLE = "compatible"
    NEEDS_MIGRATION = "needs migration"
    INCOMPATIBLE = "incompatible"


class PlannedFate(Enum):
    """The fate of something that a pipeline has kept."""

    KEPT = "kept"
    MIGRATED = "migrated"
    STARTS_EMPTY = "starts empty"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference between two pipelines."""

    kind: str
    what: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The meaning of one difference.

    Attributes:
        code: The code of the error that refuses it; empty if it is not refused.
        fix: The way out; empty if none is needed.
    """

    verdict: PlanVerdict
    subject: str
    saw: str
    why: str
    fix: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFate:
    """The fate of one kind of state, and why."""

    subject: str
    state: str
    fate: PlannedFate
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reckoning:
    """The consequences of some differences.

    Attributes:
        findings: What the differences mean.
        fates: What becomes of state.
        statements: The statements that the update runs, in its transaction.
    """

    findings: tuple[Finding, ...] = ()
    fates: tuple[StateFate, ...] = ()
    statements: tuple[sql.Composed, ...] = ()

    def __add__(self, other: Reckoning) -> Reckoning:
        return Reckoning(
            findings=self.findings + other.findings,
            fates=self.fates + other.fates,
            statements=self.statements + other.statements,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionPlan:
    """The whole plan for a pipeline.

    Attributes:
        held: What the new version's windows and IDs do not know.
    """

    pipeline: str
    changes: tuple[Change, ...]
    reckoning: Reckoning
    held: HeldKnowledge = field(default_factory=HeldKnowledge)

    @property
    def verdict(self) -> PlanVerdict:
        """The worst verdict of the findings."""
        order = list(PlanVerdict)
        found = (finding.verdict for finding in self.reckoning.findings)
        return max(found, key=order.index, default=PlanVerdict.COMPATIBLE)

    @property
    def ddl(self) -> list[str]:
        """The statements as text, for people to read."""
        return [one.as_string(None) for one in self.reckoning.statements]

    def of(self, verdict: PlanVerdict) -> Iterator[Finding]:
        """Return the findings of one verdict."""
        return (one for one in self.reckoning.findings if one.verdict is verdict)

    def check_possible(self) -> None:
        """Refuse a plan that no update can carry out.

        Raises:
            ConfigurationError: The code of the first finding that forbids it.
        """
        for finding in self.of(PlanVerdict.INCOMPATIBLE):
            raise ConfigurationError(
                finding.code, saw=finding.saw, why=finding.why, fix=finding.fix
            )

    def check_compatible(self) -> None:
        """Refuse a plan that a driver may not carry out by being started.

        Raises:
            ConfigurationError: As ``check_possible``, or ``UPDATE_NEEDED``.
        """
        self.check_possible()
        for finding in self.of(PlanVerdict.NEEDS_MIGRATION):
            raise ConfigurationError(
                "UPDATE_NEEDED",
                saw=f"Its file changes {finding.subject}: {finding.saw}",
                why=f"{finding.why} Such a change is an update, which an operator "
                "must request.",
                fix="Run tallyweir plan FILE to see all changes and tallyweir update "
                "FILE --reason TEXT to apply them, then start the pipeline again.",
            )

    def to_json(self) -> dict[str, Any]:
        """Return what ``plan --json`` prints."""
        return {
            "pipeline": self.pipeline,
            "verdict": self.verdict.value,
            "changes": [
                {
                    "kind": one.kind,
                    "what": one.what,
                    "before": one.before,
                    "after": one.after,
                }
                for one in self.changes
            ],
            "state": [
                {
                    "subject": one.subject,
                    "state": one.state,
                    "fate": one.fate.value,
                    "why": one.why,
                }
                for one in self.reckoning.fates
            ],
            "ddl": self.ddl,
            "reasons": [
                {
                    "verdict": one.verdict.value,
                    "code": one.code or None,
                    "subject": one.subject,
                    "saw": one.saw,
                    "why": one.why,
                    "fix": one.fix or None,
                }
                for one in self.reckoning.findings
            ],
        }
