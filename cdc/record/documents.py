"""How a document is read that outlives the program which wrote it, and JSON as small bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import orjson

from cdc.process.errors import DamagedError, FormatError

FORMAT = "format"
FIRST = 1

T = TypeVar("T")


def read_members(text: bytes | str, about: str, own: int = FIRST) -> dict[str, Any]:
    """The members of a stored document of the format ``own``.

    ``about`` names the document and its place in an error. FormatError when it has another format. DamagedError when
    ``text`` is no JSON object, or its format no number.
    """
    try:
        members = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise DamagedError(f"{about} is no JSON") from None
    if not isinstance(members, dict):
        raise DamagedError(f"{about} is no JSON object")
    require_format(members.get(FORMAT), about, own)
    return members


def require_format(found: object, about: str, own: int = FIRST) -> None:
    """FormatError and DamagedError as :func:`read_members`. ``found``: None where the document has no format."""
    if type(found) is not int or found < FIRST:
        raise DamagedError(f"{about} has a format that is no number from 1 on")
    if found != own:
        raise FormatError(f"{about} has the format {found}, and this Headrace reads {own} alone")


@contextmanager
def reading(about: str) -> Iterator[None]:
    """Turn what a malformed document raises while its members are read into a DamagedError that names ``about``."""
    try:
        yield
    except KeyError as missing:
        raise DamagedError(f"{about} has no member {missing.args[0]!r}") from None
    except (TypeError, ValueError, AttributeError, IndexError) as wrong:
        why = _one_line(wrong)
        raise DamagedError(f"{about} cannot be read: {why}" if why else f"{about} cannot be read") from None


def record_of(kind: type[T], members: Mapping[str, Any], about: str) -> T:
    """A frozen record of ``kind``, a dataclass, from a document's members. Unknown members are passed over.

    DamagedError when a member is missing that has no default, or has another type than its annotation.
    """
    with reading(about):
        record: T = _record(kind, members)
    return record


def _record(kind: Any, members: Any) -> Any:
    if not isinstance(members, Mapping):
        raise ValueError("an object was expected")
    given = {}
    for name, (annotation, required) in _members_of(kind).items():
        if name in members:
            given[name] = _typed(members[name], annotation, name)
        elif required:
            raise KeyError(name)
    return kind(**given)


@cache
def _members_of(kind: type[Any]) -> dict[str, tuple[Any, bool]]:
    """Member -> its annotation, and whether it has no default."""
    hints = get_type_hints(kind)
    return {
        one.name: (hints[one.name], one.default is MISSING and one.default_factory is MISSING) for one in fields(kind)
    }


def _typed(value: Any, annotation: Any, name: str) -> Any:
    """``value`` if it is what ``annotation`` says. ValueError names the member otherwise."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if annotation is Any:
        return value
    if origin in (Union, UnionType):
        return _one_of(value, inner, name)
    if origin is Literal:
        return value if value in inner else _wrong(name)
    if origin is not None:
        return _container(value, origin, inner, name)
    return _plain(value, annotation, name)


def _container(value: Any, origin: type, inner: tuple[Any, ...], name: str) -> Any:
    if issubclass(origin, list | tuple) and isinstance(value, list):
        return origin(_typed(one, inner[0], name) for one in value)
    if not issubclass(origin, Mapping) or not isinstance(value, dict):
        return _wrong(name)
    if inner == (int, int):
        return _numbers(value, name)
    return {_key(key, inner[0], name): _typed(one, inner[1], name) for key, one in value.items()}


def _plain(value: Any, kind: type, name: str) -> Any:
    """A text, a number, a truth value, one of an enum, or a record. Python's truth values are numbers, JSON's not."""
    if is_dataclass(kind):
        return _record(kind, value)
    if issubclass(kind, Enum):
        return kind(value)
    if isinstance(value, bool) is not (kind is bool):
        return _wrong(name)
    if kind is float and isinstance(value, int):
        return float(value)
    return value if isinstance(value, kind) else _wrong(name)


def _one_of(value: Any, annotations: tuple[Any, ...], name: str) -> Any:
    if value is None and NoneType in annotations:
        return None
    for annotation in annotations:
        if annotation is not NoneType:
            with_type = _tried(value, annotation, name)
            if with_type is not None:
                return with_type[0]
    return _wrong(name)


def _tried(value: Any, annotation: Any, name: str) -> tuple[Any] | None:
    try:
        return (_typed(value, annotation, name),)
    except ValueError:
        return None


def _numbers(value: dict[str, Any], name: str) -> dict[int, int]:
    """Offsets by partition: there are as many as the pipeline has partitions, in every record of progress."""
    if value and not ("".join(value).isdecimal() and set(map(type, value.values())) == {int}):
        _wrong(name)
    return {int(key): one for key, one in value.items()}


def _key(key: str, annotation: Any, name: str) -> Any:
    """JSON's keys are texts. A number is written as its digits."""
    if annotation is int:
        return int(key) if key.isascii() and key.isdigit() else _wrong(name)
    return key


def _wrong(name: str) -> Any:
    raise ValueError(f"its member {name} has another type than expected")


def _one_line(wrong: Exception) -> str:
    """Up to the first quotation mark: what Python quotes is the document's, and may be a value of a row."""
    return " ".join(re.split(r"['\"]", str(wrong), maxsplit=1)[0].split()).removesuffix(":")[:200]


# JSON as bytes that take as much memory as they are long.
#
# The bytes that ``orjson.dumps`` returns keep the buffer that they were written into: with orjson 3.13 a key of 30
# bytes takes 4 KiB for as long as it exists. Text made of it (``.decode()``) and slices do not.


def dumped(value: Any, option: int | None = None) -> bytes:
    """As ``orjson.dumps``, for what is kept: keys, documents, the rows of a batch.

    >>> dumped({"id": 1})
    b'{"id":1}'
    """
    # A copy: bytes() of bytes would be the same object.
    return bytes(memoryview(orjson.dumps(value, option=option)))
