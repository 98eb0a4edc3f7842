"""PyFlink: three keyed process functions, one after the other, with parallelism 1.

State belongs to one key, so the program is cut by hand into three operators: pairs, senders, addresses. Flink keeps
the order of records between two operator instances only, so the result is the program's with parallelism 1 alone: with 2,
a sender's messages come by way of several pairs' instances, in any order. The wheel reads no Parquet: rows are read with
pyarrow and handed over as a collection, which is counted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow.parquet as pq
from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.state import ValueStateDescriptor


class Pairs(KeyedProcessFunction):  # type: ignore[misc]
    """Whether two users are friends; passes on messages with the answer."""

    def open(self, runtime_context: Any) -> None:
        self._friends = runtime_context.get_state(ValueStateDescriptor("friends", Types.BOOLEAN()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        kind, a, _, number, ip, email = value
        if kind == 0:
            self._friends.update(True)
        else:
            yield a, number, ip, email, bool(self._friends.value())


class Senders(KeyedProcessFunction):  # type: ignore[misc]
    """A sender's messages to friends and to others; passes on messages with the first rule's answer."""

    def __init__(self, ratio: float) -> None:
        self._ratio = ratio

    def open(self, runtime_context: Any) -> None:
        self._to_friends = runtime_context.get_state(ValueStateDescriptor("to_friends", Types.LONG()))
        self._to_others = runtime_context.get_state(ValueStateDescriptor("to_others", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        _, number, ip, email, friend = value
        state = self._to_friends if friend else self._to_others
        state.update((state.value() or 0) + 1)
        strangers = (self._to_others.value() or 0) > self._ratio * (self._to_friends.value() or 0)
        yield number, ip, email, strangers


class Addresses(KeyedProcessFunction):  # type: ignore[misc]
    """An address's messages and those with an e-mail address; passes on what is flagged."""

    def open(self, runtime_context: Any) -> None:
        self._sent = runtime_context.get_state(ValueStateDescriptor("sent", Types.LONG()))
        self._mailed = runtime_context.get_state(ValueStateDescriptor("mailed", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        number, _, email, strangers = value
        sent, mailed = (self._sent.value() or 0) + 1, (self._mailed.value() or 0) + bool(email)
        self._sent.update(sent)
        self._mailed.update(mailed)
        if strangers and mailed > 0.2 * sent:
            yield number


def candidate(place: Path, *, text: bool, **_: Any) -> Callable[[float], Any]:
    """What runs the program over the data set at `place` and returns the flagged messages' ids."""
    os.environ.setdefault("PYFLINK_CLIENT_EXECUTABLE", sys.executable)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Flink's workers cannot import this file
    names = ["kind", "a", "b", "id", "ip", "text" if text else "has_email"]
    address = Types.STRING() if text else Types.LONG()
    whole = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG(), Types.LONG(), address, Types.BOOLEAN()])
    after_pairs = Types.TUPLE([Types.LONG(), Types.LONG(), address, Types.BOOLEAN(), Types.BOOLEAN()])
    after_senders = Types.TUPLE([Types.LONG(), address, Types.BOOLEAN(), Types.BOOLEAN()])

    def rows() -> Iterator[Any]:
        for path in sorted((place / "flat").glob("part-*.parquet")):
            for batch in pq.ParquetFile(path).iter_batches(columns=names):
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    yield (*row[:5], "@" in row[5]) if text else row

    def run(ratio: float = 2.0) -> Any:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(1)
        env.set_python_executable(sys.executable)
        stream = env.from_collection(list(rows()), type_info=whole)
        pairs = stream.key_by(lambda r: min(r[1], r[2]) << 32 | max(r[1], r[2]), key_type=Types.LONG())
        messages = pairs.process(Pairs(), output_type=after_pairs)
        senders = messages.key_by(lambda r: r[0], key_type=Types.LONG())
        judged = senders.process(Senders(ratio), output_type=after_senders)
        addresses = judged.key_by(lambda r: r[1], key_type=address)
        flagged = addresses.process(Addresses(), output_type=Types.LONG())
        with flagged.execute_and_collect() as found:
            return np.array(list(found), np.int64)

    return run
