"""The moments behind a standard deviation, merged without cancellation.

The partials are the count, the mean and the sum of squared distances from the mean. Two
parts merge by the distance of their means (Chan, Golub and LeVeque, 1979). Sums of
squares would have to be subtracted from each other, and large ones cancel.

Postgres raises an error where IEEE arithmetic overflows or underflows. A batch that
holds such values would never be published. So values are bounded before they are
staged, and means that lie closer together than ``SHIFT_MIN`` count as equal.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import sql

#: Values further from zero make the deviation NaN: their squares might overflow.
VALUE_MAX = 1e130
#: Values closer to zero count as zero.
VALUE_MIN = 1e-130
#: The least distance of two means. Its square, even divided, stays above the least
#: positive number.
SHIFT_MIN = 1e-140
#: Smaller sums of squared distances count as zero, before they are staged.
SQUARES_MIN = 1e-270


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """The columns of one aggregate's moments; all are zero if there is no value."""

    count: str
    mean: str
    squares: str

    @property
    def combined_mean(self) -> sql.Composable:
        """The mean over the staged parts of a group."""
        return sql.SQL("coalesce({}, 0)").format(self._pooled_mean)

    @property
    def combined_squares(self) -> sql.Composable:
        """The squared distances from the mean over the staged parts of a group."""
        return sql.SQL(
            "(SELECT coalesce(sum(part.squares + part.count * power({shift}, 2)), 0) "
            "FROM unnest(array_agg({count}), array_agg({mean}), array_agg({squares})) "
            "AS part (count, mean, squares))"
        ).format(
            shift=_shift(sql.SQL("part.mean"), self._pooled_mean), **self._columns()
        )

    @property
    def merged_mean(self) -> sql.Composable:
        """The stored mean moved towards the one that arrives."""
        return sql.SQL(
            "{mean} = state.{mean} + {shift} * coalesce("
            "EXCLUDED.{count}::double precision "
            "/ nullif(state.{count} + EXCLUDED.{count}, 0), 0)"
        ).format(shift=self._arriving_shift, **self._columns())

    @property
    def merged_squares(self) -> sql.Composable:
        """The stored squares, those that arrive, and what the means' distance adds."""
        return sql.SQL(
            "{squares} = state.{squares} + EXCLUDED.{squares} "
            "+ power({shift}, 2) * coalesce("
            "state.{count}::double precision * EXCLUDED.{count} "
            "/ nullif(state.{count} + EXCLUDED.{count}, 0), 0)"
        ).format(shift=self._arriving_shift, **self._columns())

    @property
    def sample_deviation(self) -> sql.Composable:
        """The deviation as ``stddev_samp``: NULL for fewer than two values."""
        return sql.SQL(
            "CASE WHEN {count} > 1 THEN sqrt({squares} / ({count} - 1)) END"
        ).format(**self._columns())

    @property
    def _pooled_mean(self) -> sql.Composable:
        return sql.SQL(
            "(sum({mean} * {count}) / nullif(sum({count}), 0)::double precision)"
        ).format(**self._columns())

    @property
    def _arriving_shift(self) -> sql.Composable:
        name = sql.Identifier(self.mean)
        return _shift(
            sql.SQL("EXCLUDED.{}").format(name), sql.SQL("state.{}").format(name)
        )

    def _columns(self) -> dict[str, sql.Composable]:
        return {
            "count": sql.Identifier(self.count),
            "mean": sql.Identifier(self.mean),
            "squares": sql.Identifier(self.squares),
        }


def _shift(mean: sql.Composable, other: sql.Composable) -> sql.Composable:
    return sql.SQL(
        "CASE WHEN abs({mean} - {other}) > {least} THEN {mean} - {other} ELSE 0 END"
    ).format(mean=mean, other=other, least=sql.Literal(SHIFT_MIN))
