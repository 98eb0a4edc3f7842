"""Tables of Spark's catalogue: DataFrames, by their names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from timelapse.ingest.tables.base import unreadable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class SparkTable:
    """A table or view of Spark's catalogue, by its name (`shop.txn`). It is read as it is: the catalogue tells no version."""

    name: str

    def frame(self, spark: SparkSession) -> DataFrame:
        """The table in a session. Raises IngestError (TL418) where there is none."""
        try:
            found = spark.table(self.name)
            _ = found.schema
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
                raise
            raise unreadable(
                f"table {self.name}", error, "check its name: database.table, as Spark's catalogue has it"
            ) from None
        return found

    def describe(self) -> dict[str, Any]:
        """What the log's manifest says of it."""
        return {"from": f"table:{self.name}"}
