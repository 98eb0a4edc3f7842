"""Polars, streaming off: running sums over groups, in memory, on all cores.

"Friend before" is a join with the first friendship of each pair; it stays right only because friendships never end.
The rows come in log order, and running sums follow the order of rows, so `seq` is needed for that join only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl


def candidate(place: Path, *, text: bool, **_: Any) -> Callable[[float], Any]:
    """What runs the program over the data set at `place` and returns the flagged messages' ids."""

    def run(ratio: float = 2.0) -> Any:
        events = pl.scan_parquet(str(place / "flat" / "part-*.parquet"))
        low, high = pl.min_horizontal("a", "b"), pl.max_horizontal("a", "b")
        pair = (low.cast(pl.Int64) * (1 << 32) + high).alias("pair")
        first = (
            events.filter(pl.col("kind") == 0)
            .select(pair, pl.col("seq").alias("since"))
            .group_by("pair")
            .agg(pl.col("since").min())
        )
        email = pl.col("text").str.contains("@", literal=True) if text else pl.col("has_email")
        return (
            events.filter(pl.col("kind") == 1)
            .select("seq", "id", pl.col("a").alias("sender"), "ip", email.alias("email"), pair)
            .join(first, on="pair", how="left", maintain_order="left")
            .with_columns(
                friend=(pl.col("since") < pl.col("seq")).fill_null(False).cast(pl.Int64),
                email=pl.col("email").cast(pl.Int64),
                one=pl.lit(1, dtype=pl.Int64),
            )
            .with_columns(
                to_friends=pl.col("friend").cum_sum().over("sender"),
                messages=pl.col("one").cum_sum().over("sender"),
                sent=pl.col("one").cum_sum().over("ip"),
                with_email=pl.col("email").cum_sum().over("ip"),
            )
            .filter(
                (pl.col("messages") - pl.col("to_friends")).cast(pl.Float64) > ratio * pl.col("to_friends"),
                pl.col("with_email").cast(pl.Float64) > 0.2 * pl.col("sent"),
            )
            .select("id")
            .collect()["id"]
            .to_numpy()
        )

    return run
