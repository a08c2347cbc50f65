"""The OpenAPI formats that are checked, and times as Go parses them."""

from __future__ import annotations

import binascii
import ipaddress
import re
import struct
from collections.abc import Callable, Mapping
from datetime import date
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from kueuelib.api.meta import parse_time
from kueuelib.embedded.builtins.metadata import label, subdomain

# ---- parses times like Go, and says why one is not valid -----------------------------------------

MICROSECONDS: Final = ".000000"
_DATE_PARTS: Final = (("2006", r"\d{4}"), ("-", "-"), ("01", r"\d\d"), ("-", "-"), ("02", r"\d\d"))
_CLOCK: Final = (("T", "T"), ("15", r"\d\d"), (":", ":"), ("04", r"\d\d"), (":", ":"))
_ZONE: Final = (("Z07:00", r"Z|[+-]\d\d:\d\d"),)
_RANGES: Final = {"01": ("month", 1, 12), "15": ("hour", 0, 23), "04": ("minute", 0, 59)}
_SECONDS: Final = ("second", 0, 59)
_USUAL: Final = {
    fraction: re.compile(
        r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d"
        rf"{digits}(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)",
        re.ASCII,
    ).fullmatch
    for fraction, digits in (("", r"(?:[.,]\d+)?"), (MICROSECONDS, r"[.,]\d{6}"))
}
"""What matches is a time, if there is that day."""


def problem(text: str, fraction: str = "") -> str:
    """Why a text is not a time; empty if it is one.

    Args:
        text: of a time.
        fraction: of seconds in the layout; empty if it is optional, or `MICROSECONDS`.
    """
    if _USUAL[fraction](text):
        try:
            parse_time(text)
        except ValueError:
            return f"parsing time {_quoted(text)}: day out of range"
        return ""
    whole = (("05", r"\d\d(?:[.,]\d+)?"),)
    seconds = (("05", r"\d\d"), (fraction, r"[.,]\d{6}")) if fraction else whole
    rest = text
    for name, pattern in (*_DATE_PARTS, *_CLOCK, *seconds, *_ZONE):
        match = re.match(pattern, rest, re.ASCII)
        if match is None:
            layout = f"2006-01-02T15:04:05{fraction}Z07:00"
            at = f"cannot parse {_quoted(rest)} as {_quoted(name)}"
            return f"parsing time {_quoted(text)} as {_quoted(layout)}: {at}"
        unit, low, high = _SECONDS if name == "05" else _RANGES.get(name, ("", 0, 0))
        if unit and not low <= int(match[0][:2]) <= high:
            return f"parsing time {_quoted(text)}: {unit} out of range"
        rest = rest[match.end() :]
    if rest:
        return f"parsing time {_quoted(text)}: extra text: {_quoted(rest)}"
    wrong = "day"
    if text[-6:-5] in ("+", "-"):
        wrong = "time zone offset hour" if text[-5:-3] > "23" else wrong
        wrong = "time zone offset minute" if text[-2:] > "59" else wrong
    return f"parsing time {_quoted(text)}: {wrong} out of range"


def _quoted(text: str) -> str:
    """The text as Go's error message quotes it when it is not a time."""
    shown = text.translate({34: '\\"', 92: "\\\\"}).encode()
    letters = (chr(each) if 32 <= each < 128 else f"\\x{each:02x}" for each in shown)
    return f'"{"".join(letters)}"'


# --------------------------------------------------------------------------------------------------

_HEX: Final = "[0-9a-f]"
_TIME: Final = re.compile(r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(.\d+)?(z|[-+]\d{2}:\d{2})", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_ATOM: Final = r"[^\x00-\x20()<>@,;:\\\"\[\]\x7f.]+"
_DOTTED: Final = rf"{_ATOM}(?:\.{_ATOM})*"
_EMAIL: Final = re.compile(
    rf"""\s*(?:(?:{_DOTTED}|"[^"\\]*"|\s)*<)?(?P<local>{_DOTTED}|"(?:[^"\\]|\\.)+")
    @(?P<domain>{_DOTTED}|\[[0-9A-Fa-f.:]+\])(?P<end>>?)\s*""",
    re.VERBOSE,
)
_LETTER: Final = r"(?:[0-9]|[^\W\d_]|[\u2000-\u2bff$+<=>^`|~])"
_HOST: Final = re.compile(
    rf"{_LETTER}(?:-?(?:{_LETTER}){{0,62}})?"
    rf"|(?:{_LETTER}(?:(?:{_LETTER}|-){{0,61}}{_LETTER})?\.)+[^\W\d_]{{2,63}}"
)
_GO_DURATION: Final = re.compile(r"[-+]?((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+|[-+]?0")
_DURATION: Final = re.compile(r"(\d+)\s*([A-Za-zµ]+)", re.ASCII)
_UNITS: Final = frozenset({"ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"})
_LONG_UNITS: Final = ("nano", "micro", "milli", "sec", "min", "hour", "day", "week")
_BYTE_VALUE: Final = r"(?:0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])"
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CARD: Final = re.compile(
    r"4\d{12}(?:\d{3})?|5[1-5]\d{14}|6(?:011|5\d\d)\d{12}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}"
    r"|(?:2131|1800|35\d{3})\d{11}",
    re.ASCII,
)
_HOST_LIMIT: Final = 255
_LABEL_LIMIT: Final = 63
_INT32: Final = 2**31
_INT64: Final = 2**63


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except (ValueError, binascii.Error):
            return False
        return True

    return check


def _matches(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern, re.ASCII)
    return lambda text: compiled.fullmatch(text) is not None


def _uuid(third: str, fourth: str) -> Callable[[str], bool]:
    parts = (f"{_HEX}{{8}}", f"{_HEX}{{4}}", third, fourth, f"{_HEX}{{12}}")
    return _matches(f"(?i:{'-?'.join(parts)})")


def _is_date_time(text: str) -> bool:
    day, letter, moment = text.lower().partition("t")
    return bool(letter) and _is_date(day) and _TIME.fullmatch(moment) is not None


def _is_date(text: str) -> bool:
    return _DATE.fullmatch(text) is not None and _parses(date.fromisoformat)(text)


def _is_email(text: str) -> bool:
    match = _EMAIL.fullmatch(text)
    return match is not None and (match["end"] == ">") is ("<" in text[: match.start("local")])


def _is_host(text: str) -> bool:
    return (
        _HOST.fullmatch(text) is not None
        and len(text.encode()) <= _HOST_LIMIT
        and all(len(part.encode()) <= _LABEL_LIMIT for part in text.split("."))
    )


def _is_duration(text: str) -> bool:
    if _GO_DURATION.fullmatch(text):
        return True
    units = [unit.lower() for _, unit in _DURATION.findall(text)]
    return any(unit in _UNITS or unit.startswith(_LONG_UNITS) for unit in units)


def _is_uri(text: str) -> bool:
    """An absolute URI, or an absolute path."""
    if not text or any(letter < " " or letter == "\x7f" for letter in text):
        return False
    scheme = _SCHEME.match(text)
    if scheme is None:
        return text == "*" or (text[0] == "/" and not BAD_ESCAPE.search(text.partition("?")[0]))
    rest = text[scheme.end() :].partition("?")[0]
    if not rest.startswith("/"):
        return True
    try:
        parts = urlsplit(f"http:{rest}")
        if parts.port is not None and parts.port < 0:
            return False
    except ValueError:
        return False
    return " " not in parts.netloc and not BAD_ESCAPE.search(rest)


def _plain_zeros(text: str) -> str:
    """An address without the leading zeros that old parsers allowed."""
    return re.sub(r"(?<![\da-fA-F:])0+(?=\d+(?:\.|/|$))", "", text) if "." in text else text


def _is_ipv4(text: str) -> bool:
    address = _plain_zeros(text)
    if ":" in text:
        return "." in text and "%" not in text and _parses(ipaddress.IPv6Address)(text)
    return _parses(ipaddress.IPv4Address)(address)


def _is_cidr(text: str) -> bool:
    address, slash, bits = text.partition("/")
    return bool(slash) and bits.isdecimal() and _NETWORK(f"{_plain_zeros(address)}/{bits}")


def _is_mac(text: str) -> bool:
    for mark, width in ((":", 2), ("-", 2), (".", 4)):
        parts = text.split(mark)
        if len(parts) > 1:
            total = len(parts) * width // 2
            hexed = all(len(p) == width and _IS_HEX(p) for p in parts)
            return hexed and total in (6, 8, 20)
    return False


def _isbn10(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch(r"\d{9}[\dX]", digits, re.ASCII):
        return False
    numbers = [10 if digit == "X" else int(digit) for digit in digits]
    return sum(i * number for i, number in enumerate(numbers, 1)) % 11 == 0


def _isbn13(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch(r"\d{13}", digits, re.ASCII):
        return False
    return sum(int(digit) * (1, 3)[i % 2] for i, digit in enumerate(digits)) % 10 == 0


def _is_card(text: str) -> bool:
    digits = re.sub(r"\D+", "", text)
    if not _CARD.fullmatch(digits):
        return False
    doubled = [int(d) * (1 + i % 2) for i, d in enumerate(reversed(digits))]
    return sum(number - 9 if number > 9 else number for number in doubled) % 10 == 0


_NETWORK: Final = _parses(partial(ipaddress.ip_network, strict=False))
_IS_HEX: Final = _matches("[0-9a-fA-F]+")
_ANY: Final = f"{_HEX}{{4}}"
_CHECKS: Final[Mapping[str, Callable[[str], bool]]] = {
    "bsonobjectid": _matches("[0-9a-fA-F]{24}"),
    "byte": _matches(
        r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"
    ),
    "cidr": _is_cidr,
    "creditcard": _is_card,
    "date": _is_date,
    "datetime": _is_date_time,
    "duration": _is_duration,
    "email": _is_email,
    "hexcolor": _matches("#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "hostname": _is_host,
    "ipv4": _is_ipv4,
    "ipv6": lambda text: "%" not in text and _parses(ipaddress.IPv6Address)(text),
    "isbn": lambda text: _isbn10(text) or _isbn13(text),
    "isbn10": _isbn10,
    "isbn13": _isbn13,
    "k8slongname": lambda text: not subdomain(text),
    "k8sshortname": lambda text: not label(text),
    "mac": _is_mac,
    "password": lambda _: True,
    "rgbcolor": _matches(rf"rgb\((\s*{_BYTE_VALUE}\s*,){{2}}\s*{_BYTE_VALUE}\s*\)"),
    "ssn": _matches(r"\d{3}[- ]\d{2}[- ]\d{4}"),
    "uri": _is_uri,
    "uuid": _uuid(_ANY, _ANY),
    "uuid3": _uuid(f"3{_HEX}{{3}}", _ANY),
    "uuid4": _uuid(f"4{_HEX}{{3}}", f"[89ab]{_HEX}{{3}}"),
    "uuid5": _uuid(f"5{_HEX}{{3}}", f"[89ab]{_HEX}{{3}}"),
}


def fits(format: str, text: str) -> bool:
    """Whether a text has the format."""
    check = _CHECKS.get(format.replace("-", ""))
    return check is None or check(text)


def is_known(type: str, format: str) -> bool:
    """Whether Kubernetes knows a format of values of a type."""
    if type in ("", "string"):
        return format.replace("-", "") in _CHECKS
    known = {"integer": ("int32", "int64"), "number": ("float", "double")}
    return format in known.get(type, ())


def in_range(type: str, format: str, value: float) -> bool:
    """Whether a number is in the range of a format; integers have 64 bits by default."""
    if type == "integer":
        limit = _INT32 if format == "int32" else _INT64
        return -limit <= value < limit and value == int(value)
    if type == "number" and format == "float":
        try:
            struct.pack("<f", value)
        except OverflowError:
            return False
    return True
