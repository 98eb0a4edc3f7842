"""Calls of the standard library whose results depend on their arguments alone, and what they give.

What such a call gives is told by words, a set of them where it may be one of several:

    plain      a str, bytes, number, bool or None, or a tuple of these
    plains     a new list of plain values
    box        a new list, dict, deque or the like, of anything
    json       a new value of JSON
    pattern, match, matches, address, decimal, time, hash, url, uuid      objects of the module that has these

An object's methods are known where all that the object may be has them in `_METHODS`. A function that is handed over (`key=`,
`object_hook=`) is not looked into: such a call is not known. Nor is one that reads the machine's time zone or its locale.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from timelapse.analysis.declared import Declared
from timelapse.analysis.tables import GIVES_IMMUTABLE, GIVES_LIST, READING_METHODS, builtin_name, is_math
from timelapse.code.scope import UNKNOWN, Scope, root_of
from timelapse.code.source import all_nodes
from timelapse.model.types import DecimalType, ListType, OptionalType, ScalarType, ValueType

Words = frozenset[str]
"""What an expression may be; the empty set where nothing is known of it yet."""

UNCHANGING = frozenset({"address", "decimal", "match", "pattern", "plain", "time", "url", "uuid"})
"""What nothing can change in place, nor use up."""
_NONE = frozenset[str]()
_PLAIN, _PATTERN, _TIME = frozenset({"plain"}), frozenset({"pattern"}), frozenset({"time"})


def _table(*lines: str) -> dict[str, Words]:
    """`a b -> x y`: a and b give an x or a y; `a ->`: what it gives is not said."""
    found: dict[str, Words] = {}
    for line in lines:
        names, _, gives = line.partition("->")
        found |= dict.fromkeys(names.split(), frozenset(gives.split() or ["?"]))
    return found


_FUNCTIONS = {
    "base64": _table("b16decode b16encode b32decode b32encode b64decode b64encode b85decode b85encode urlsafe_b64decode urlsafe_b64encode -> plain"),
    "binascii": _table("a2b_base64 a2b_hex b2a_base64 b2a_hex crc32 crc_hqx hexlify unhexlify -> plain"),
    "bisect": _table("bisect bisect_left bisect_right -> plain"),
    "collections": _table("Counter OrderedDict deque -> box"),
    "datetime": _table("date datetime time timedelta timezone -> time"),
    "decimal": _table("Decimal -> decimal"),
    "hashlib": _table("blake2b blake2s md5 new sha1 sha224 sha256 sha384 sha3_224 sha3_256 sha3_384 sha3_512 sha512 -> hash"),
    "hmac": _table("compare_digest -> plain"),
    "html": _table("escape unescape -> plain"),
    "ipaddress": _table(
        "ip_address ip_interface ip_network IPv4Address IPv4Interface IPv4Network IPv6Address IPv6Interface IPv6Network -> address",
    ),
    "json": _table("dumps -> plain", "loads -> json"),
    "re": _table(
        "compile -> pattern", "fullmatch match search -> match plain", "findall split -> plains", "finditer -> matches",
        "escape sub subn -> plain",
    ),
    "unicodedata": _table(
        "bidirectional category combining decimal decomposition digit east_asian_width is_normalized lookup mirrored name normalize numeric "
        "-> plain"
    ),
    "urllib.parse": _table(
        "quote quote_from_bytes quote_plus unquote unquote_plus unquote_to_bytes urlencode urljoin urlunparse urlunsplit -> plain",
        "urldefrag urlparse urlsplit -> url", "parse_qs parse_qsl -> box",
    ),
    "uuid": _table("UUID uuid3 uuid5 -> uuid"),
    "zlib": _table("adler32 crc32 decompress -> plain"),
}  # fmt: skip
"""By module: functions and classes."""

_OF_CLASSES = {
    "builtins.bytes": _table("fromhex -> plain"),
    "builtins.float": _table("fromhex -> plain"),
    "builtins.int": _table("from_bytes -> plain"),
    "datetime.date": _table("fromisocalendar fromisoformat fromordinal -> time"),
    "datetime.datetime": _table(
        "combine fromisocalendar fromisoformat fromordinal fromtimestamp strptime utcfromtimestamp -> time",
    ),
    "datetime.time": _table("fromisoformat -> time"),
    "decimal.Decimal": _table("from_float -> decimal"),
}  # fmt: skip
"""By class: methods that are called with the class alone."""

_CHANGING = "add append clear discard extend insert pop popitem remove reverse setdefault sort update"
_CHANGING_MORE = "appendleft extendleft move_to_end popleft rotate subtract"
"""Methods that change their object: of all containers, and of some."""
_CHANGES = frozenset(f"{_CHANGING} {_CHANGING_MORE}".split())

_METHODS = {
    "address": _table("overlaps subnet_of supernet_of -> plain", "supernet -> address"),
    "box": _table(
        f"{' '.join(sorted(READING_METHODS))} {_CHANGING} ->",
        f"{_CHANGING_MORE} elements total ->", "copy most_common -> box",
    ),
    "decimal": _table(
        "canonical compare compare_total copy_abs copy_negate copy_sign fma max max_mag min min_mag next_minus next_plus "
        "normalize quantize remainder_near scaleb sqrt to_integral to_integral_exact to_integral_value -> decimal",
        "adjusted as_integer_ratio as_tuple is_finite is_infinite is_nan is_normal is_qnan is_signed is_snan is_subnormal "
        "is_zero number_class same_quantum to_eng_string -> plain",
    ),
    "hash": _table("digest hexdigest update -> plain", "copy -> hash"),
    "json": _table(f"{' '.join(sorted(READING_METHODS))} {_CHANGING} ->"),
    "match": _table("end expand group groups span start -> plain", "groupdict -> box"),
    "pattern": _table(
        "fullmatch match search -> match plain", "findall split -> plains", "finditer -> matches", "sub subn -> plain",
    ),
    "plain": _table(
        f"{' '.join(sorted(READING_METHODS - GIVES_LIST - {'copy', 'maketrans'}))} -> plain", f"{' '.join(sorted(GIVES_LIST))} -> plains",
    ),
    "plains": _table(f"{' '.join(sorted(READING_METHODS))} {_CHANGING} ->"),
    "time": _table(
        "date replace time timetz -> time", "dst utcoffset -> time plain",
        "isocalendar isoformat isoweekday strftime toordinal total_seconds tzname weekday -> plain",
    ),
    "url": _table("geturl -> plain"),
}  # fmt: skip

_ELEMENTS = {"plain": _PLAIN, "plains": _PLAIN, "matches": frozenset({"match"})}
"""What going through a value gives, where nobody else can have put anything into it."""

_HANDED_OVER = frozenset({
    "cls", "context", "default", "key", "object_hook", "object_pairs_hook", "parse_constant", "parse_float", "parse_int",
    "quote_via",
})  # fmt: skip
"""Arguments that are functions, or that hold what is computed elsewhere."""

_DIGITS = re.compile(r"([^%]|%[YmdHMSfjUwWVGuyIz%])*", re.DOTALL)
"""Formats of times that do not depend on a locale or a time zone of the machine."""

_ADDRESSES = frozenset(
    {"IPv4Address", "IPv4Interface", "IPv4Network", "IPv6Address", "IPv6Interface", "IPv6Network"}
)
_TIMES = frozenset({"date", "datetime", "time", "timedelta", "timezone"})


def words_of_value(value: Any) -> Words | None:
    """What an object is; None for objects that may change, or of which nothing is known."""
    kind = type(value)
    if kind in (str, bytes, int, float, bool, complex, types.NoneType):
        return _PLAIN
    if kind in (tuple, frozenset):
        return _PLAIN if all(words_of_value(v) == _PLAIN for v in value) else None
    if kind is re.Pattern:
        return None if value.flags & re.LOCALE else _PATTERN
    match kind.__module__, kind.__name__:
        case "decimal", "Decimal":
            return frozenset({"decimal"})
        case "datetime", name if name in _TIMES:
            return _TIME
        case "ipaddress", name if name in _ADDRESSES:
            return frozenset({"address"})
    return None


def words_of_type(kind: ValueType | None) -> Words | None:
    """What a declared type's values are."""
    match kind:
        case DecimalType():
            return frozenset({"decimal"})
        case ScalarType():
            return _PLAIN
        case OptionalType(inner=inner):
            found = words_of_type(inner)
            return None if found is None else found | _PLAIN
        case ListType(inner=inner):
            return _PLAIN if words_of_type(inner) == _PLAIN else None
    return None


class Library:
    """What the expressions of one function may be, as far as the standard library and plain values go."""

    def __init__(
        self, scope: Scope, body: Iterable[ast.stmt], declared: Declared = lambda _: None,
        given: Mapping[str, Words] = {},
    ) -> None:  # fmt: skip
        """`given`: what parameters are, as far as that is known."""
        self._scope, self._declared, self._given = scope, declared, given
        self._body = list(body)
        self._names: dict[str, Words | None] | None = None

    def call(self, node: ast.Call) -> Words | None:
        """What a call gives, if it is known to depend on its arguments alone; None for all others."""
        found = self._called(node)
        return found if found is not None and self._fits(node) else None

    def same_again(self, node: ast.Call) -> bool:
        """Whether a call gives the same whenever it is made with the same: it is known, and changes nothing."""
        changes = isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES
        return not changes and self.call(node) is not None

    def arguments(self, function: types.FunctionType, call: ast.Call) -> dict[str, Words]:
        """What a function's parameters are in one call, as far as that is known."""
        code = function.__code__
        given = {} if any(isinstance(a, ast.Starred) for a in call.args) else dict(
            zip(code.co_varnames[: code.co_argcount], call.args, strict=False)
        )  # fmt: skip
        given |= {k.arg: k.value for k in call.keywords if k.arg is not None}
        found = {name: self.words(value) for name, value in given.items()}
        return {name: words for name, words in found.items() if words is not None}

    def words(self, node: ast.expr) -> Words | None:
        """What an expression may be; None where it may be anything."""
        kind = self._type(node)
        if kind is not None:
            return words_of_type(kind)
        match node:
            case ast.Constant(value=value):
                return words_of_value(value)
            case ast.JoinedStr() | ast.Compare() | ast.UnaryOp(op=ast.Not()):
                return _PLAIN
            case ast.Name(id=name):
                if name in self._bound():
                    return self._bound()[name]
                if name in self._given:
                    return self._given[name]
                return None if name in self._scope.locals else words_of_value(self._scope.name(name))
            case ast.Attribute():
                value = self._scope.resolve(node)
                if value is not UNKNOWN:
                    return words_of_value(value)
                owner = self.words(node.value)
                return _PLAIN if owner and owner <= {"url", "address"} and node.attr in _PARTS else None
            case ast.Subscript(value=value, slice=index):
                owner = self.words(value)
                if not owner:
                    return owner
                fresh = {"plains"} if isinstance(value, ast.Call) and _is_number(index) else _NONE
                return _PLAIN if owner <= {"plain", "match", "url"} | fresh else None
            case ast.BoolOp(values=values):
                return self._any(values)
            case ast.IfExp(body=body, orelse=orelse):
                return self._any([body, orelse])
            case ast.NamedExpr(value=value) | ast.UnaryOp(operand=value):
                return self.words(value)
            case ast.Tuple(elts=elts):
                found = self._any(elts)
                return found if found == _PLAIN else None
            case ast.BinOp(left=left, right=right):
                return _computed(self._any([left, right]))
            case ast.Call():
                return self._result(node)
        return None

    # --- calls -----------------------------------------------------------------------------------------

    def _result(self, node: ast.Call) -> Words | None:
        target = self._scope.resolve(node.func)
        name = builtin_name(target)
        if (name in GIVES_IMMUTABLE and name not in ("type", "slice")) or is_math(target):
            return _PLAIN
        if name in ("abs", "max", "min", "round", "sum") and not node.keywords:
            found = self._any(node.args) if len(node.args) > 1 else None
            return found if found in (_PLAIN, frozenset({"decimal"})) else None
        found = self.call(node)
        return None if found is None or "?" in found else found

    def _called(self, node: ast.Call) -> Words | None:
        target = self._scope.resolve(node.func)
        if target is not UNKNOWN:
            where = _known(target)
            if where is not None:
                return _FUNCTIONS[where[0]][where[1]]
        if not isinstance(node.func, ast.Attribute):
            return None
        owner = self._scope.resolve(node.func.value)
        if isinstance(owner, type):
            return _OF_CLASSES.get(f"{owner.__module__}.{owner.__qualname__}", {}).get(node.func.attr)
        words = self.words(node.func.value)
        if not words:
            return words
        gives = {word: _METHODS.get(word, {}).get(node.func.attr) for word in words}
        if len(gives) > 1 and gives.get("plain", _NONE) is None:
            del gives[
                "plain"
            ]  # None has no such method, which is an error; whatever else it may be has to have it
        return _all(gives.values())

    def _fits(self, node: ast.Call) -> bool:
        """Whether the arguments leave the result to them alone."""
        if any(k.arg is None or k.arg in _HANDED_OVER for k in node.keywords):
            return False
        if any(isinstance(a, ast.Starred) for a in node.args):
            return False
        where = _known(self._scope.resolve(node.func))
        module, name = where if where is not None else ("", "")
        method = node.func.attr if isinstance(node.func, ast.Attribute) else name
        args: dict[int | str | None, ast.expr] = dict(enumerate(node.args))
        args |= {k.arg: k.value for k in node.keywords}
        if module == "re" and name != "escape" and not self._is_text(args.get(0, args.get("pattern"))):
            return False  # a pattern of bytes may name the locale
        if method in ("sub", "subn"):
            replacing = args.get(int(module == "re"), args.get("repl"))
            return replacing is not None and self.words(replacing) == _PLAIN
        if method in ("strftime", "strptime"):
            form = args.get(int(method == "strptime"), args.get("format"))
            return (
                isinstance(form, ast.Constant)
                and isinstance(form.value, str)
                and _DIGITS.fullmatch(form.value) is not None
            )
        if method == "fromtimestamp":
            zone = args.get(1, args.get("tz"))
            return zone is not None and self.words(zone) == _TIME
        if module == "decimal":
            return len(node.args) < 2  # the second is a context
        if isinstance(node.func, ast.Attribute) and "decimal" in (self.words(node.func.value) or ()):
            found = self._any(args.values())
            return found is not None and found <= {"plain", "decimal"}  # and no context
        return True

    def _is_text(self, node: ast.expr | None) -> bool:
        """Whether a pattern is a str, or compiled from one."""
        match node:
            case None:
                return False
            case ast.JoinedStr():
                return True
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._is_text(left) or self._is_text(right)
            case ast.Constant(value=value):
                return isinstance(value, str)
        kind, value = self._type(node), self._scope.resolve(node)
        of_text = isinstance(kind, ScalarType) and kind.name == "str"
        return of_text or isinstance(value, str) or words_of_value(value) == _PATTERN

    def _type(self, node: ast.expr) -> ValueType | None:
        """The declared type of an expression that begins with the event or the program, as long as these names stand for them."""
        return None if root_of(node) in self._bound() else self._declared(node)

    def _any(self, nodes: Iterable[ast.expr]) -> Words | None:
        return _all([self.words(n) for n in nodes])

    # --- locals ----------------------------------------------------------------------------------------

    def _bound(self) -> dict[str, Words | None]:
        """What the names that the function binds may be, whichever binding came last."""
        if self._names is None:
            bindings = [b for s in self._body for n in all_nodes(s) for b in self._bindings(n)]
            self._names = {name: self._outside(name) for name, _, _ in bindings}
            before: dict[str, Words | None] | None = None
            while before != self._names:  # words only become more
                before = dict(self._names)
                for name, value, element in bindings:
                    self._bind(name, value, element)
        return self._names

    def _outside(self, name: str) -> Words | None:
        """What a bound name may be without being bound: a parameter anything, a comprehension's variable a global elsewhere."""
        code = self._scope.function.__code__
        count = code.co_argcount + code.co_kwonlyargcount
        count += sum(bool(code.co_flags & flag) for flag in (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS))
        if name in code.co_varnames[:count]:
            return self._given.get(name)
        value = UNKNOWN if name in self._scope.locals else self._scope.name(name)
        return _NONE if value is UNKNOWN else words_of_value(value)

    def _bind(self, name: str, value: ast.expr | None, element: bool) -> None:
        assert self._names is not None
        known = self._names[name]
        if value is None or known is None:
            self._names[name] = None
            return
        found = self.words(value)
        if found is not None and element:
            # A list under a name may hold what was put into it since.
            fresh = isinstance(value, ast.Call) or found == _PLAIN
            found = _all([_ELEMENTS.get(word) for word in found]) if fresh else None
        self._names[name] = None if found is None else known | found

    def _bindings(self, node: ast.AST) -> Iterator[tuple[str, ast.expr | None, bool]]:
        """Names with what they are bound to; `True`: to each element of that. None: to something unknown."""
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield from _targets(target, value, False)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                yield from _targets(target, value, False)
            case ast.NamedExpr(target=target, value=value):
                yield from _targets(target, value, False)
            case ast.AugAssign(target=ast.Name(id=name)):
                yield name, ast.BinOp(ast.Name(name, ast.Load()), node.op, node.value), False
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                yield from _targets(target, value, True)
            case ast.withitem(optional_vars=ast.expr() as target):
                yield from _targets(target, None, False)
            case (
                ast.ExceptHandler(name=str() as name)
                | ast.MatchAs(name=str() as name)
                | ast.MatchStar(name=str() as name)
            ):
                yield name, None, False
            case ast.MatchMapping(rest=str() as name):
                yield name, None, False
            case ast.arg(arg=name):
                yield name, None, False
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, None, False
            case ast.alias(name=dotted, asname=asname):
                yield asname or dotted.partition(".")[0], None, False


_PARTS = frozenset({
    "compressed", "exploded", "fragment", "hostname", "is_global", "is_link_local", "is_loopback", "is_multicast", "is_private",
    "is_reserved", "is_unspecified", "max_prefixlen", "netloc", "num_addresses", "packed", "params", "password", "path", "port",
    "prefixlen", "query", "reverse_pointer", "scheme", "username", "version",
})  # fmt: skip
"""Attributes of URLs and addresses that are plain values."""


def _is_number(node: ast.expr) -> bool:
    """Whether an index is written as a number: not a slice, which gives a list of a list."""
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant)


def _all(found: Collection[Words | None]) -> Words | None:
    """What one of these may be; None where one of them may be anything."""
    known = [words for words in found if words is not None]
    return _NONE.union(*known) if len(known) == len(found) else None


def _computed(sides: Words | None) -> Words | None:
    """What an operator gives, by what both sides may be: of a decimal and an int a decimal, of two times a time or a number."""
    if sides is None or sides <= {"plain", "decimal"}:
        return sides
    return frozenset({"plain", "time"}) if sides <= {"plain", "time"} else None


def _targets(
    target: ast.expr, value: ast.expr | None, element: bool
) -> Iterator[tuple[str, ast.expr | None, bool]]:
    match target:
        case ast.Name(id=name):
            yield name, value, element
        case ast.Tuple(elts=elts) | ast.List(elts=elts):
            for inner in elts:
                yield from _targets(inner, None, False)
        case ast.Starred(value=inner):
            yield from _targets(inner, None, False)


def _known(target: Any) -> tuple[str, str] | None:
    """The module and the name of a function or class of the standard library that is known."""
    found = _index(frozenset(m for m in _FUNCTIONS if m in sys.modules)).get(id(target))
    return None if found is None or vars(sys.modules[found[0]]).get(found[1]) is not target else found


@lru_cache(maxsize=8)
def _index(modules: frozenset[str]) -> dict[int, tuple[str, str]]:
    return {
        id(value): (module, name)
        for module in sorted(modules)
        for name in _FUNCTIONS[module]
        if (value := vars(sys.modules[module]).get(name)) is not None and _is_own(value)
    }


def _is_own(value: Any) -> bool:
    """Whether it is the library's, and nobody has put something else in its place."""
    module = value.__globals__.get("__name__") if isinstance(value, types.FunctionType) else value.__module__
    return isinstance(module, str) and module.partition(".")[0] in sys.stdlib_module_names
