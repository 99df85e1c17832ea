"""What becomes of a pipeline, as people read it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from psycopg import sql

from tallyweir.services.cli.pipelines.plan_report import say_plan, say_versions
from tallyweir.services.operate.steering.versions_json import versions_json
from tallyweir.sinks.postgres.versions.pipeline_versions import PipelineVersion
from tallyweir.sinks.postgres.versions.version_plan import (
    Change,
    Finding,
    PlannedFate,
    PlanVerdict,
    Reckoning,
    StateFate,
    VersionPlan,
)

_REFUSED = Finding(
    verdict=PlanVerdict.INCOMPATIBLE,
    code="WINDOW_CHANGED",
    subject="output by_page",
    saw="the kind or size of its windows changed.",
    why="Its windows cannot be continued.",
    fix="Give it another table.",
)


def _version(number: int) -> PipelineVersion:
    return PipelineVersion(
        version=number,
        definition={},
        definition_hash="h",
        layout=None,
        held={},
        file_text=None,
        from_sequence=10 * number,
        epoch=None,
        is_announced=False,
        reason="a reason of several words",
        rolls_back_to=None,
        watched_batches=0,
        made_by="me",
        made_at=datetime(2026, 3, 1, tzinfo=UTC),
    )


def test_a_plan_is_told_with_its_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    """The verdict comes first, then what differs, what becomes of it, and why."""
    fate = StateFate(
        subject="output by_page",
        state="windows",
        fate=PlannedFate.LOST,
        why="It is so.",
    )
    change = Change(
        kind="changed", what="output by_page: size", before="1 minute", after="1 hour"
    )
    say_plan(
        VersionPlan(
            pipeline="views",
            changes=(change,),
            reckoning=Reckoning(
                findings=(_REFUSED,),
                fates=(fate,),
                statements=(sql.SQL("DROP TABLE {}").format(sql.Identifier("t")),),
            ),
        )
    )
    told = capsys.readouterr().out.splitlines()
    assert "views: incompatible" == told[0]
    assert "  ~ output by_page: size: 1 minute -> 1 hour" == told[1]
    assert any("lost" in line and "It is so." in line for line in told)
    assert '  SQL DROP TABLE "t"' in told
    assert "  fix: Give it another table." == told[-1]
    assert told[-3].startswith("incompatible WINDOW_CHANGED: output by_page")


def test_the_version_in_force_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    """It is the first of the list."""
    listed = [_version(2), _version(1)]
    say_versions(listed)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("2 *")
    assert "a reason of several words" in lines[2]
    assert [True, False] == [one["is_in_force"] for one in versions_json(listed)]
