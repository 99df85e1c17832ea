"""What every ``Home`` must do with the watermark; cases of ``conformance``."""

from __future__ import annotations

from collections.abc import Callable

from tallyweir.sinks.testing.home_harness import (
    P0,
    P1,
    WATERMARK_DELAY_US,
    HomeDriver,
    HomeHarness,
)
from tallyweir.sinks.testing.planned_batches import event_time_us

#: An event so far ahead that no server's clock has reached it.
_FAR_AHEAD = 10**10


def the_watermark_is_the_slowest_partitions(harness: HomeHarness) -> None:
    """One partition that lags holds the watermark for all."""
    driver = HomeDriver(harness)
    driver.run({P0: 50, P1: 10})
    assert event_time_us(9) - WATERMARK_DELAY_US == (
        driver.home.read_progress().watermark_us
    )


def the_watermark_never_goes_back(harness: HomeHarness) -> None:
    """A new partition with old events does not move the watermark back."""
    driver = HomeDriver(harness)
    driver.run({P0: 50})
    before = driver.home.read_progress().watermark_us

    driver.run({P1: 1})

    assert before == driver.home.read_progress().watermark_us


def an_idle_partition_leaves_the_minimum(harness: HomeHarness) -> None:
    """A partition long without events does not hold every window open."""
    driver = HomeDriver(harness)
    driver.run({P0: 20, P1: 1})
    harness.make_idle(P1)

    driver.run({P0: 20})

    assert event_time_us(39) - WATERMARK_DELAY_US == (
        driver.home.read_progress().watermark_us
    )


def with_every_partition_idle_the_watermark_stays(harness: HomeHarness) -> None:
    """Closing windows without new events would be a guess."""
    driver = HomeDriver(harness)
    driver.run({P0: 20})
    before = driver.home.read_progress().watermark_us
    harness.make_idle(P0)

    plan = driver.plan({P0: 2})
    driver.publish(plan, driver.stage(plan, []))

    assert before == driver.home.read_progress().watermark_us


def a_partition_that_was_just_met_holds_the_watermark(harness: HomeHarness) -> None:
    """The first events of a partition that begins later are not late."""
    driver = HomeDriver(harness)
    driver.run({P0: 50, P1: 0})
    assert driver.home.read_progress().watermark_us is None

    driver.run({P0: 50, P1: 10})

    assert event_time_us(9) - WATERMARK_DELAY_US == (
        driver.home.read_progress().watermark_us
    )


def a_partition_that_stays_empty_lets_go_after_the_timeout(
    harness: HomeHarness,
) -> None:
    """An empty partition does not hold every window open for good."""
    driver = HomeDriver(harness)
    driver.run({P0: 20, P1: 0})
    harness.make_idle(P1)

    driver.run({P0: 20, P1: 0})

    assert event_time_us(39) - WATERMARK_DELAY_US == (
        driver.home.read_progress().watermark_us
    )


def a_partition_that_is_added_holds_the_watermark_where_it_is(
    harness: HomeHarness,
) -> None:
    """Partition growth stops the watermark for a while, and never turns it back."""
    driver = HomeDriver(harness)
    driver.run({P0: 20})
    before = driver.home.read_progress().watermark_us

    driver.run({P0: 20, P1: 0})
    assert before == driver.home.read_progress().watermark_us

    driver.run({P0: 1, P1: 1})
    assert before == driver.home.read_progress().watermark_us


def the_watermark_survives_a_restart(harness: HomeHarness) -> None:
    """The next driver continues from it, with the clocks of all partitions."""
    former = HomeDriver(harness)
    former.run({P0: 50, P1: 10})

    driver = HomeDriver(harness)
    assert event_time_us(9) - WATERMARK_DELAY_US == (
        driver.home.read_progress().watermark_us
    )
    driver.run({P0: 50})
    assert event_time_us(9) - WATERMARK_DELAY_US == (
        driver.home.read_progress().watermark_us
    )


def an_event_from_the_future_does_not_carry_the_watermark_there(
    harness: HomeHarness,
) -> None:
    """No partition's clock runs ahead of the database's."""
    driver = HomeDriver(harness)
    plan = driver.plan({P0: _FAR_AHEAD + 1})
    driver.publish(plan, driver.stage(plan, [(P0, _FAR_AHEAD)]))

    watermark_us = driver.home.read_progress().watermark_us
    assert watermark_us is not None
    assert event_time_us(0) < watermark_us < event_time_us(_FAR_AHEAD // 2)


#: Every fact, in the order of the rule.
WATERMARK_CASES: tuple[Callable[[HomeHarness], None], ...] = (
    the_watermark_is_the_slowest_partitions,
    the_watermark_never_goes_back,
    an_idle_partition_leaves_the_minimum,
    with_every_partition_idle_the_watermark_stays,
    a_partition_that_was_just_met_holds_the_watermark,
    a_partition_that_stays_empty_lets_go_after_the_timeout,
    a_partition_that_is_added_holds_the_watermark_where_it_is,
    the_watermark_survives_a_restart,
    an_event_from_the_future_does_not_carry_the_watermark_there,
)
