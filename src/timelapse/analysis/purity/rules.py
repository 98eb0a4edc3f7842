"""The rules of the purity check. One class per diagnostic: code, severity, what to say, what to do instead."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from timelapse.analysis.purity.hidden import CatchesReject, MovingObjects, OuterVariables
from timelapse.analysis.purity.names import Reference
from timelapse.analysis.purity.shared import SharedState
from timelapse.analysis.purity.values import hash_is_stable, order_shows, set_elements
from timelapse.analysis.result import Severity

if TYPE_CHECKING:
    from timelapse.analysis.purity.walk import Scope


@dataclass(frozen=True)
class Finding:
    """What a rule found in a function."""

    code: str
    severity: Severity
    line: int | None
    message: str
    remedy: str


class Rule(Protocol):
    """Looks at one node of a function."""

    code: ClassVar[str]

    def check(self, node: ast.AST, scope: Scope) -> Iterator[Finding]:
        """What is wrong at this node."""


def _use(node: ast.AST, scope: Scope) -> tuple[Reference, ast.Call | None] | None:
    """The whole chain of names at a node, resolved, and the call that it is the function of."""
    if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
        return None
    parent = scope.parents.get(node)
    if isinstance(parent, ast.Attribute):
        return None
    found = scope.resolve(node)
    if found is None:
        return None
    call = parent if isinstance(parent, ast.Call) and parent.func is node else None
    return found, call


def _text(node: ast.AST, call: ast.Call | None) -> str:
    """How the user wrote it."""
    written = ast.unparse(node)
    return f"{written}({'...' if call.args or call.keywords else ''})" if call is not None else written


class Names:
    """A set of dotted names; `secrets.*` stands for everything below."""

    def __init__(self, text: str) -> None:
        self._exact = frozenset(n for n in text.split() if not n.endswith(".*"))
        self._below = tuple(n[:-1] for n in text.split() if n.endswith(".*"))

    def __contains__(self, name: str) -> bool:
        return name in self._exact or name.startswith(self._below)


class _NameRule:
    """Base of the rules that forbid names."""

    code: ClassVar[str]
    names: ClassVar[Names]
    severity: ClassVar[Severity] = Severity.ERROR
    verb: ClassVar[str]
    because: ClassVar[str]
    remedy: ClassVar[str]

    def check(self, node: ast.AST, scope: Scope) -> Iterator[Finding]:
        used = _use(node, scope)
        if used is not None and used[0].name in self.names and self.applies(used[0], used[1]):
            found, call = used
            message = f"{self.verb_for(found)} {_text(node, call)}: {self.because}"
            yield Finding(self.code, self.severity_for(found), node.lineno, message, self.remedy)  # type: ignore[attr-defined]

    def applies(self, found: Reference, call: ast.Call | None) -> bool:
        """Whether this use of the name matters."""
        return True

    def severity_for(self, found: Reference) -> Severity:
        return self.severity

    def verb_for(self, found: Reference) -> str:
        return self.verb


class Clock(_NameRule):
    """TL114: the time at which the program happens to run."""

    code = "TL114"
    names = Names(
        "time.time time.time_ns time.monotonic time.monotonic_ns time.perf_counter time.perf_counter_ns "
        "time.process_time time.process_time_ns time.thread_time time.thread_time_ns time.clock_gettime "
        "time.clock_gettime_ns time.localtime time.gmtime time.ctime time.asctime time.strftime "
        "datetime.datetime.now datetime.datetime.utcnow datetime.datetime.today datetime.date.today "
        "datetime.datetime().now datetime.datetime().utcnow datetime.datetime().today datetime.date().today "
        "pandas.Timestamp.now pandas.Timestamp.utcnow pandas.Timestamp.today"
    )
    verb = "reads"
    because = "replay would differ from live"
    remedy = "Use self.now (event time, int microseconds UTC)."
    _given: ClassVar[dict[str, int]] = {
        "time.localtime": 1, "time.gmtime": 1, "time.ctime": 1, "time.asctime": 1, "time.strftime": 2,
    }  # fmt: skip
    """With so many arguments these convert a given time."""

    def applies(self, found: Reference, call: ast.Call | None) -> bool:
        needed = self._given.get(found.name)
        return needed is None or call is None or len(call.args) < needed


class TimeZone(_NameRule):
    """TL116, milder: conversions that depend on the machine's time zone."""

    code = "TL116"
    severity = Severity.WARNING
    names = Names(
        "time.localtime time.mktime time.ctime time.tzname time.timezone time.altzone "
        "datetime.datetime.fromtimestamp datetime.date.fromtimestamp"
    )
    verb = "converts with"
    because = "the result depends on the machine's time zone"
    remedy = "Name the zone: datetime.fromtimestamp(t, tz=UTC)."

    def applies(self, found: Reference, call: ast.Call | None) -> bool:
        if found.name in ("time.localtime", "time.ctime") and call is not None and not call.args:
            return False  # a clock: TL114
        if found.name == "datetime.datetime.fromtimestamp" and call is not None:
            return len(call.args) < 2 and not call.keywords
        return True


class Randomness(_NameRule):
    """TL115: random numbers, tokens and identifiers."""

    code = "TL115"
    names = Names(
        "random.* numpy.random.* secrets.* uuid.uuid1 uuid.uuid4 uuid.getnode os.urandom os.getrandom"
    )
    verb = "draws"
    because = "each replay would draw something else"
    remedy = (
        "Derive it from the event: random.Random(e.seq).random(), or int.from_bytes(hashlib.blake2b(...).digest()) "
        "over its fields."
    )
    _seeded = frozenset(
        f"{m}.{n}" for m, names in {
            "random": ("Random",),
            "numpy.random": ("default_rng", "RandomState", "SeedSequence", "PCG64", "PCG64DXSM", "Philox", "SFC64",
                             "MT19937"),
        }.items() for n in names
    )  # fmt: skip
    _plain = frozenset(("numpy.random.Generator", "numpy.random.BitGenerator"))

    def applies(self, found: Reference, call: ast.Call | None) -> bool:
        if found.name in self._plain:
            return False
        if found.name in self._seeded:
            return call is not None and not call.args and not call.keywords
        if found.has_value and found.depth == 0 and "()" in found.name:
            return False  # a generator object by itself; its methods are found where they are called
        return found.name not in ("random", "numpy.random")


class Outside(_NameRule):
    """TL116: files, networks, processes, the environment."""

    code = "TL116"
    names = Names(
        "builtins.open builtins.input builtins.print builtins.breakpoint io.open os.open os.environ os.environ.* "
        "os.environb.* os.getenv os.getenvb os.system os.popen os.listdir os.scandir os.walk os.stat os.getcwd os.getpid "
        "os.getppid os.getlogin os.cpu_count os.remove os.unlink os.rename os.replace os.mkdir os.makedirs os.rmdir "
        "os.uname os.path.exists os.path.isfile os.path.isdir os.path.getsize os.path.getmtime os.path.abspath "
        "os.path.realpath os.path.expanduser os.path.expandvars os.write os.read "
        "sys.argv sys.argv.* sys.stdin sys.stdin.* sys.stdout sys.stdout.* sys.stderr sys.stderr.* sys.path sys.path.* "
        "sys.exit sys.flags sys.platform sys.executable os.name os.exec.* os._exit os.kill os.fork "
        "io.TextIOWrapper().* io.BufferedReader().* io.BufferedWriter().* "
        "pathlib.Path.cwd pathlib.Path.home logging.* warnings.warn "
        "requests.* urllib.request.* urllib3.* httpx.* aiohttp.* http.client.* ftplib.* smtplib.* socket.* ssl.* "
        "subprocess.* multiprocessing.* threading.* asyncio.* concurrent.* sqlite3.* shutil.* glob.* tempfile.* "
        "getpass.* platform.* importlib.resources.* webbrowser.* boto3.* redis.* psycopg2.* kafka.* "
        "time.sleep signal.*"
    )
    _harmless = Names(
        "builtins.print sys.stdout sys.stdout.* sys.stderr sys.stderr.* logging.* warnings.warn time.sleep"
    )
    verb = "uses"
    because = "what lies outside the log changes between runs"
    remedy = "Pass the value as a parameter, read a file through tl.resource(path, load), put results out with self.emit."

    def severity_for(self, found: Reference) -> Severity:
        return Severity.WARNING if found.name in self._harmless else Severity.ERROR

    def check(self, node: ast.AST, scope: Scope) -> Iterator[Finding]:
        for finding in super().check(node, scope):
            if finding.severity is Severity.WARNING:
                message = finding.message.replace(self.because, "a slice may run twice, or only in part")
                yield Finding(
                    self.code, finding.severity, finding.line, message, "Put results out with self.emit."
                )
            else:
                yield finding


class DecimalContext(_NameRule):
    """TL116: the thread's decimal context: results would depend on what ran before."""

    code = "TL116"
    names = Names(
        "decimal.getcontext decimal.setcontext decimal.localcontext decimal.DefaultContext decimal.DefaultContext.* "
        "decimal.BasicContext.* decimal.ExtendedContext.*"
    )
    verb = "uses"
    because = "handlers compute in Python's default decimal context, always"
    remedy = "Round where it matters: value.quantize(Decimal('0.01'), rounding=ROUND_HALF_UP), or a Context of your own made in the helper."


class FileMethods:
    """TL116: the methods of paths that read or write, whatever the path object is."""

    code: ClassVar[str] = "TL116"
    _methods = frozenset(
        (
            "read_text",
            "read_bytes",
            "write_text",
            "write_bytes",
            "iterdir",
            "is_file",
            "is_dir",
            "unlink",
            "mkdir",
        )
    )

    def check(self, node: ast.AST, scope: Scope) -> Iterator[Finding]:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in self._methods
        ):
            yield Finding(
                self.code,
                Severity.ERROR,
                node.lineno,
                f"uses {_text(node.func, node)}: {Outside.because}",
                Outside.remedy,
            )


class MutableGlobals:
    """TL117: what is shared between events without being a state."""

    code: ClassVar[str] = "TL117"

    def check(self, node: ast.AST, scope: Scope) -> Iterator[Finding]:
        for use in SharedState.at(node, scope):
            severity = Severity.ERROR if use.written else Severity.WARNING
            yield Finding(self.code, severity, use.line, use.message, use.remedy)


class IdentityHash:
    """TL118: `hash` of text and `id` of anything differ from process to process."""

    code: ClassVar[str] = "TL118"

    def check(self, node: ast.AST, scope: Scope) -> Iterator[Finding]:
        used = _use(node, scope)
        if used is None or used[0].name not in ("builtins.hash", "builtins.id"):
            return
        _, call = used
        if (
            used[0].name == "builtins.hash"
            and call is not None
            and call.args
            and hash_is_stable(call.args[0], scope)
        ):
            return
        why = "addresses" if used[0].name == "builtins.id" else "hashes of text"
        yield Finding(
            self.code, Severity.ERROR, call.lineno if call is not None else None,
            f"uses {ast.unparse(call) if call is not None else ast.unparse(node)}: {why} differ between processes",
            "Use the value itself as the key, or zlib.crc32 / hashlib.blake2b over its bytes.",
        )  # fmt: skip


class SetOrder:
    """TL119: the order of a set of text differs from process to process."""

    code: ClassVar[str] = "TL119"

    def check(self, node: ast.AST, scope: Scope) -> Iterator[Finding]:
        if not isinstance(node, ast.expr) or not order_shows(node, scope):
            return
        elements = set_elements(node, scope)
        if elements is None or elements == "number":
            return
        severity = Severity.ERROR if elements == "text" else Severity.WARNING
        yield Finding(
            self.code, severity, node.lineno,
            f"goes through the set {ast.unparse(node)}: its order differs between processes",
            f"Write sorted({ast.unparse(node)}).",
        )  # fmt: skip


RULES: tuple[Rule, ...] = (
    Clock(), TimeZone(), Randomness(), Outside(), DecimalContext(), FileMethods(), MutableGlobals(), IdentityHash(), SetOrder(),
    OuterVariables(), CatchesReject(), MovingObjects(),
)  # fmt: skip


def is_refused(target: object, call: ast.Call) -> bool:
    """Whether a replay refuses this call for what is called: then there is nothing to trust."""
    named = Reference.of(target)
    found = Reference(named.name, named.value, 1)
    return any(
        isinstance(rule, _NameRule)
        and found.name in rule.names
        and rule.applies(found, call)
        and rule.severity_for(found) is Severity.ERROR
        for rule in RULES
    )
