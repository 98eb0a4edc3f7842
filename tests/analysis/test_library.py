"""Calls of the standard library that are known, and those that stay trusted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from decimal import Decimal
from typing import Annotated

import pytest

import timelapse as tl
from tests.analysis.cases import analysis
from timelapse.analysis import analyse, library
from timelapse.analysis.tables import READING_METHODS

TOP = """
import base64, collections, hashlib, html, ipaddress, json, unicodedata, urllib.parse, uuid, zlib
from collections import Counter, deque
from datetime import UTC, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Decimal
from urllib.parse import parse_qs, urlsplit

MAIL = re.compile(r"(\\w+)@([\\w.]+)")
BYTES = re.compile(rb"\\w+", re.LOCALE)
CENT = Decimal("0.01")
FULL = re.compile("x").search

def domain(text):
    found = MAIL.search(text)
    return found.group(2).lower() if found else None

def swapped(match):
    return match.group(0)
"""

KNOWN = [
    "m = MAIL.search(e.s)\nif m:\n    self.count[len(m.group(1).lower())] += m.start()",
    "if (m := re.match(r'\\d+', e.s)) is not None:\n    self.count[int(m[0].strip())] += 1",
    "m = re.compile('a' + e.s).match(e.s)",
    "pattern = re.compile('a+', re.I)\nfor found in pattern.finditer(e.s):\n    self.count[found.end()] += 1",
    "for word in re.findall('[a-z]+', e.s):\n    self.count[len(word.upper())] += 1",
    "self.count[len([w.lower() for w in MAIL.split(e.s)])] += 1",
    "self.count[len(re.sub('a', 'b', e.s))] += len(MAIL.sub(r'\\2', e.s).strip())",
    "if domain(e.s) == 'x':\n    self.count[e.a] += 1",
    "try:\n    at = ipaddress.ip_address(e.s)\nexcept ValueError:\n    at = None\nif at is not None and at.is_private:\n    self.count[at.version] += 1",
    "net = ipaddress.ip_network(f'{e.s}/16', strict=False)\nself.count[len(str(net.supernet()))] += 1",
    "self.count[len(urlsplit(e.s).hostname or '')] += len(urllib.parse.quote(e.s).lower())",
    "self.count[int(hashlib.sha256(e.s.encode()).hexdigest()[:8].upper(), 16)] += 1",
    "h = hashlib.blake2b(digest_size=4)\nh.update(e.s.encode())\nself.count[int.from_bytes(h.digest(), 'big')] += 1",
    "self.count[datetime.fromtimestamp(e.a, tz=timezone.utc).weekday()] += 1",
    "t = datetime.fromtimestamp(e.a, UTC) - timedelta(hours=1)\nself.count[len(t.date().isoformat())] += len(t.strftime('%Y-%m-%d'))",
    "self.count[int((Decimal(e.s) / 3).quantize(CENT, rounding=ROUND_HALF_UP) * 100)] += 1",
    "self.count[len(json.dumps(json.loads(e.s), sort_keys=True))] += len(json.loads(e.s).get('a', 'b'))",
    "for word, n in sorted(Counter(e.s.split()).items()):\n    self.count[len(word)] += n",
    "queue = deque([e.a])\nwhile queue:\n    n = queue.popleft()\n    if n < 9:\n        queue.append(n + 1)\n    self.count[n] += 1",
    "self.count[zlib.crc32(unicodedata.normalize('NFC', e.s).encode())] += uuid.uuid5(uuid.NAMESPACE_DNS, 'x') is not None",
    "text = e.s\ntext = text.strip() + html.escape(text)\ntext += base64.b64encode(b'a').decode()\nself.count[len(text.lower())] += 1",
]

TRUSTED = {
    "a pattern that may be bytes": ("re.search(e.items[0], e.s)", "re.search"),
    "bytes that name the locale": ("BYTES.search(b'a')", "BYTES.search"),
    "a function that is handed over": ("MAIL.sub(swapped, e.s)", "MAIL.sub"),
    "a hook": ("json.loads(e.s, object_hook=swapped)", "json.loads"),
    "a default": ("json.dumps([e.s], default=swapped)", "json.dumps"),
    "arguments that do not show": ("kwargs = {}\njson.loads(e.s, **kwargs)", "json.loads"),
    "what JSON holds": ("json.loads(e.s)['a'].x()", "json.loads(e.s)['a'].x"),
    "the machine's zone": ("datetime.fromtimestamp(e.a)", "datetime.fromtimestamp"),
    "a time without a zone": ("datetime(2026, 1, 1).timestamp()", "datetime(2026, 1, 1).timestamp"),
    "a local time": ("datetime(2026, 1, 1).astimezone()", "datetime(2026, 1, 1).astimezone"),
    "the locale's names": ("datetime(2026, 1, 1).strftime('%A')", "datetime(2026, 1, 1).strftime"),
    "a format that is not known": ("datetime(2026, 1, 1).strftime(e.s)", "datetime(2026, 1, 1).strftime"),
    "a context": ("Decimal('1').quantize(CENT, 'ROUND_UP', e)", "Decimal('1').quantize"),
    "a list with anything in it": (
        "words = re.findall('a', e.s)\nwords.append(e)\nfor w in words:\n    w.go()",
        "w.go",
    ),
    "a name that may be something else": (
        "x = MAIL.search(e.s)\nfor x in [e]:\n    pass\nx.group(1)",
        "x.group",
    ),
    "a parameter of a lambda": ("m = MAIL.search(e.s)\nf = lambda m: m.group(1)\nf(e)", "m.group"),
    "an exception": (
        "m = MAIL.search(e.s)\ntry:\n    pass\nexcept ValueError as m:\n    m.group(1)",
        "m.group",
    ),
    "another event under its name": ("e = F(a=1)\ne.s.quantize(1)", "e.s.quantize"),
    "a bound method": ("FULL(e.s)", "FULL"),
}


@pytest.mark.parametrize("body", KNOWN)
def test_ordinary_calls_of_the_standard_library_are_known(body: str) -> None:
    found = analysis(body, top=TOP)
    assert not found.opaque
    assert [d.message for d in found.trusted] == []


@pytest.mark.parametrize("case", TRUSTED)
def test_what_does_not_follow_from_the_arguments_stays_trusted(case: str) -> None:
    body, call = TRUSTED[case]
    messages = [d.message for d in analysis(body, top=TOP).trusted]
    assert any(m.startswith(f"{call} is trusted") for m in messages), messages


def test_a_function_that_was_put_in_a_librarys_place_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(re, "search", lambda pattern, text: text.seek(pattern))
    library._index.cache_clear()
    (only,) = analysis("re.search('a', e.s)").trusted
    assert only.message.startswith("re.search: text.seek is trusted")
    monkeypatch.undo()
    library._index.cache_clear()
    assert not analysis("re.search('a', e.s)").trusted


Money = Annotated[Decimal, tl.scale(2)]


class Payment(tl.Event):
    amount: Money
    fee: Money | None
    note: str | None


class Rounds(tl.Program):
    """Everything declared: a field, a parameter, a state's value."""

    unit: Decimal = Decimal("0.50")
    pattern: str = "a+"

    last: tl.Value[str, Money | None]
    total: tl.Sum[Money]
    n: tl.Counter[int]

    @tl.on(Payment)
    def pay(self, e: Payment) -> None:
        amount = e.amount.quantize(self.unit)
        if e.fee is not None and e.note is not None:
            amount -= e.fee.copy_abs()
            self.n[len(re.findall(self.pattern, e.note))] += 1
        before = self.last["a"]
        if before is not None:
            self.n[int((before / 2).to_integral_value())] += 1
        self.last["a"] = amount.quantize(Decimal("0.01"))


class Calls(Rounds):
    """A handler that is called with something else than its event."""

    @tl.on(Payment)
    def again(self, e: Payment) -> None:
        self.pay(e)


def test_what_is_declared_is_known() -> None:
    assert [d.message for d in analyse(Rounds).trusted] == []
    assert any("e.amount.quantize is trusted" in d.message for d in analyse(Calls).trusted)


SAMPLES = """
base64: b32decode = f(b'MFRGG===')
base64: b16decode b16encode b32encode b64decode b64encode b85decode b85encode urlsafe_b64decode urlsafe_b64encode = f(b'7365637265743132')
binascii: a2b_base64 a2b_hex b2a_base64 b2a_hex crc32 hexlify unhexlify = f(b'73656372')
binascii: crc_hqx = f(b'abc', 7)
bisect: bisect bisect_left bisect_right = f([1, 2, 2, 5], 2)
collections: Counter OrderedDict deque = f([('b', 1), ('a', 2), ('b', 3)])
datetime: date datetime = f(2026, 3, 29)
datetime: time timedelta = f(12, 30)
datetime: timezone = f(datetime.timedelta(hours=2))
decimal: Decimal = f('1.005') / 3
hashlib: blake2b blake2s md5 sha1 sha224 sha256 sha384 sha3_224 sha3_256 sha3_384 sha3_512 sha512 = f(b'abc').hexdigest()
hashlib: new = f('sha256', b'abc').hexdigest()
hmac: compare_digest = f('a', 'b')
html: escape unescape = f('<a href="x">&amp;\\u00e9</a>')
ipaddress: ip_address ip_interface ip_network IPv4Address IPv4Interface IPv4Network = f('192.168.1.7')
ipaddress: IPv6Address IPv6Interface IPv6Network = f('2001:db8::1')
json: dumps = f({'b': [1, 2.5, None], 'a': '\\u00e9'})
json: loads = f('{"b": [1, 2.5, null], "a": "x"}')
re: compile = f('a+b', re.I).pattern
re: fullmatch match search = (lambda m: m and m.span())(f(r'(?i)\\w+', 'aB\\u00df1'))
re: findall split = f(r'\\W+', 'a, b; c')
re: finditer = [m.span() for m in f(r'\\w', 'a b')]
re: escape = f('a+b')
re: sub subn = f(r'(\\w)', r'<\\1>', 'a b')
unicodedata: bidirectional category combining decomposition east_asian_width mirrored name = f('\\u00e9')
unicodedata: decimal digit numeric = f('\\u0664')
unicodedata: is_normalized normalize = f('NFD', '\\u00e9')
unicodedata: lookup = f('LATIN SMALL LETTER E')
urllib.parse: quote quote_plus unquote unquote_plus unquote_to_bytes = f('a b%20+\\u00e9')
urllib.parse: quote_from_bytes = f(b'a b')
urllib.parse: urlencode = f([('a', '1 2'), ('b', '\\u00e9')])
urllib.parse: urljoin = f('https://a.example/x/y', '../z')
urllib.parse: urlunparse = f(('https', 'a', 'b', '', 'c', 'd'))
urllib.parse: urlunsplit = f(('https', 'a', 'b', 'c', 'd'))
urllib.parse: urldefrag urlparse urlsplit = f('https://u:p@a.example:80/x?q=1#f')
urllib.parse: parse_qs parse_qsl = f('a=1&b=2&a=3')
uuid: UUID = f('12345678123456781234567812345678')
uuid: uuid3 uuid5 = f(uuid.NAMESPACE_DNS, 'a.example')
zlib: adler32 crc32 = f(b'abc')
zlib: decompress = f(zlib.compress(b'abc'))
builtins.bytes: fromhex = f('61 62')
builtins.float: fromhex = f('0x1.8p1')
builtins.int: from_bytes = f(b'ab', 'big')
datetime.date: fromisocalendar = f(2026, 10, 3)
datetime.date: fromisoformat = f('2026-03-29')
datetime.date: fromordinal = f(739000)
datetime.datetime: combine = f(datetime.date(2026, 3, 29), datetime.time(1))
datetime.datetime: fromisocalendar = f(2026, 10, 3)
datetime.datetime: fromisoformat = f('2026-03-29T02:30:00+01:00')
datetime.datetime: fromordinal = f(739000)
datetime.datetime: fromtimestamp = f(1774747800, datetime.timezone.utc)
datetime.datetime: strptime = f('2026-03-29 02:30', '%Y-%m-%d %H:%M')
datetime.datetime: utcfromtimestamp = f(1774747800)
datetime.time: fromisoformat = f('02:30:00')
decimal.Decimal: from_float = f(0.1)
address: overlaps subnet_of supernet_of = getattr(ipaddress.ip_network('10.0.0.0/8'), name)(ipaddress.ip_network('10.1.0.0/16'))
address: supernet = ipaddress.ip_network('10.1.0.0/16').supernet()
box: appendleft append extend extendleft = [(d := collections.deque([1])), getattr(d, name)('2')]
box: rotate = [(d := collections.deque([1, 2])), d.rotate(1)]
box: popleft pop clear copy reverse = [(d := collections.deque([1, 2])), getattr(d, name)()]
box: elements total most_common items keys values popitem = [(d := collections.Counter('abca')), r(getattr(d, name)()), d]
box: subtract update = [(d := collections.Counter('abca')), getattr(d, name)('ab'), d]
box: move_to_end = [(d := collections.OrderedDict(a=1, b=2)), d.move_to_end('a')]
box: get setdefault = [(d := collections.OrderedDict(a=1, b=2)), getattr(d, name)('c', 3)]
decimal: canonical copy_abs copy_negate next_minus next_plus normalize sqrt to_integral to_integral_exact to_integral_value adjusted as_integer_ratio as_tuple is_finite is_infinite is_nan is_normal is_qnan is_signed is_snan is_subnormal is_zero number_class to_eng_string = getattr(decimal.Decimal('2.50'), name)()
decimal: compare compare_total copy_sign max max_mag min min_mag quantize remainder_near same_quantum = getattr(decimal.Decimal('2.505'), name)(decimal.Decimal('0.01'))
decimal: scaleb = decimal.Decimal('2.505').scaleb(2)
decimal: fma = decimal.Decimal('2.505').fma(2, 3)
hash: copy = hashlib.sha256(b'a').copy().hexdigest()
hash: digest hexdigest = getattr(hashlib.sha256(b'a'), name)()
hash: update = [(h := hashlib.sha256(b'a')).update(b'b'), h.hexdigest()]
match: end group groups groupdict span start = getattr(re.search(r'(?P<x>\\w)', 'ab'), name)()
match: expand = re.search(r'(\\w)', 'ab').expand(r'<\\1>')
pattern: fullmatch match search = (lambda m: m and m.span())(getattr(re.compile(r'\\w+'), name)('a b'))
pattern: findall split = getattr(re.compile(r'\\w+'), name)('a b')
pattern: finditer = [m.span() for m in re.compile(r'\\w+').finditer('a b')]
pattern: sub subn = getattr(re.compile(r'\\w+'), name)('x', 'a b')
time: date replace time timetz dst isocalendar isoformat isoweekday toordinal tzname utcoffset weekday = getattr(datetime.datetime(2026, 3, 29, 2, 30), name)()
time: strftime = datetime.datetime(2026, 3, 29, 2, 30).strftime('%Y %m %d %H %M %S %f %j %U %w %W %V %G %u %y %I %z %%')
time: total_seconds = datetime.timedelta(hours=1).total_seconds()
url: geturl = urllib.parse.urlsplit('HTTPS://a.example/').geturl()
"""

SCRIPT = """
import importlib, sys, locale, time, datetime, decimal, collections, hashlib, ipaddress, re, urllib.parse, uuid, zlib
locale.setlocale(locale.LC_ALL, "")
time.tzset()
def r(x):
    return x if isinstance(x, (str, bytes, int, float, tuple, list)) else sorted(map(repr, x)) if hasattr(x, "__iter__") else repr(x)
for line in sys.stdin.read().strip().splitlines():
    where, _, rest = line.partition(": ")
    names, _, call = rest.partition(" = ")
    for name in names.split():
        f = None
        try:
            owner = importlib.import_module(where)
        except ImportError:
            module, _, cls = where.rpartition(".")
            owner = getattr(importlib.import_module(module), cls) if module else None
        if "f(" in call and owner is not None:
            f = getattr(owner, name)
        print(where, name, repr(eval(call)))
"""


def test_what_is_known_depends_on_its_arguments_alone() -> None:
    """Each function, and each method that Python's own values do not have: in other zones, locales and hash seeds the same."""
    told = []
    for zone, language, seed in (
        ("UTC", "C", "1"),
        ("Asia/Kathmandu", "C.UTF-8", "2"),
        ("America/Havana", "C", "77"),
    ):
        env = {
            **os.environ,
            "TZ": zone,
            "LC_ALL": language,
            "PYTHONHASHSEED": seed,
            "PYTHONIOENCODING": "utf-8",
        }
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", SCRIPT], input=SAMPLES, capture_output=True, text=True, env=env, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        told.append(done.stdout)
    assert told[0] == told[1] == told[2]
    sampled = {tuple(line.split(" ", 2)[:2]) for line in told[0].splitlines() if line.count(" ") > 1}
    tables = {**library._FUNCTIONS, **library._OF_CLASSES}
    listed = {(module, name) for module, names in tables.items() for name in names}
    own = READING_METHODS | set(library._CHANGING.split())
    listed |= {(word, name) for word, names in library._METHODS.items() for name in names if name not in own}
    assert listed - sampled == set()
