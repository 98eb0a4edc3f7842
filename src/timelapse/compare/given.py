"""Tables that users give: from a file, or from memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from timelapse.errors import IngestError, Place, UsageError
from timelapse.ingest.source import arrow_table, is_table
from timelapse.store.places import local_path


@dataclass(frozen=True)
class Given:
    """A table as it was given. `texts`: from CSV, every value is a text. `name` is for messages."""

    table: pa.Table
    texts: bool
    name: str

    @classmethod
    def read(cls, source: Any, *, what: str, columns: str = "", code: str) -> Given:
        """From a Parquet or CSV file (`.parquet`, else CSV with a header), an Arrow table, or a pandas or Polars DataFrame.

        `what` its rows are called in messages, `columns` those that its header needs. Raises UsageError (`code`) for what cannot be read.
        """
        found = cls._read(source, what, columns, code)
        for name in (names := found.table.column_names):
            if names.count(name) > 1:
                raise UsageError(
                    f"the table has several columns {name}", place=Place(found.name), hint="give each a name of its own", code=code
                )  # fmt: skip
        return found

    @staticmethod
    def _read(source: Any, what: str, columns: str, code: str) -> Given:
        if is_table(source):
            try:
                return Given(arrow_table(source), False, what)
            except IngestError as error:
                raise UsageError(error.message, hint=error.hint, code=code) from None
        if not isinstance(source, str | Path):
            raise UsageError(
                f"{type(source).__name__} is no table",
                hint="a file, an Arrow table or a DataFrame",
                code=code,
            )
        path = local_path(source, f"table of {what}")
        try:
            if path.is_dir() or path.suffix.lower() in (".parquet", ".pq"):
                return Given(pq.read_table(path), False, str(path))
            with path.open("rb") as file:
                head = pyarrow.csv.open_csv(file).schema.names
            options = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(head, pa.string()))
            return Given(pyarrow.csv.read_csv(path, convert_options=options), True, str(path))
        except (OSError, pa.ArrowException) as error:
            reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
            if not path.exists():
                reason = "there is no such file"
            raise UsageError(
                f"the {what} cannot be read: {reason}", place=Place(str(path)),
                hint=f"a Parquet file, or CSV with a header{columns}", code=code,
            ) from None  # fmt: skip
