"""Functions of texts, and those of Kubernetes.

Texts: the standard ones, the extension of version 2, and regular expressions. Kubernetes:
quantities, formats of names, URLs, IP addresses and networks.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import math
import re
import string
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final
from urllib.parse import SplitResult, parse_qs, quote, urlsplit

import attrs

from kueuelib.api.quantity import Quantity
from kueuelib.embedded.builtins.metadata import (
    label,
    label_1035,
    label_value,
    qualified_name,
    subdomain,
)
from kueuelib.embedded.cel.errors import CostBudget, EvalError, traversal
from kueuelib.embedded.cel.operators import format_double
from kueuelib.embedded.cel.parser import PLAIN
from kueuelib.embedded.cel.regex import compile_pattern
from kueuelib.embedded.cel.times import format_duration, format_timestamp, parse_timestamp
from kueuelib.embedded.cel.types import Library
from kueuelib.embedded.cel.values import (
    INT_MAX,
    INT_MIN,
    NANO,
    NONE,
    CelDuration,
    Optional,
    Timestamp,
    TypeValue,
    type_name,
)
from kueuelib.embedded.schema.formats import fits
from kueuelib.errors import InvalidQuantity

# ---- `"...".format([...])` -----------------------------------------------------------------------

_CLAUSE = re.compile(r"%(?:\.([0-9]{1,9}))?(.?)", re.DOTALL)
DEFAULT_PRECISION = 6
LARGEST_PRECISION = 100


def format_text(budget: CostBudget, template: str, values: list[Any]) -> str:
    """The template with its clauses replaced.

    Raises:
        EvalError: clauses and values do not match.
    """
    budget.spend(len(template) // 10 + 1)
    parts: list[str] = []
    position, used = 0, 0
    for clause in _CLAUSE.finditer(template):
        parts.append(template[position : clause.start()])
        position = clause.end()
        precision, verb = clause[1], clause[2]
        if verb == "%":
            parts.append("%")
            continue
        if not verb:
            raise EvalError("unexpected end of string")
        if used >= len(values):
            raise EvalError(f"index {used} out of range")
        digits = DEFAULT_PRECISION if precision is None else int(precision)
        if digits > LARGEST_PRECISION:
            raise EvalError(f"precision {digits} exceeds the maximum of {LARGEST_PRECISION}")
        text = _formatted(verb, values[used], digits, budget)
        budget.spend(len(text) // 10 + 1)
        parts.append(text)
        used += 1
    parts.append(template[position:])
    return "".join(parts)


def _formatted(verb: str, value: Any, precision: int, budget: CostBudget) -> str:
    if verb == "s":
        return shown(value, budget)
    number = isinstance(value, int) and type(value) is not bool
    if verb == "d":
        if number:
            return str(int(value))
        if isinstance(value, float) and not math.isfinite(value):
            return shown(value, budget)
        raise _misfit("decimal", "integers", value)
    if verb in "fe":
        if not isinstance(value, float) and not number:
            raise _misfit(
                "fixed-point" if verb == "f" else "scientific", "doubles, integers and uints", value
            )
        if isinstance(value, float) and not math.isfinite(value):
            return shown(value, budget)
        return f"{value:.{precision}{verb}}"
    if verb == "b":
        if not isinstance(value, int):
            raise _misfit("binary", "integers and bools", value)
        return f"{int(value):b}"
    if verb == "o":
        if not number:
            raise _misfit("octal", "integers", value)
        return f"{int(value):o}"
    if verb in "xX":
        if number:
            text = f"{int(value):x}"
        elif isinstance(value, str | bytes):
            text = (value.encode(errors="replace") if isinstance(value, str) else value).hex()
        else:
            raise _misfit("hex", "integers, strings and bytes", value)
        return text.upper() if verb == "X" else text
    raise EvalError(f'could not parse formatting clause: unrecognized formatting clause "{verb}"')


def _misfit(clause: str, kinds: str, value: Any) -> EvalError:
    return EvalError(f"{clause} clause can only be used on {kinds}, was given {type_name(value)}")


def shown(value: Any, budget: CostBudget) -> str:
    """A value as `%s` writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return format_double(value, 400).replace("Inf", "Infinity").removeprefix("+")
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, Timestamp):
        return format_timestamp(value)
    if isinstance(value, CelDuration):
        return format_duration(value)
    if isinstance(value, TypeValue):
        return value.name
    if isinstance(value, list):
        budget.spend(len(value) + 1)
        return f"[{', '.join(shown(each, budget) for each in value)}]"
    if isinstance(value, dict):
        budget.spend(len(value) + 1)
        pairs = sorted((shown(key, budget), shown(each, budget)) for key, each in value.items())
        return f"{{{', '.join(f'{key}: {each}' for key, each in pairs)}}}"
    raise EvalError(f"string clause can only be used on strings, was given {type_name(value)}")


# --------------------------------------------------------------------------------------------------

_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_UPPER = str.maketrans(string.ascii_lowercase, string.ascii_uppercase)
_SPACES = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u2028\u2029\u202f\u205f\u3000"
)
_QUOTED = str.maketrans(
    {'"': '\\"', "\\": "\\\\", **{value: f"\\{letter}" for letter, value in PLAIN.items()}}
)


def add_texts(library: Library) -> None:
    """Adds them."""
    method, function = library.method, library.function
    method("contains", "string;string", "bool", lambda a, b: b in a, _product)
    method("startsWith", "string;string", "bool", str.startswith, lambda _, b: traversal(b))
    method("endsWith", "string;string", "bool", str.endswith, lambda _, b: traversal(b))
    method("charAt", "string;int", "string", _char_at)
    method("indexOf", "string;string", "int", _index_of, _product)
    method("indexOf", "string;string;int", "int", _index_of, _product)
    method("lastIndexOf", "string;string", "int", _last_index_of, _product)
    method("lastIndexOf", "string;string;int", "int", _last_index_of, _product)
    method("lowerAscii", "string", "string", lambda a: a.translate(_LOWER), traversal)
    method("upperAscii", "string", "string", lambda a: a.translate(_UPPER), traversal)
    method("trim", "string", "string", lambda a: a.strip(_SPACES), traversal)
    method("replace", "string;string;string", "string", _replace, budgeted=True)
    method("replace", "string;string;string;int", "string", _replace, budgeted=True)
    method("split", "string;string", "list<string>", _split, traversal)
    method("split", "string;string;int", "list<string>", _split, traversal)
    method("substring", "string;int", "string", _substring, traversal)
    method("substring", "string;int;int", "string", _substring, traversal)
    method("join", "list<string>", "string", _join, budgeted=True)
    method("join", "list<string>;string", "string", _join, budgeted=True)
    method("format", "string;list<dyn>", "string", format_text, budgeted=True)
    function("strings.quote", "string", "string", lambda a: f'"{a.translate(_QUOTED)}"', traversal)
    method("matches", "string;string", "bool", _matches, _searched)
    function("matches", "string;string", "bool", _matches, _searched)
    method("find", "string;string", "string", _find, _searched)
    method("findAll", "string;string", "list<string>", _find_all, _searched)
    method("findAll", "string;string;int", "list<string>", _find_all, _searched)


def _product(text: str, part: str, *_: Any) -> int:
    return (len(text) // 10 + 1) * (len(part) // 10 + 1)


def _char_at(text: str, index: int) -> str:
    if 0 <= index < len(text):
        return text[index]
    if index == len(text):
        return ""
    raise EvalError(f"index out of range: {index}")


def _index_of(text: str, part: str, start: int = 0) -> int:
    if start < 0 or start > len(text):
        raise EvalError(f"index out of range: {start}")
    return text.find(part, start)


def _last_index_of(text: str, part: str, start: int | None = None) -> int:
    if start is None:
        return text.rfind(part)
    if start < 0 or start > len(text):
        raise EvalError(f"index out of range: {start}")
    return text.rfind(part, 0, start + len(part))


def _replace(budget: CostBudget, text: str, old: str, new: str, count: int = -1) -> str:
    budget.spend(traversal(text))
    if count == 0:
        return text
    times = text.count(old)
    if count > 0:
        times = min(times, count)
    budget.spend((len(text) + times * len(new)) // 10 + 1)
    return text.replace(old, new, times)


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if limit == 1:
        return [text]
    if separator == "":
        if limit < 0 or limit >= len(text):
            return list(text)
        return [*text[: limit - 1], text[limit - 1 :]]
    return text.split(separator, -1 if limit < 0 else limit - 1)


def _substring(text: str, start: int, end: int | None = None) -> str:
    last = len(text) if end is None else end
    if start < 0 or start > len(text):
        raise EvalError(f"index out of range: {start}")
    if last < 0 or last > len(text):
        raise EvalError(f"index out of range: {last}")
    if start > last:
        raise EvalError(f"invalid substring range. start: {start}, end: {last}")
    return text[start:last]


def _join(budget: CostBudget, parts: list[Any], separator: str = "") -> str:
    total = 0
    for part in parts:
        if not isinstance(part, str):
            raise EvalError("no such overload")
        total += len(part) + len(separator)
    budget.spend(total // 10 + 1)
    return separator.join(parts)


def _searched(text: str, pattern: str, *_: Any) -> int:
    return (len(text) // 10 + 1) * -(-len(pattern) // 4)


def _matches(text: str, pattern: str) -> bool:
    return compile_pattern(pattern).matches(text)


def _find(text: str, pattern: str) -> str:
    return next(compile_pattern(pattern).find_all(text), "")


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    return list(islice(compile_pattern(pattern).find_all(text), limit if limit >= 0 else None))


# ---- uRLs, IP addresses and networks -------------------------------------------------------------

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Interface | ipaddress.IPv6Interface

_HOST = re.compile(r"[^\s<>\"\\^`{|}/?#@\[\]]*|\[[0-9a-fA-F:.]+(?:%25[^\]]*)?\]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*\Z")


@attrs.frozen
class Ip:
    """`ip("10.0.0.1")`."""

    address: Address
    cel_type = "net.IP"


@attrs.frozen
class Cidr:
    """`cidr("10.0.0.0/8")`; the address may have bits beyond the prefix."""

    value: Network
    cel_type = "net.CIDR"


@attrs.frozen
class Url:
    """`url("https://host/path")`."""

    text: str
    parts: SplitResult = attrs.field(eq=False)
    cel_type = "kubernetes.URL"


def parse_ip(text: str) -> Ip:
    """An address; no zones, no IPv4 inside IPv6.

    Raises:
        EvalError: it is not valid.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise EvalError(
            f'IP Address "{text[:60]}" parse error during conversion from string'
        ) from None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            raise EvalError(f'IP address "{text[:60]}" with zone value is not allowed')
        if address.ipv4_mapped is not None:
            raise EvalError(f'IPv4-mapped IPv6 address "{text[:60]}" is not allowed')
    return Ip(address)


def parse_cidr(text: str) -> Cidr:
    """A network.

    Raises:
        EvalError: it is not valid.
    """
    wrong = EvalError(f'network address parse error during conversion from string: "{text[:60]}"')
    address, slash, bits = text.partition("/")
    canonical = bits.isascii() and bits.isdigit() and (bits == "0" or bits[0] != "0")
    if not slash or not canonical or len(bits) > 3:
        raise wrong
    try:
        return Cidr(ipaddress.ip_interface(f"{parse_ip(address).address}/{bits}"))
    except ValueError:
        raise wrong from None


def parse_url(text: str) -> Url:
    """An absolute URI or an absolute path, as for Go's `url.ParseRequestURI`.

    Raises:
        EvalError: it is not valid.
    """
    wrong = EvalError(f"URL parse error during conversion from string: {text[:60]!r}")
    if any(ord(letter) < 33 or ord(letter) == 127 for letter in text) or len(text) > 100_000:
        raise wrong
    scheme, colon, rest = text.partition(":")
    if not text.startswith("/") and (not colon or not _SCHEME.match(scheme) or not rest):
        raise wrong
    if re.search(r"%(?![0-9A-Fa-f]{2})", text.partition("?")[0]):
        raise wrong
    try:
        parts = urlsplit(text, allow_fragments=False)
        _ = parts.port
    except ValueError:
        raise wrong from None
    name, port = _host_and_port(parts)
    if not _HOST.fullmatch(name) or (port and not (port.isascii() and port.isdigit())):
        raise wrong
    return Url(text, parts)


def _host_and_port(parts: SplitResult) -> tuple[str, str]:
    """The host, with the brackets of an IPv6 address, and the port."""
    host = parts.netloc.rpartition("@")[2]
    name, colon, port = host.rpartition(":")
    return (host, "") if host.endswith("]") or not colon else (name, port)


def _path(url: Url) -> str:
    return quote(url.parts.path, safe="/%:@!$&'()*+,;=~-._")


def _query(url: Url) -> dict[str, list[str]]:
    try:
        return parse_qs(url.parts.query, keep_blank_values=True, max_num_fields=10_000)
    except ValueError:
        raise EvalError("too many fields in the query") from None


def parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    """Whether a text can be parsed."""

    def test(text: str) -> bool:
        try:
            parse(text)
        except EvalError:
            return False
        return True

    return test


def _contains_ip(network: Cidr, given: Ip | str) -> bool:
    ip = parse_ip(given) if isinstance(given, str) else given
    return ip.address in network.value.network


def _contains_cidr(network: Cidr, given: Cidr | str) -> bool:
    other = (parse_cidr(given) if isinstance(given, str) else given).value
    outer = network.value.network
    return (
        outer.version == other.version
        and other.ip in outer
        and outer.prefixlen <= other.network.prefixlen
    )


def _unicast(ip: Ip) -> bool:
    address = ip.address
    limited = address == ipaddress.ip_address("255.255.255.255")
    return not (
        limited
        or address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
    )


_LINK_LOCAL_GROUPS = (ipaddress.ip_network("224.0.0.0/24"), ipaddress.ip_network("ff02::/16"))


def add_network(library: Library) -> None:
    """Adds them."""
    function, method = library.function, library.method
    function("url", "string", "kubernetes.URL", parse_url, traversal)
    function("isURL", "string", "bool", parses(parse_url), traversal)
    url = "kubernetes.URL"
    method("getScheme", url, "string", lambda u: u.parts.scheme)
    method("getHost", url, "string", lambda u: u.parts.netloc.rpartition("@")[2])
    method("getHostname", url, "string", lambda u: _host_and_port(u.parts)[0].strip("[]"))
    method("getPort", url, "string", lambda u: _host_and_port(u.parts)[1])
    method("getEscapedPath", url, "string", _path)
    method("getQuery", url, "map<string,list<string>>", _query)
    ip, cidr = "net.IP", "net.CIDR"
    function("ip", "string", ip, parse_ip, traversal)
    function("isIP", "string", "bool", parses(parse_ip), traversal)
    function("ip.isCanonical", "string", "bool", lambda t: str(parse_ip(t).address) == t, traversal)
    function("string", ip, "string", lambda i: str(i.address))
    method("family", ip, "int", lambda i: i.address.version)
    method("isUnspecified", ip, "bool", lambda i: i.address.is_unspecified)
    method("isLoopback", ip, "bool", lambda i: i.address.is_loopback)
    groups = lambda i: any(i.address in each for each in _LINK_LOCAL_GROUPS)  # noqa: E731
    method("isLinkLocalMulticast", ip, "bool", groups)
    method("isLinkLocalUnicast", ip, "bool", lambda i: i.address.is_link_local)
    method("isGlobalUnicast", ip, "bool", _unicast)
    function("cidr", "string", cidr, parse_cidr, traversal)
    function("isCIDR", "string", "bool", parses(parse_cidr), traversal)
    function("string", cidr, "string", lambda c: str(c.value))
    for kind in ("string", ip):
        method("containsIP", f"{cidr};{kind}", "bool", _contains_ip)
    for kind in ("string", cidr):
        method("containsCIDR", f"{cidr};{kind}", "bool", _contains_cidr)
    method("ip", cidr, ip, lambda c: Ip(c.value.ip))
    method("masked", cidr, cidr, lambda it: Cidr(ipaddress.ip_interface(str(it.value.network))))
    method("prefixLength", cidr, "int", lambda c: c.value.network.prefixlen)


# --------------------------------------------------------------------------------------------------

QUANTITY: Final = "kubernetes.Quantity"


def _parse(text: str) -> Quantity:
    try:
        return Quantity.parse(text)
    except InvalidQuantity:
        raise EvalError(
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        ) from None


def _is_integer(value: Quantity) -> bool:
    return value.nanos % NANO == 0 and INT_MIN <= value.nanos // NANO <= INT_MAX


def _as_integer(value: Quantity) -> int:
    if not _is_integer(value):
        raise EvalError("cannot convert value to integer")
    return value.nanos // NANO


def _as_float(value: Quantity) -> float:
    try:
        return float(value.fraction())
    except OverflowError:
        raise EvalError("cannot convert value to a floating point number") from None


def add_quantities(library: Library) -> None:
    """Adds them."""
    function, method = library.function, library.method
    function("quantity", "string", QUANTITY, _parse, traversal)
    function("isQuantity", "string", "bool", parses(_parse), traversal)
    method("sign", QUANTITY, "int", lambda value: (value.nanos > 0) - (value.nanos < 0))
    method("isInteger", QUANTITY, "bool", _is_integer)
    method("asInteger", QUANTITY, "int", _as_integer)
    method("asApproximateFloat", QUANTITY, "double", _as_float)
    pair = f"{QUANTITY};{QUANTITY}"
    method("isGreaterThan", pair, "bool", lambda a, b: a.nanos > b.nanos)
    method("isLessThan", pair, "bool", lambda a, b: a.nanos < b.nanos)
    method("compareTo", pair, "int", lambda a, b: (a.nanos > b.nanos) - (a.nanos < b.nanos))
    method("add", pair, QUANTITY, lambda a, b: a + b)
    method("sub", pair, QUANTITY, lambda a, b: a - b)
    method("add", f"{QUANTITY};int", QUANTITY, lambda a, b: a + Quantity.of(b))
    method("sub", f"{QUANTITY};int", QUANTITY, lambda a, b: a - Quantity.of(b))
    kind = "kubernetes.NamedFormat"
    for name in _FORMATS:
        function(f"format.{name}", "", kind, partial(NamedFormat, name))
    function("format.named", "string", f"optional<{kind}>", _named)
    pair, result = f"{kind};string", "optional<list<string>>"
    method("validate", pair, result, _validate, lambda _, text: len(text) + 1)


# ---- formats of names


@attrs.frozen
class NamedFormat:
    """`format.dns1123Label()`."""

    name: str
    cel_type = "kubernetes.NamedFormat"


def _prefixed(check: Callable[[str], list[str]], text: str) -> list[str]:
    return check(f"{text[:-1]}a" if text.endswith("-") else text)


def _as(kind: str, problem: str) -> Callable[[str], list[str]]:
    return lambda text: [] if fits(kind, text) else [problem]


def _parsed(parse: Callable[[str], object], problem: str = "") -> Callable[[str], list[str]]:
    """The problem of a text that the parser refuses; empty if there is none."""

    def check(text: str) -> list[str]:
        try:
            parse(text)
        except (EvalError, binascii.Error, ValueError) as error:
            return [problem or str(error)]
        return []

    return check


_DECODE: Final = partial(base64.b64decode, validate=True)
_FORMATS: Mapping[str, Callable[[str], list[str]]] = {
    "dns1123Label": label,
    "dns1123Subdomain": subdomain,
    "dns1035Label": label_1035,
    "qualifiedName": qualified_name,
    "dns1123LabelPrefix": partial(_prefixed, label),
    "dns1123SubdomainPrefix": partial(_prefixed, subdomain),
    "dns1035LabelPrefix": partial(_prefixed, label_1035),
    "labelValue": label_value,
    "uri": _parsed(parse_url),
    "uuid": _as("uuid", "does not match the UUID format"),
    "byte": _parsed(_DECODE, "invalid base64"),
    "date": _as("date", "invalid date"),
    "datetime": _parsed(parse_timestamp, "invalid datetime"),
}


def _validate(format_: NamedFormat, text: str) -> Optional:
    problems = _FORMATS[format_.name](text)
    return Optional(problems) if problems else NONE


def _named(name: str) -> Optional:
    return Optional(NamedFormat(name)) if name in _FORMATS else NONE
