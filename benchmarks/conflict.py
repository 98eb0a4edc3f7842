"""The conflict sweep: transfers that are refused, from balances that are guessed. When does repair pay?

Streaming Ledger as in the evaluations of TStream and MorphStream, with user code of about ten microseconds per
transfer that does not compile. Processor seconds of this thread, so that another load does not matter much: a slice
run in order, the same slice run from a guess, and its repair. From them follows what two cores take, if nothing else
costs anything: one slice in order while another is guessed, then both it and the last one.
"""

from __future__ import annotations

import hashlib
import time
from typing import Any

import numpy as np

import timelapse as tl
from benchmarks.report import Report, Table, times
from benchmarks.suites import Settings
from timelapse.analysis import analyse
from timelapse.errors import ReplayError
from timelapse.kernels.iterate.repair import RepairKernel, guess, specs_of
from timelapse.kernels.python.interpreted import InterpretedKernel
from timelapse.kernels.source import Source
from timelapse.log import Log
from timelapse.plan import make_plan
from timelapse.plan.cost import Measured
from timelapse.tables.table import state_table

MOST_EVENTS = 200_000
"""Handlers that run as Python: a larger log only takes longer."""
EXPONENTS = (0.2, 0.8)
OPENINGS = (100, 400, 1600)
"""What every account begins with: the less, the more is refused."""


class Transfer(tl.Event):
    source: int
    target: int
    amount: int


class SlowLedger(tl.Program):
    """Transfers with user code: a library is asked for each of them."""

    opening: int = 400
    work: int = 3
    """Rounds of a key derivation: a few microseconds each."""

    moved: tl.Counter[int]

    @tl.on(Transfer)
    def transfer(self, e: Transfer) -> None:
        mark = hashlib.pbkdf2_hmac("sha256", b"transfer", e.amount.to_bytes(8, "little"), self.work)
        amount = e.amount + mark[0] % 2
        if self.opening + self.moved[e.source] < amount:
            return
        self.moved[e.source] -= amount
        self.moved[e.target] += amount


def conflict(settings: Settings) -> Report:
    """Order against guess and repair, over exponents and refusal rates."""
    events = min(settings.events, MOST_EVENTS // 10 if settings.quick else MOST_EVENTS)
    rows, notes, values = [], [], {}
    for exponent in EXPONENTS:
        log = _log(settings, events, exponent)
        for opening in OPENINGS:
            found = _measured(log, SlowLedger(opening=opening))
            settings.say(f"  exponent {exponent}, opening {opening}: {found['again']:.2%} again")
            ideal, taken = found["ideal"], found["planned"]
            rows.append((
                f"Zipf {exponent}, opening {opening}", f"{found['refused']:.1%}", f"{found['again']:.2%}",
                f"{found['longest']:.0f}", f"{found['order']:.1f}", f"{found['guess']:.1f}", f"{found['repair']:.1f}",
                times(1 / ideal), str(taken),
            ))  # fmt: skip
            name = f"exponent {exponent}, opening {opening}"
            values[f"{name}: again"] = found["again"]
            values[f"{name}: chain / iterate"] = 1 / ideal
    columns = (
        "", "refused (guess)", "run again", "longest chain", "in order us", "guess us", "repair us", "2 cores, ideal", "planner",
    )  # fmt: skip
    title = f"Conflict sweep: {events:,} transfers, {max(2, events // 10):,} accounts, user code, handlers as Python"
    notes.append(
        "processor time per event; `2 cores, ideal`: times faster than slice after slice, nothing else counted"
    )
    return Report(
        "conflict", title, settings.shown(), [], [Table(title, columns, rows)], notes=notes, values=values
    )


def _log(settings: Settings, events: int, exponent: float) -> Log:
    rng = np.random.default_rng(1)
    accounts = max(2, events // 10)
    weights = np.cumsum(np.arange(1, accounts + 1) ** -exponent)
    who = rng.permutation(accounts)
    drawn = who[np.searchsorted(weights, rng.random((2, events)) * weights[-1])].tolist()
    amounts = rng.integers(1, 100, events).tolist()
    made = [
        Transfer(source=a, target=b, amount=n, ts=i)
        for i, (a, b, n) in enumerate(zip(drawn[0], drawn[1], amounts, strict=True))
    ]
    return Log.from_events(settings.data / f"conflict-{events}-{exponent}", made, [Transfer], overwrite=True)


def _measured(log: Log, program: SlowLedger) -> dict[str, Any]:
    """Four quarters: the first makes the state that is guessed from, the fourth is run in order, guessed, repaired."""
    analysis = analyse(program)
    work = make_plan(analysis, cores=2, force="iterate").stages[0].work
    specs = specs_of(program, work)
    cuts = log.reader.cuts(4)
    events = cuts[4] - cuts[3]

    def source(at: int) -> Source:
        return Source(log.reader, cuts[at], cuts[at + 1], {"Transfer": Transfer}, work.columns)

    kernel = InterpretedKernel(program, work, {}, final=False)

    def run(at: int) -> Any:
        kernel.begin()
        return kernel.go_on(source(at).events(), _untold)

    def state() -> dict[str, Any]:
        return {
            name: state_table(spec, kernel.held.stores[name].data.items()) for name, spec in specs.items()
        }

    run(0)
    old = state()
    run(1)
    run(2)
    exact = state()
    began = time.thread_time()
    in_order = run(3)
    order = time.thread_time() - began
    began = time.thread_time()
    recording = guess(program, work, old, source(3), events, _untold)
    guessed = time.thread_time() - began
    repair = RepairKernel(program, work, exact, events, recording=lambda _: recording)
    began = time.thread_time()
    repaired = repair.run(source(3), _untold)
    mended = time.thread_time() - began
    if repaired.changes != in_order.changes:
        raise ReplayError("repair found another state than the serial order", code="TL507")
    rows = recording.rows
    effects = np.add.reduceat(rows.effects != 0, rows.begins[:-1]) if len(rows.seqs) else np.zeros(1)
    took = repaired.repaired
    assert took is not None
    share = 1.0 if took.reason else took.again / max(1, took.events)
    counts = {"Transfer": log.count}
    plan = make_plan(analysis, counts=counts, cores=2, threads=2, measured=Measured(order / events, share))
    g, r = guessed / order, mended / order
    # A share a runs in order while b is guessed (a = g b); b is repaired; then b and as much again run in order.
    b = 1 / (g + 2)
    return {
        "refused": float(np.mean(effects == 0)), "again": share, "longest": took.depth,
        "order": order / events * 1e6, "guess": guessed / events * 1e6, "repair": mended / events * 1e6,
        "ideal": g * b + r * b + b, "planned": "iterate" if plan.mode == "staged" else "chain",
    }  # fmt: skip


def _untold(events: int) -> None:
    """Nobody watches."""
