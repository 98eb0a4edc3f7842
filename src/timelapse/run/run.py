"""The Run: what a user asks after a replay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from timelapse.model.events import Record
from timelapse.model.types import TIME
from timelapse.moments import Moment, micros
from timelapse.progress import Progress
from timelapse.results.stored import StoredRun
from timelapse.store.remote import pinned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from rich.console import RenderableType

    from timelapse.charts import Figure
    from timelapse.run.verify import Verification
    from timelapse.trace import Explanation, History

_TS = TIME.arrow


class Run(StoredRun):
    """A finished replay: outputs, rejected events, states, and what proves it.

    Tables are in log order and start with `ts` (timestamp, UTC) and `seq`. A run is complete when
    it can be opened: it is published whole or not at all.
    """

    # --- rows -------------------------------------------------------------------------------------

    def frame(
        self,
        record: type[Record] | str,
        *,
        columns: Sequence[str] | None = None,
        spark: SparkSession | None = None,
    ) -> DataFrame:
        """The same as a Spark DataFrame: lazy, read from the run's files on the executors, in no order.

        `record` may be "rejected" and "quarantined", too. Of a run without a folder of its own (`out`) the rows pass through this
        process. Raises RunError (TL603) for an unknown name, and as `Run.table` does where files are gone.
        """
        from timelapse.env.spark_session import session
        from timelapse.frames.plain import plain

        name = record if isinstance(record, str) else record.__name__
        if self.path is not None and not self._context.keep:
            from timelapse.frames.spark_source import rows_frame

            return rows_frame(self, name, session(spark), columns)
        found = getattr(self, name) if name in ("rejected", "quarantined") else self.table(record)
        return session(spark).createDataFrame(
            plain(found if columns is None else found.select(list(columns)))
        )

    def outputs(self, record: type[Record] | str, spark: SparkSession | None = None) -> DataFrame:
        """`frame`, with all columns."""
        return self.frame(record, spark=spark)

    def state_frame(
        self, name: str, at: Moment | None = None, spark: SparkSession | None = None
    ) -> DataFrame:
        """`state` as a Spark DataFrame, for SQL: `run.state_frame("sent").createOrReplaceTempView("sent")`.

        It is lazy, and read on the executors: a time within a slice is found there, by one task.
        """
        from timelapse.env.spark_session import session
        from timelapse.frames.plain import plain

        if self.path is not None and not self._context.keep:
            from timelapse.frames.spark_source import frame

            when = None if at is None else micros(at, "at=")
            return frame(pinned(self.path.absolute()), {"state": name, "at": when}, session(spark))
        return session(spark).createDataFrame(plain(self.state(name, at)))

    def portions(self, records: Sequence[type[Record] | str]) -> Sequence[Any]:
        """The outputs of these types in portions by place, each with `stored`, which tasks can read; of a run in memory one."""
        from timelapse.frames.portions import Whole, portions

        if self.path is None:
            return [Whole({self._record(record)[0]: self.stored(record) for record in records})]
        return portions(self, dict(self._record(record) for record in records))

    # --- looking into it ----------------------------------------------------------------------------

    def why(
        self, output: str | int, *, depth: int = 1, last: int = 3, progress: Progress | None = None
    ) -> Explanation:
        """Why it put out a record: `run.why("Spam:88121")`. See `timelapse.trace.why`."""
        from timelapse.trace.why import why

        return why(self, output, depth=depth, last=last, progress=progress)

    def why_not(
        self, event: str | int, *, depth: int = 1, last: int = 3, progress: Progress | None = None
    ) -> Explanation:
        """Why it put out nothing at an event: `run.why_not(88034)`. See `timelapse.trace.why_not`."""
        from timelapse.trace.why import why_not

        return why_not(self, event, depth=depth, last=last, progress=progress)

    def history(
        self, name: str, key: Any = (), *, at: Moment | None = None, last: int = 20, progress: Progress | None = None
    ) -> History:  # fmt: skip
        """A state's key through time: `run.history("sent", "::1").plot()`. See `timelapse.trace.history`."""
        from timelapse.trace.history import history

        return history(
            self, name, key, at=None if at is None else micros(at, "at="), last=last, progress=progress
        )

    def verify(self, events: int | None = None, progress: Progress | None = None) -> Verification:
        """Run the serial reference over the log, or its first `events` events, and compare.

        Outputs, rejections and the state at every slice boundary must be equal to the last bit. What was
        found is kept beside a stored run (`verified.json`).
        """
        from timelapse.run.verified import keep_verified
        from timelapse.run.verify import verify

        found = verify(self, events, progress)
        keep_verified(self, found)
        return found

    # --- pictures -----------------------------------------------------------------------------------

    def plot(self, record: type[Record] | str | None = None) -> Figure:
        """Outputs over time, of one record type or of all: a figure that notebooks show, with `svg` and `save`."""
        from timelapse.run.views import outputs_chart

        return outputs_chart(self, record.__name__ if isinstance(record, type) else record).figure()

    def __rich__(self) -> RenderableType:
        from timelapse.run.views import card

        return card(self).rich()

    def _repr_html_(self) -> str:
        from timelapse.run.views import card

        return card(self).html()
