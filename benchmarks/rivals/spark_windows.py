"""Spark SQL: window functions over a running local session, and a sort at the end, for SQL results have no order.

"Friend before" is a join with the first friendship of each pair; it stays right only because friendships never end.
`0.2D` because a plain 0.2 is a decimal there, and would flag other messages.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from timelapse.env.spark_session import session

QUERY = """
WITH first AS (
    SELECT least(a, b) AS low, greatest(a, b) AS high, min(seq) AS since
    FROM events WHERE kind = 0 GROUP BY least(a, b), greatest(a, b)
),
messages AS (
    SELECT e.seq, e.id, e.a AS sender, e.ip, {email} AS email, coalesce(f.since < e.seq, false) AS friend
    FROM events e LEFT JOIN first f ON f.low = least(e.a, e.b) AND f.high = greatest(e.a, e.b)
    WHERE e.kind = 1
),
counted AS (
    SELECT seq, id,
        count(*) OVER by_sender AS messages, count_if(friend) OVER by_sender AS to_friends,
        count(*) OVER by_ip AS sent, count_if(email) OVER by_ip AS with_email
    FROM messages
    WINDOW by_sender AS (PARTITION BY sender ORDER BY seq ROWS UNBOUNDED PRECEDING),
           by_ip AS (PARTITION BY ip ORDER BY seq ROWS UNBOUNDED PRECEDING)
)
SELECT id FROM counted
WHERE CAST(messages - to_friends AS DOUBLE) > {ratio!r}D * to_friends
  AND CAST(with_email AS DOUBLE) > 0.2D * sent
ORDER BY seq
"""


def candidate(place: Path, *, text: bool, cores: int, **_: Any) -> Callable[[float], Any]:
    """What runs the program over the data set at `place` and returns the flagged messages' ids. Starts the session."""
    spark = session(master=f"local[{cores}]", conf={"spark.driver.memory": "6g"})
    spark.range(1).count()
    email = "contains(e.text, '@')" if text else "e.has_email"

    def run(ratio: float = 2.0) -> Any:
        spark.read.parquet(str(place / "flat")).createOrReplaceTempView("events")
        found = spark.sql(QUERY.format(email=email, ratio=ratio)).toArrow()
        return found["id"].to_numpy()

    return run
