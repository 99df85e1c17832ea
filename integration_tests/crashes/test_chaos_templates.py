"""Ready pipelines under kills: as undisturbed ones, and nothing stays behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from integration_tests.harness.command import Command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2_400)]

_KILLS = 3


@pytest.mark.long
def test_killed_drivers_leave_the_tables_of_an_undisturbed_run(tmp_path: Path) -> None:
    """Keyed state and timers included: machines, with silences between readings."""
    command = Command("chaos-templates", tmp_path)
    process = command.start(
        *("factory", "--kills", str(_KILLS), "--events", "1500", "--json")
    )
    output, lines = process.communicate()

    assert process.returncode == 0, output + lines
    (report,) = json.loads(output.splitlines()[-1])["templates"]
    assert report["verdict"] == "ok"
    assert report["kills"] == lines.count("% of a batch") == _KILLS
    assert report["killed_batches"] > report["undisturbed_batches"]
    rows = report["rows"]
    assert rows["machine_readings"] > 1_500
    # Each reading is reported, and each machine's two silences and that before the end.
    assert rows["machine_reports"] >= rows["machine_readings"] + 3 * 8
    assert rows["tallyweir.keyed_state"] == 8
    assert rows["tallyweir.dead_letter"] > 0
    assert rows["tallyweir.duplicate_event"] > 0
    assert command.processes() == []
    assert [path.name for path in (tmp_path / "chaos-templates").iterdir()] == ["lock"]
