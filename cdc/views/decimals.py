"""Postgres's arithmetic, exactly: integers with their bounds, numeric with its scales, float8 with its text.

After src/backend/utils/adt/numeric.c and float.c of Postgres 18. Values: int, Decimal (the exponent is the scale),
float. Every function takes values that are not null. :class:`cdc.views.syntax.NotComputable` where Postgres raises.
"""

from __future__ import annotations

import math
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal
from fractions import Fraction

from cdc.views.syntax import NotComputable

EXACT = Context(prec=400_000, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
"""No result of Postgres has more digits."""
_MOST_SCALE = 1000
"""NUMERIC_MAX_DISPLAY_SCALE"""
_MOST_WRITTEN_SCALE = 16_383
_MIN_DIGITS = 16
"""NUMERIC_MIN_SIG_DIGITS"""
_BASE_DIGITS = 4
"""DEC_DIGITS: Postgres keeps numerics in digits of base 10,000."""
_BOUNDS = {"int2": 2**15, "int4": 2**31, "int8": 2**63}
_NAN = Decimal("NaN")


def bounded(kind: str, value: int) -> int:
    """The integer itself. ``kind``: its type. Raises NotComputable when it does not fit the type."""
    bound = _BOUNDS[kind]
    if not -bound <= value < bound:
        raise NotComputable(f"{_INTEGER_NAMES[kind]} out of range")
    return value


_INTEGER_NAMES = {"int2": "smallint", "int4": "integer", "int8": "bigint"}
_MOST_DIGITS = 19
"""Of an integer. Python reads none of thousands."""


def int_divide(a: int, b: int) -> int:
    """The quotient of integers, rounded toward zero. Raises NotComputable when ``b`` is 0."""
    if b == 0:
        raise NotComputable("division by zero")
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def int_modulo(a: int, b: int) -> int:
    """The remainder of integers, with the sign of the dividend. Raises NotComputable when ``b`` is 0."""
    if b == 0:
        raise NotComputable("division by zero")
    return int(math.fmod(a, b)) if abs(a) < 2**52 and abs(b) < 2**52 else a - b * int_divide(a, b)


def add(a: Decimal, b: Decimal) -> Decimal:
    """The scale is the greater one."""
    return _sign_free(EXACT.add(a, b))


def subtract(a: Decimal, b: Decimal) -> Decimal:
    """The scale is the greater one."""
    return _sign_free(EXACT.subtract(a, b))


def multiply(a: Decimal, b: Decimal) -> Decimal:
    """The scale is the sum of both."""
    product = EXACT.multiply(a, b)
    if product.is_finite() and scale_of(product) > _MOST_WRITTEN_SCALE:
        product = rounded(product, _MOST_WRITTEN_SCALE)
    return _sign_free(product)


def _sign_free(value: Decimal) -> Decimal:
    """Postgres has no negative zero."""
    return value.copy_abs() if value.is_zero() else value


def scale_of(value: Decimal) -> int:
    """Digits behind the point that it is written with."""
    exponent = value.as_tuple().exponent
    return -exponent if isinstance(exponent, int) and exponent < 0 else 0


def _weight_and_first(value: Decimal) -> tuple[int, int]:
    """The weight and the first digit in base 10,000."""
    if value.is_zero():
        return 0, 0
    adjusted = value.adjusted()
    weight = adjusted // _BASE_DIGITS
    digits = value.as_tuple().digits[: adjusted - weight * _BASE_DIGITS + 1]
    taken = adjusted - weight * _BASE_DIGITS + 1
    first = int("".join(map(str, digits)).ljust(taken, "0"))
    return weight, first


def _division_scale(a: Decimal, b: Decimal) -> int:
    """select_div_scale()"""
    weight_a, first_a = _weight_and_first(a)
    weight_b, first_b = _weight_and_first(b)
    weight = weight_a - weight_b - (1 if first_a <= first_b else 0)
    scale = max(_MIN_DIGITS - weight * _BASE_DIGITS, scale_of(a), scale_of(b), 0)
    return min(scale, _MOST_SCALE)


def divide(a: Decimal, b: Decimal) -> Decimal:
    """The quotient of numerics, with numeric_div()'s scale, rounded half away from zero. Raises NotComputable when
    ``b`` is 0."""
    if not (a.is_finite() and b.is_finite()):
        return _divide_special(a, b)
    if b.is_zero():
        raise NotComputable("division by zero")
    return _ratio(Fraction(a) / Fraction(b), _division_scale(a, b))


def _divide_special(a: Decimal, b: Decimal) -> Decimal:
    if a.is_nan() or b.is_nan() or (a.is_infinite() and b.is_infinite()):
        return _NAN
    if b.is_zero():
        raise NotComputable("division by zero")
    if b.is_infinite():
        return Decimal(0)
    return Decimal("Infinity") if (a > 0) == (b > 0) else Decimal("-Infinity")


def _ratio(value: Fraction, scale: int) -> Decimal:
    scaled = abs(value) * 10**scale
    whole = (2 * scaled.numerator + scaled.denominator) // (2 * scaled.denominator)
    number = EXACT.scaleb(Decimal(whole), -scale)
    return EXACT.copy_negate(number) if value < 0 and whole else number


def modulo(a: Decimal, b: Decimal) -> Decimal:
    """The remainder of numerics, with the sign of the dividend. Raises NotComputable when ``b`` is 0."""
    if a.is_nan() or b.is_nan():
        return _NAN
    if b.is_zero():
        raise NotComputable("division by zero")
    if a.is_infinite():
        return _NAN
    if b.is_infinite():
        return a
    return _sign_free(EXACT.remainder(a, b))


def rounded(value: Decimal, scale: int = 0) -> Decimal:
    """Half away from zero. A scale below zero rounds before the point."""
    return _to_scale(value, scale, ROUND_HALF_UP)


def truncated(value: Decimal, scale: int = 0) -> Decimal:
    """Toward zero."""
    return _to_scale(value, scale, ROUND_DOWN)


def _to_scale(value: Decimal, scale: int, rounding: str) -> Decimal:
    if not value.is_finite():
        return value
    scale = max(min(scale, 2000), -2000)
    number = value.quantize(Decimal(1).scaleb(-scale, EXACT), rounding=rounding, context=EXACT)
    if scale < 0:
        number = number.quantize(Decimal(1), context=EXACT)
    return _sign_free(number)


def ceiling(value: Decimal) -> Decimal:
    """The least whole number that is not below."""
    return _to_scale(value, 0, ROUND_CEILING)


def floor(value: Decimal) -> Decimal:
    """The greatest whole number that is not above."""
    return _to_scale(value, 0, ROUND_FLOOR)


def sign(value: Decimal) -> Decimal:
    """-1, 0 or 1."""
    return value if value.is_nan() else Decimal((value > 0) - (value < 0))


def average(total: Decimal, count: int) -> Decimal:
    """A mean, with the scale that Postgres gives it."""
    return divide(total, Decimal(count))


def fitted(value: Decimal, typmod: int) -> Decimal:
    """A value as a column ``numeric(p, s)`` takes it. Raises NotComputable when it has more digits than the column."""
    if typmod < 0 or value.is_nan():
        return value
    precision = (typmod - 4) >> 16 & 0xFFFF
    raw = (typmod - 4) & 0x7FF
    scale = (raw ^ 1024) - 1024
    if value.is_infinite():
        raise NotComputable("numeric field overflow")
    number = rounded(value, scale)
    if not number.is_zero() and number.adjusted() >= precision - scale:
        raise NotComputable("numeric field overflow")
    return number


def numeric_text(value: Decimal) -> str:
    """As Postgres prints it.

    >>> numeric_text(Decimal("1.50")), numeric_text(Decimal("1E+3")), numeric_text(Decimal("-Infinity"))
    ('1.50', '1000', '-Infinity')
    """
    if value.is_finite():
        return format(value, "f")
    return "NaN" if value.is_nan() else "Infinity" if value > 0 else "-Infinity"


def numeric_of(text: str) -> Decimal:
    """Text as numeric reads it. Raises :class:`NotComputable` for what is none."""
    stripped = text.strip()
    plain = stripped.lower().lstrip("+-")
    if not plain or "_" in stripped or not (plain[0] in ".0123456789" or plain in ("nan", "infinity", "inf")):
        raise NotComputable("invalid input syntax for type numeric")
    try:
        value = Decimal(stripped)
    except ArithmeticError:
        raise NotComputable("invalid input syntax for type numeric") from None
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and exponent > 0:
        value = value.quantize(Decimal(1), context=EXACT)
    return _sign_free(value)


def numeric_key(value: Decimal) -> tuple[int, Decimal]:
    """For sorting: NaN is the greatest."""
    return (1, Decimal(0)) if value.is_nan() else (0, value)


def to_int(kind: str, value: Decimal) -> int:
    """A numeric as an integer type takes it: rounded half away from zero.

    Raises NotComputable for NaN, infinities and integers that do not fit the type.
    """
    if not value.is_finite():
        raise NotComputable(f"cannot convert {numeric_text(value)} to {_INTEGER_NAMES[kind]}")
    return bounded(kind, int(rounded(value)))


def float_to_int(kind: str, value: float) -> int:
    """A float as an integer type takes it: rounded half to even.

    Raises NotComputable for NaN, infinities and integers that do not fit the type.
    """
    if not math.isfinite(value):
        raise NotComputable(f"{_INTEGER_NAMES[kind]} out of range")
    return bounded(kind, round(value))


def int_of(kind: str, text: str) -> int:
    """Text as an integer type reads it. Raises NotComputable for what is no integer, or does not fit."""
    stripped = text.strip()
    digits = stripped[1:] if stripped[:1] in ("+", "-") else stripped
    if not (digits.isascii() and digits.isdecimal()):
        raise NotComputable(f"invalid input syntax for type {_INTEGER_NAMES[kind]}")
    digits = digits.lstrip("0") or "0"
    if len(digits) > _MOST_DIGITS:
        raise NotComputable(f"{_INTEGER_NAMES[kind]} out of range")
    return bounded(kind, -int(digits) if stripped[0] == "-" else int(digits))


def numeric_of_float(value: float) -> Decimal:
    """A float8 as numeric: with fifteen digits."""
    if not math.isfinite(value):
        return Decimal(value)
    return numeric_of(f"{value:.15g}")


def float_text(value: float) -> str:
    """As float8 is printed: the shortest that reads back.

    >>> float_text(1.0), float_text(1e15), float_text(0.0001), float_text(-0.0), float_text(float("nan"))
    ('1', '1e+15', '0.0001', '-0', 'NaN')
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    text = repr(value)
    if abs(value) < 1e15:
        return text.removesuffix(".0")
    return _scientific(Decimal(_within(text, value)))


def single_text(value: float) -> str:
    """As float4 is printed. ``value``: that text read as a float, whose digits are then the text's.

    >>> [single_text(value) for value in (0.1, 123456.5, 1234567.0, 1e6, -1e23, 1e-45, -0.0, float("-inf"))]
    ['0.1', '123456.5', '1.234567e+06', '1e+06', '-1e+23', '1e-45', '-0', '-Infinity']
    """
    if not math.isfinite(value) or abs(value) < 1e6:
        return float_text(value)
    return _scientific(Decimal(repr(value)))


def _scientific(shown: Decimal) -> str:
    """A number of at least 10, with an exponent."""
    mantissa = "".join(map(str, shown.as_tuple().digits)).rstrip("0")
    body = mantissa[0] + ("." + mantissa[1:] if len(mantissa) > 1 else "")
    return f"{'-' if shown < 0 else ''}{body}e+{shown.adjusted():02d}"


def _within(text: str, value: float) -> str:
    """The shortest text that is nearer to a number than to its neighbours. Python takes one that lies half way, too."""
    exact = Fraction(value)
    neighbours = [math.nextafter(value, end) for end in (math.inf, -math.inf)]
    halves = [abs(Fraction(near) - exact) / 2 for near in neighbours if math.isfinite(near)]
    written = (text, *(f"{value:.{digits}g}" for digits in range(15, 18)))
    return next(w for w in written if float(w) == value and abs(Fraction(w) - exact) not in halves)


def float_of(text: str) -> float:
    """Text as float8 reads it. Raises NotComputable for any other text."""
    stripped = text.strip().lower()
    if "_" in stripped:
        raise NotComputable("invalid input syntax for type double precision")
    try:
        return float(stripped)
    except ValueError:
        raise NotComputable("invalid input syntax for type double precision") from None


def float_result(value: float, *operands: float, zero: bool = True) -> float:
    """The result itself, where Postgres accepts it for these operands.

    Raises NotComputable when it overflowed, and when it is 0 though ``zero`` is not allowed, which is an underflow.
    """
    if value == 0 and not zero and all(map(math.isfinite, operands)):
        raise NotComputable("value out of range: underflow")
    if math.isinf(value) and not any(math.isinf(operand) for operand in operands):
        raise NotComputable("value out of range: overflow")
    return value


def float_divide(a: float, b: float) -> float:
    """The quotient of floats. Raises NotComputable when ``b`` is 0, unless ``a`` is NaN, and out of range."""
    if b == 0 and not math.isnan(a):
        raise NotComputable("division by zero")
    return float_result(a / b, a, b, zero=a == 0) if b else a


def float_rounded(value: float) -> float:
    """Half to even."""
    return math.copysign(float(round(value)), value) if math.isfinite(value) else value


def float_truncated(value: float) -> float:
    """Toward zero."""
    return math.copysign(float(math.trunc(value)), value) if math.isfinite(value) else value


def float_ceiling(value: float) -> float:
    """The least whole number that is not below."""
    return math.copysign(float(math.ceil(value)), value) if math.isfinite(value) else value


def float_floor(value: float) -> float:
    """The greatest whole number that is not above."""
    return math.copysign(float(math.floor(value)), value) if math.isfinite(value) else value


def float_sign(value: float) -> float:
    """-1, 0 or 1. NaN has none, and is 0."""
    return float((value > 0) - (value < 0))


def float_key(value: float) -> tuple[int, float]:
    """For sorting: NaN is the greatest."""
    return (1, 0.0) if math.isnan(value) else (0, value)
