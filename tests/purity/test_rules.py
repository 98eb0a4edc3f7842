"""Each rule finds what it forbids, under every name that it may have, and leaves alone what is fine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.purity.harness import Check
from timelapse.analysis.result import Severity


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    return Check(tmp_path, monkeypatch)


CASES = [
    # the clock
    ("TL114", "import time", "t = time.time()"),
    ("TL114", "from time import time_ns as t", "x = t()"),
    ("TL114", "from datetime import datetime as dt", "x = dt.now()"),
    ("TL114", "import datetime", "x = datetime.datetime.utcnow()"),
    ("TL114", "import datetime as d", "x = d.date.today()"),
    ("TL114", "import time", "f = time.monotonic"),
    ("TL114", "import time", "x = time.gmtime()"),
    ("TL114", "from datetime import datetime\nnow = datetime.now", "x = now()"),
    ("TL114", "", "import time\nx = time.time()"),
    ("TL114", "", "from datetime import datetime\nx = datetime.now()"),
    ("TL114", "import pandas as pd", "x = pd.Timestamp.now()"),
    # randomness
    ("TL115", "import random", "x = random.random()"),
    ("TL115", "from random import choice as c", "x = c((1, 2))"),
    ("TL115", "import random", "random.seed(3)"),
    ("TL115", "import random", "x = random.Random()"),
    ("TL115", "import random\nrng = random.Random(3)", "x = rng.random()"),
    ("TL115", "import numpy as np", "x = np.random.rand()"),
    ("TL115", "import numpy as np", "x = np.random.default_rng()"),
    ("TL115", "from numpy.random import rand", "x = rand()"),
    ("TL115", "import numpy as np\nrng = np.random.default_rng(1)", "x = rng.integers(3)"),
    ("TL115", "import secrets", "x = secrets.token_hex()"),
    ("TL115", "import uuid", "x = uuid.uuid4()"),
    ("TL115", "from os import urandom", "x = urandom(3)"),
    # the outside
    ("TL116", "", "x = open('f')"),
    ("TL116", "", "print(e.who)"),
    ("TL116", "", "x = input()"),
    ("TL116", "import os", "x = os.environ['HOME']"),
    ("TL116", "from os import environ", "x = environ.get('HOME')"),
    ("TL116", "import os", "x = os.getenv('HOME')"),
    ("TL116", "import sys", "x = sys.argv[1]"),
    ("TL116", "from sys import argv", "x = argv[1]"),
    ("TL116", "import subprocess", "subprocess.run(['ls'])"),
    ("TL116", "import urllib.request", "x = urllib.request.urlopen('http://x')"),
    ("TL116", "import socket", "x = socket.gethostname()"),
    ("TL116", "from pathlib import Path", "x = Path('f').read_text()"),
    ("TL116", "import os.path", "x = os.path.exists('f')"),
    ("TL116", "from os import path", "x = path.exists('f')"),
    ("TL116", "import logging\nlog = logging.getLogger('x')", "log.info('hi')"),
    ("TL116", "from datetime import datetime", "x = datetime.fromtimestamp(e.ts / 1e6)"),
    ("TL116", "import time", "x = time.localtime(e.ts)"),
    # shared state
    ("TL117", "seen = {}", "seen[e.who] = 1"),
    ("TL117", "seen = []", "seen.append(e.who)"),
    ("TL117", "seen = {1: []}", "x = e.who in seen"),
    ("TL117", "class C:\n    n = 0", "C.n += 1"),
    ("TL117", "class Config:\n    pass\nconfig = Config()", "config.limit = 4"),
    ("TL117", "limit = 3\ndef set_limit(n):\n    global limit\n    limit = n", "x = e.who > limit"),
    ("TL117", "def f(x, acc=[]):\n    acc.append(x)\n    return len(acc)", "x = f(e.who)"),
    ("TL117", "from collections import deque\nlast = deque()", "last.append(e.who)"),
    ("TL117", "import colorsys\ncolorsys.cache = []", "colorsys.cache.append(1)"),
    ("TL117", "import colorsys", "colorsys.limit = 4"),
    # hashes
    ("TL118", "", "self.count[hash(e.word)] += 1"),
    ("TL118", "", "x = id(e)"),
    ("TL118", "", "x = max(e.tags, key=hash)"),
    ("TL118", "", "x = hash((e.who, e.word))"),
    ("TL118", "h = hash", "x = h(e.word)"),
    # the order of sets
    ("TL119", "", "for t in set(e.tags):\n    self.emit(Out(n=len(t)))"),
    ("TL119", "", "s = {e.word, 'b'}\nx = list(s)"),
    ("TL119", "", "x = ','.join({e.word})"),
    ("TL119", "", "s = set()\nfor t in e.tags:\n    s.add(t)\nx = [t for t in s]"),
    ("TL119", "", "x = next(iter(set(e.tags)))"),
    ("TL119", "", "x = set(e.tags).pop()"),
    ("TL119", "", "for w in self.words:\n    self.emit(Out(n=1))"),
    ("TL119", "", "for w in set(e.tags) | {'x'}:\n    self.emit(Out(n=1))"),
    ("TL119", "WORDS = frozenset(('a', 'b'))", "x = tuple(WORDS)"),
    ("TL119", "", "x = f'{set(e.tags)}'"),
    ("TL119", "", "a, b = {e.word, 'x'}"),
    ("TL119", "", "x = [*set(e.tags)]"),
]


@pytest.mark.parametrize(("code", "top", "body"), CASES)
def test_it_is_found(check: Check, code: str, top: str, body: str) -> None:
    check.flags(body, code, top=top)


FINE = [
    ("", "x = self.now"),
    ("", "self.count[e.who] += 1"),
    ("import time", "x = time.gmtime(e.ts)"),
    ("import time", "x = time.strftime('%d', time.gmtime(e.ts))"),
    ("from datetime import datetime, UTC", "x = datetime.fromtimestamp(e.ts, UTC)"),
    ("from datetime import datetime", "x = datetime(2020, 1, 1)"),
    ("import random", "x = random.Random(e.seq).random()"),
    ("import numpy as np", "x = np.random.default_rng(e.seq).integers(3)"),
    ("import uuid", "x = uuid.uuid5(uuid.NAMESPACE_DNS, e.word)"),
    ("", "open = e.who\nx = open"),
    ("", "x = [print for print in (1, 2)]"),
    ("", "f = lambda input: input + 1"),
    ("", "x: 'time.time' = 3"),
    ("seen = (1, 2)", "x = e.who in seen"),
    ("seen = frozenset((1, 2))", "x = e.who in seen"),
    ("from types import MappingProxyType\nseen = MappingProxyType({1: 2})", "x = seen.get(e.who)"),
    ("limit = 3", "x = e.who > limit"),
    ("def shadow(seen):\n    seen.append(1)\n    return seen\nseen = (1,)", "x = seen"),
    ("def local():\n    out = []\n    out.append(1)\n    return out", "x = local()"),
    ("", "x = hash(e.who)"),
    ("", "x = hash((e.who, 3, e.ts))"),
    ("", "for t in sorted(set(e.tags)):\n    self.emit(Out(n=len(t)))"),
    ("", "x = len(set(e.tags))"),
    ("", "x = e.word in {'a', 'b'}"),
    ("", "x = {t.lower() for t in set(e.tags)}"),
    ("", "x = sorted(t for t in set(e.tags))"),
    ("", "for n in set(e.sizes):\n    self.emit(Out(n=n))"),
    ("", "for n in {1, 2}:\n    self.emit(Out(n=n))"),
    ("", "for w in e.tags:\n    self.emit(Out(n=1))"),
    ("", "s = set(e.tags)\ns.discard('x')\nx = 'y' in s"),
    ("import math", "x = math.floor(e.who)"),
    ("import re\nP = re.compile('a')", "x = P.search(e.word)"),
    ("from enum import Enum\nclass K(Enum):\n    A = 1", "x = K.A"),
    ("MODEL = tl.resource(__file__, len)", "x = MODEL"),
]


@pytest.mark.parametrize(("top", "body"), FINE)
def test_it_is_left_alone(check: Check, top: str, body: str) -> None:
    check.flags(body, top=top)


def test_a_set_of_unknown_elements_is_a_warning_and_a_set_of_text_an_error(check: Check) -> None:
    (text,) = check.found("for t in set(e.tags):\n    x = t")
    (unknown,) = check.found("for t in {f(e.who)}:\n    x = t", top="def f(x):\n    return x")
    assert (text.severity, unknown.severity) == (Severity.ERROR, Severity.WARNING)


def test_a_global_that_is_only_read_is_none_one_in_doubt_a_warning_and_one_that_is_changed_an_error(
    check: Check,
) -> None:
    assert check.found("x = e.who in seen", top="seen = {1: 2}") == ()
    (read,) = check.found("x = e.who in seen", top="seen = {1: 2}\ndef give():\n    return seen")
    (changed,) = check.found("x = e.who in seen", top="seen = {1: 2}\ndef add(k):\n    seen[k] = 1")
    assert (read.severity, changed.severity) == (Severity.WARNING, Severity.ERROR)
    assert "which add changes" in changed.message


def test_printing_is_a_warning(check: Check) -> None:
    (found,) = check.found("print(1)")
    assert found.severity is Severity.WARNING


def test_the_finding_names_file_line_handler_and_remedy(check: Check) -> None:
    (found,) = check.found("y = 1\nx = dt.now()", top="from datetime import datetime as dt")
    assert found.place.file is not None
    line = Path(found.place.file).read_text().splitlines()[(found.place.line or 0) - 1]
    assert line.strip() == "x = dt.now()"
    assert found.place.what == "P.handle"
    assert found.message == "reads dt.now(): replay would differ from live"
    assert "self.now" in found.remedy


def test_a_call_on_several_lines_in_one_handler_is_found_once_per_line(check: Check) -> None:
    check.flags("a = time.time(); b = time.time()\nc = time.time()", "TL114", "TL114", top="import time")
