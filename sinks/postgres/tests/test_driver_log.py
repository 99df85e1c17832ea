"""What of a driver's log is kept: warnings, without what a stack trace may quote."""

from __future__ import annotations

from typing import Any

from tallyweir.sinks.postgres.records.driver_log import ROUND_MAX, DriverLog


def _taken(*lines: dict[str, Any]) -> list[dict[str, Any]]:
    log = DriverLog()
    for line in lines:
        log.take(line)
    return list(log._waiting)


def test_only_warnings_and_worse_are_kept() -> None:
    """A line for each batch would be a second ledger."""
    levels = ("debug", "info", "warning", "error")
    kept = _taken(*({"event": "x", "level": level} for level in levels))
    assert [line["level"] for line in kept] == ["warning", "error"]


def test_a_line_keeps_its_batch_and_no_stack_trace() -> None:
    """A stack trace may quote what a record holds."""
    (kept,) = _taken(
        {
            "event": "starting over",
            "level": "warning",
            "sequence": 7,
            "epoch": 2,
            "exception": "ValueError: secret",
            "positions": {"orders[0]": 4},
            "saw": "x\x00" * 5_000,
        }
    )
    assert (kept["sequence"], kept["epoch"]) == (7, 2)
    assert set(kept["detail"]) == {"positions", "saw"}
    assert kept["detail"]["positions"] == '{"orders[0]": 4}'
    assert kept["detail"]["saw"] == "x" * 1_000


def test_what_comes_too_fast_is_left_out_and_counted() -> None:
    """Whoever logs never waits for the home."""
    log = DriverLog()
    for _ in range(ROUND_MAX + 5):
        log.take({"event": "x", "level": "warning"})
    assert (len(log._waiting), log._left_out) == (ROUND_MAX, 5)


def test_a_home_that_does_not_answer_is_no_failure() -> None:
    """The line is on standard error all the same."""
    log = DriverLog()
    log.open("host=127.0.0.1 port=1 dbname=none", "orders")
    log.take({"event": "x", "level": "warning"})
    log.close()
    assert log._thread is not None
    assert not log._thread.is_alive()
