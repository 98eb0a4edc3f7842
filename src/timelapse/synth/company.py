"""A company's week of raw files, as they come: to try ingest on, and to test it, since what is wrong with them is known.

Transactions are gzip CSV per day in `dt=` folders: a column is renamed on the fourth day, and on the fifth one is missing; some rows
are sent twice, some come a day late, some cannot be read. Logins are nested JSON, with and without zones. Chargebacks are
a Parquet table. `rules.py` has event classes and a program, `log.toml` the definition that reads all of it.
"""

from __future__ import annotations

import gzip
import io
import json
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

START = datetime(2026, 10, 5, tzinfo=UTC)
DAYS = 7
MUCH = 1_000.0
"""Who has spent more is worth stealing from."""


@dataclass(frozen=True)
class Company:
    """What the files hold: events by type, rows of transactions that are sent twice, that cannot be read, that come late."""

    events: dict[str, int]
    duplicates: int
    bad: int
    late: int


RULES = '''"""Transactions, logins and chargebacks, and a rule over them."""

import timelapse as tl


class Login(tl.Event):
    user: int
    country: str | None


class Txn(tl.Event):
    id: int
    user: int
    cents: int
    device: str | None


class Chargeback(tl.Event):
    txn: int
    reported: tl.Time


class Alert(tl.Record, key="txn"):
    txn: int
    user: int
    country: str | None


class Fraud(tl.Program):
    limit: int = 30_000

    spent: tl.Counter[int]
    devices: tl.SetOf[int, str]
    country: tl.Value[int, str | None]

    @tl.on(Login)
    def remember(self, e: Login) -> None:
        self.country[e.user] = e.country

    @tl.on(Txn)
    def judge(self, e: Txn) -> None:
        if e.device is not None:
            if (e.user, e.device) not in self.devices and self.spent[e.user] > self.limit:
                self.emit(Alert(txn=e.id, user=e.user, country=self.country[e.user]))
            self.devices.add(e.user, e.device)
        self.spent[e.user] += e.cents
'''

DEFINITION = """# A week of raw files. docs/ingest.md has all keys.
events = "rules.py"
log = "log"

[[source]]
type = "Login"
files = "raw/logins.jsonl"
ts = "when"
tz = "Europe/Berlin"                        # of those without a zone
fields = { user = "user.id", country = "user.geo.country" }

[[source]]
type = "Txn"
files = "raw/txn"
ts = "time"
arrival = "received"                        # how late they came is shown
compute = { cents = "round(amount * 100)" }
fields = { device = ["device", "device_id"] }   # renamed on the fourth day
unique = ["id"]                             # some are sent twice
max_bad = 0.01

[[source]]
type = "Chargeback"
files = "raw/chargebacks.parquet"
ts = "reported"
fields = { txn = "txn_id" }
"""


def write_company(out: Path, *, per_day: int = 2_000, seed: int = 1) -> Company:
    """Write the week's files into the empty folder `out`. The same seed gives the same files. Raises FileExistsError."""
    out.mkdir(parents=True)
    rng = random.Random(seed)
    rows: list[list[dict[str, str]]] = [[] for _ in range(DAYS)]
    duplicates = bad = late = number = 0
    spent: dict[int, float] = {}
    stolen: list[int] = []  # of those who have spent much, what came from a device that is not theirs
    for day in range(DAYS):
        times = sorted(rng.uniform(0, 86_400) for _ in range(per_day))
        for second in times:
            number += 1
            user = int(rng.paretovariate(1.1)) % (per_day // 4)
            at = START + timedelta(days=day, seconds=round(second, 3))
            comes = day
            wait = timedelta(seconds=round(rng.expovariate(1 / 20), 3))
            if rng.random() < 0.01 and day < DAYS - 1:
                comes, wait = day + 1, timedelta(hours=24)
                late += 1
            row = {
                "id": str(number), "time": at.isoformat(), "received": (at + wait).isoformat(), "user": str(user),
                "amount": f"{rng.lognormvariate(3, 1):.2f}", "device": rng.choice([f"d{user}", f"d{rng.randrange(per_day)}"]),
                "shop": f"s{rng.randrange(50)}",
            }  # fmt: skip
            if row["device"] != f"d{user}" and spent.get(user, 0.0) > MUCH:
                stolen.append(number)
            spent[user] = spent.get(user, 0.0) + float(row["amount"])
            rows[comes].append(row)
            if rng.random() < 0.01:
                rows[min(DAYS - 1, comes + rng.randrange(2))].append(row)
                duplicates += 1
            if rng.random() < 0.001:
                rows[comes].append({**row, "id": "x" + row["id"]})
                bad += 1
    for day, own in enumerate(rows):
        _day(out / "raw" / "txn" / f"dt={(START + timedelta(days=day)).date()}", day, own)
    logins = _logins(out / "raw" / "logins.jsonl", rng, per_day)
    chargebacks = _chargebacks(out / "raw" / "chargebacks.parquet", rng, number, stolen)
    (out / "rules.py").write_text(RULES, encoding="utf-8")
    (out / "log.toml").write_text(DEFINITION, encoding="utf-8")
    return Company({"Login": logins, "Txn": number, "Chargeback": chargebacks}, duplicates, bad, late)


def _day(folder: Path, day: int, rows: list[dict[str, str]]) -> None:
    names = ["id", "time", "received", "user", "amount", "device", "shop"]
    if day >= 3:
        names[5] = "device_id"
    if day == 4:
        names.remove("shop")
    text = io.StringIO()
    text.write(",".join(names) + "\n")
    for row in rows:
        text.write(",".join(row["device" if name == "device_id" else name] for name in names) + "\n")
    folder.mkdir(parents=True)
    with (folder / "part-0.csv.gz").open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
        file.write(text.getvalue().encode())


def _logins(path: Path, rng: random.Random, per_day: int) -> int:
    count = DAYS * per_day // 4
    lines = []
    for n in range(count):
        at = START + timedelta(seconds=round(DAYS * 86_400 * (n + 1) / (count + 2), 3))
        user: dict[str, object] = {"id": int(rng.paretovariate(1.1)) % (per_day // 4)}
        if rng.random() < 0.9:
            user["geo"] = {"country": rng.choice(["DE", "FR", "PL"])}
        # Berlin's clocks are two hours ahead in this week
        when = (
            at.isoformat()
            if rng.random() < 0.5
            else (at + timedelta(hours=2)).replace(tzinfo=None).isoformat()
        )
        lines.append(json.dumps({"when": when, "user": user, "agent": "app"}) + "\n")
    path.write_text("".join(lines), encoding="utf-8")
    return count


def _chargebacks(path: Path, rng: random.Random, number: int, stolen: list[int]) -> int:
    """Most are of the transactions that look stolen, some of any. They are reported within three weeks of the week's end."""
    count = max(1, number // 50)
    likely = rng.sample(stolen, min(len(stolen), count * 9 // 10))
    others = sorted(set(range(1, number + 1)) - set(likely))
    found = sorted([*likely, *rng.sample(others, count - len(likely))])
    reported = sorted(START + timedelta(days=rng.uniform(DAYS, DAYS + 20)) for _ in found)
    pq.write_table(
        pa.table({"txn_id": found, "reported": pa.array(reported, pa.timestamp("us", "UTC"))}), path
    )
    return len(found)
