"""Spark's transformWithState, as a batch query with three keyed operators: pairs, senders, addresses.

State belongs to one grouping key, and rows reach an operator in no order. So the program is cut by hand into three
operators, one per key, each of which takes a key's rows together and sorts them by `seq`. As a streaming query it
would not be the program: between the operators nothing keeps the log's order.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from timelapse.env.spark_session import session

_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Running(StatefulProcessor):
    """A key's two running counts, in one value state; `first` and `second` say which columns are counted."""

    def __init__(self, columns: list[str], first: str, second: str) -> None:
        self._columns, self._first, self._second = columns, first, second

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._counts = handle.getValueState("counts", "a LONG, b LONG")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """All rows of a key, in the log's order, with the counts up to each."""
        table = pd.concat(list(rows)).sort_values("seq")
        a, b = self._counts.get() or (0, 0)
        table["one"] = a + table[self._first].cumsum()
        table["two"] = b + table[self._second].cumsum()
        self._counts.update((int(table["one"].iloc[-1]), int(table["two"].iloc[-1])))
        yield table[[*self._columns, "one", "two"]]

    def close(self) -> None:
        """Nothing is held."""


def candidate(place: Path, *, text: bool, cores: int, **_: Any) -> Callable[[float], Any]:
    """What runs the program over the data set at `place` and returns the flagged messages' ids. Starts the session."""
    spark = session(
        master=f"local[{cores}]",
        conf={"spark.driver.memory": "6g", "spark.sql.streaming.stateStore.providerClass": _STORE},
    )
    spark.range(1).count()
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # see worker.py
    email = "contains(text, '@')" if text else "has_email"

    def keyed(frame: Any, keys: list[str], columns: dict[str, str], first: str, second: str) -> Any:
        schema = ", ".join(
            f"{name} {kind}" for name, kind in {**columns, "one": "long", "two": "long"}.items()
        )
        return frame.groupBy(*keys).transformWithStateInPandas(
            Running(list(columns), first, second), schema, "Append", "None"
        )

    def run(ratio: float = 2.0) -> Any:
        events = spark.read.parquet(str(place / "flat")).selectExpr(
            "seq", "id", "a AS sender", "CAST(ip AS STRING) AS ip", "CAST(kind AS LONG) AS message",
            f"CAST(coalesce({email}, false) AS LONG) AS email", "CAST(1 - kind AS LONG) AS friendship",
            "least(a, b) AS low", "greatest(a, b) AS high",
        )  # fmt: skip
        base = {"seq": "long", "id": "long", "sender": "long", "ip": "string", "email": "long"}
        pairs = keyed(events, ["low", "high"], {**base, "message": "long"}, "friendship", "message")
        messages = pairs.where("message = 1").selectExpr(
            *base, "CAST(one > 0 AS LONG) AS friend", "CAST(one = 0 AS LONG) AS other"
        )
        senders = keyed(messages, ["sender"], base, "friend", "other").selectExpr(
            *base, "1L AS sent", "one AS to_friends", "two AS to_others"
        )
        wanted = {**base, "to_friends": "long", "to_others": "long"}
        addresses = keyed(senders, ["ip"], wanted, "email", "sent")
        rule = f"CAST(to_others AS DOUBLE) > {ratio!r}D * to_friends AND CAST(one AS DOUBLE) > 0.2D * two"
        return addresses.where(rule).orderBy("seq").select("id").toArrow()["id"].to_numpy()

    return run
