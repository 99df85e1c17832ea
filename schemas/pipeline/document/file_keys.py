"""What the keys of a pipeline file may hold, as types for pydantic models.

A wrong value is reported where it is read, with its line. Then something stands in for
it, so that one error can show all problems of the file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeAlias, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ModelWrapValidatorHandler,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError
from yaml.constructor import SafeConstructor
from yaml.nodes import ScalarNode

from tallyweir.schemas.pipeline.checks.problems import Path, Problem, StandIn, suggest
from tallyweir.schemas.pipeline.document.yaml_tree import (
    Report,
    YamlList,
    YamlMap,
    YamlScalar,
)
from tallyweir.sinks.protocol.durations import EXAMPLES, parse_duration

#: A value of a tree, or what stands in for one that is wrong.
Given: TypeAlias = Any
Handler: TypeAlias = ValidatorFunctionWrapHandler
Info: TypeAlias = ValidationInfo[Report]
Several: TypeAlias = tuple[Any, ...]
#: A value of any simple type.
Scalar: TypeAlias = str | int | float | bool | None

_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "timestamp": "a date",
    "null": "empty",
    "map": "a mapping",
    "seq": "a list",
    "str": "text",
}
_TRUE = {"true", "yes", "on"}
_MAPPING = ("a mapping", "Write keys and values, as key: value.")
_LIST = ("a list", "Write [a, b], or a line - a for each.")

_CUT: Literal["cut"] = "cut"
_REPORTED: Literal["reported"] = "reported"
_UNKNOWN = "extra_forbidden"
_MISSING = "missing"
#: The greatest whole number has this many digits, as Postgres' widest decimal here.
_DIGITS_MAX = 38

Word = TypeVar("Word", bound=StrEnum)
Part = TypeVar("Part")


class Keys(BaseModel, Generic[Part]):
    """The keys of one mapping in a pipeline file, and the part that they become.

    A field has the name of the part's attribute. A field whose name Python or pydantic
    has taken ends with an underscore; the key does not.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        arbitrary_types_allowed=True,
        alias_generator=lambda name: name.rstrip("_"),
    )

    #: Class of the part.
    part: ClassVar[type[Any]]
    #: Stand in for wrong values; also for absent ones, if the key has no default.
    stand_ins: ClassVar[Mapping[str, object]] = {}

    @classmethod
    def unknown(cls) -> Self:
        """Return what stands in for keys that are wrong altogether."""
        known: dict[str, Any] = dict(cls.stand_ins)
        keys = cls.model_construct(None, **known)
        assert isinstance(keys, cls)
        return keys

    @classmethod
    def in_file(cls, at: Path) -> Path:
        """Turn a path in the part that is built of the keys into one in the file."""
        field = cls.model_fields.get(str(at[0])) if at else None
        return at if field is None else (str(field.alias), *at[1:])

    def build(self, report: Report, at: Path) -> Part:
        """Build the part, and report what is wrong with it."""
        values = self.values(report, at)
        with report.building(lambda path: (*at, *self.in_file(path))):
            part: Part = type(self).part(**values)
        return part

    def values(self, report: Report, at: Path) -> dict[str, object]:
        """Return the values of the part's attributes, with all parts in it built."""
        values = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if isinstance(value, Keys):
                value = value.build(report, (*at, str(field.alias)))
            values[name.rstrip("_")] = value
        return values

    @model_validator(mode="wrap")
    @classmethod
    def _read(
        cls,
        given: Given,
        handler: ModelWrapValidatorHandler[Self],
        info: ValidationInfo,
    ) -> Self:
        """Read a mapping, and report every key that is wrong, unknown or missing.

        Raises:
            ValidationError: A key has no value that could stand in.
        """
        report = info.context
        assert isinstance(report, Report)
        if isinstance(given, cls):
            return given
        if not isinstance(given, YamlMap):
            raise mistyped(given, report, *_MAPPING)
        # Pydantic names no place for a key with half of a surrogate pair.
        readable = {key: value for key, value in given.items() if _is_unicode(key)}
        for key in given.keys() - readable.keys():
            cls._report_unknown(key, given.at, report)
        try:
            return handler(readable)
        except ValidationError as error:
            errors = _told(error, by_key=True)
        # An unknown key is the likely cause of a missing one.
        for one in sorted(errors, key=lambda one: one["type"] != _UNKNOWN):
            cls._report(one, given.at, report)
        wrong = {str(one["loc"][0]) for one in errors}
        right = {key: value for key, value in readable.items() if key not in wrong}
        others = {
            key: one(given.at) if callable(one) else one
            for key, one in cls.stand_ins.items()
            if key in wrong
        }
        return handler({**right, **others})

    @classmethod
    def _report(cls, error: ErrorDetails, at: Path, report: Report) -> None:
        key = str(error["loc"][0])
        if error["type"] == _UNKNOWN:
            cls._report_unknown(key, at, report)
        elif error["type"] == _MISSING and len(error["loc"]) == 1:
            holder = next((one for one in reversed(at) if isinstance(one, str)), None)
            report.add(
                Problem(
                    code="PIPELINE_MISSING_KEY",
                    at=(*at, key),
                    saw=f"The key {key!r} is missing.",
                    why="It has no default.",
                    fix=f"Add it to {holder or 'the file'}.",
                )
            )

    @classmethod
    def _report_unknown(cls, key: str, at: Path, report: Report) -> None:
        known = [str(field.alias) for field in cls.model_fields.values()]
        report.add(
            Problem(
                code="PIPELINE_UNKNOWN_KEY",
                at=(*at, key),
                saw=f"The key {key!r} is unknown.",
                why="Nothing reads it; it is probably misspelt.",
                fix=suggest(key, known),
            )
        )


def reject(
    value: YamlScalar | YamlList | YamlMap,
    report: Report,
    *told: str,
    code: str = "PIPELINE_VALUE",
) -> PydanticCustomError:
    """Report a wrong value; return the error by which the model leaves it out.

    Args:
        value: The value, which has its place in the file.
        report: Where it is told.
        told: What was seen, why it cannot stay, and the fix.
        code: Code of the problem.
    """
    saw, why, fix = told
    report.add(Problem(code=code, at=value.at, saw=saw, why=why, fix=fix))
    return _reported()


def _reported(kind: Literal["reported", "cut"] = _REPORTED) -> PydanticCustomError:
    return PydanticCustomError(kind, "it is reported already")


def _told(error: ValidationError, *, by_key: bool = False) -> list[ErrorDetails]:
    """Return the errors of a value, which is reported, or will be by ``Keys``.

    Args:
        error: What pydantic found; of a union, errors of each of its types.
        by_key: The value is a mapping, of which each wrong key must be reported.

    Raises:
        TypeError: It is not, so that a default would take the place of a wrong value.
    """
    errors = error.errors()
    kinds = {_REPORTED, _CUT, _UNKNOWN, _MISSING}
    told = {one["loc"][:by_key] for one in errors if one["type"] in kinds}
    for one in errors:
        if one["loc"][:by_key] not in told:
            raise TypeError(f"nothing has reported {one['type']} at {one['loc']}")
    return errors


def _is_unicode(text: str) -> bool:
    """Return whether text can be encoded; half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def mistyped(
    value: Given,
    report: Report,
    wanted: str,
    fix: str,
) -> PydanticCustomError:
    """Report a value of a wrong type, as ``reject`` does."""
    if not isinstance(value, YamlScalar):
        found = _KINDS["map" if isinstance(value, YamlMap) else "seq"]
        saw = f"{value.at[-1]} is {found}."
    elif value.kind in {"str", "null"}:
        # Do not show the text: in place of a mapping, it may be a secret.
        saw = f"{value.at[-1]} is {_KINDS[value.kind]}."
    else:
        found = _KINDS.get(value.kind, value.kind)
        saw = f"YAML reads the unquoted {value.text} as {found}."
    return reject(value, report, saw, f"It must be {wanted}.", fix)


def unnamed(at: Path) -> str:
    """Stand in for the name of an output, which no other output has."""
    return f"unnamed_{at[1]}"


def is_off(value: object) -> bool:
    """Return whether a value is ``off``, which YAML 1.1 reads as false."""
    if not isinstance(value, YamlScalar):
        return False
    word = value.text.lower()
    return word == "off" or (value.kind == "bool" and word not in _TRUE)


def read_text(value: Given, info: Info) -> str:
    """Read text that is quoted, or that YAML takes for nothing else."""
    if isinstance(value, str):
        return value
    if isinstance(value, YamlScalar) and value.kind == "str":
        return value.text
    written = value.text if isinstance(value, YamlScalar) else ""
    fix = f'Quote it: "{written}".' if written else "Write text."
    raise mistyped(value, info.context, "text", fix)


def _duration(value: Given, info: Info) -> timedelta:
    if isinstance(value, timedelta):
        return value
    text = read_text(value, info)
    try:
        return parse_duration(text)
    except ValueError as exc:
        raise reject(
            value,
            info.context,
            f"{value.at[-1]} is {text!r}: {exc}.",
            "A duration is a whole number and a unit.",
            f"Write a duration such as {EXAMPLES}.",
            code="PIPELINE_DURATION",
        ) from exc


def _condition(value: Given, info: Info) -> str:
    text = read_text(value, info)
    if text.count("(") > text.count(")"):
        reject(
            value,
            info.context,
            f"The expression ends at {text!r}.",
            "Inside braces, YAML ends a value at a comma.",
            "Put quotation marks around the whole expression.",
        )
        raise _reported(_CUT)
    return text


def _whole_number(value: Given, info: Info) -> int:
    if isinstance(value, YamlScalar) and value.kind == "int":
        digits = value.text.lstrip("0") or value.text
        if value.text.isdecimal() and len(digits) <= _DIGITS_MAX:
            return int(value.text)
    wanted = f"a whole number of at most {_DIGITS_MAX} digits"
    raise mistyped(value, info.context, wanted, "Write digits.")


def _share(value: Given, info: Info) -> float:
    if isinstance(value, float):
        return value
    # YAML 1.1 takes 1e-3 for text.
    if isinstance(value, YamlScalar) and value.kind in {"float", "int", "str"}:
        try:
            return float(value.text)
        except ValueError:
            pass
    raise mistyped(value, info.context, "a number", "Write 0.001.")


def _flag(value: Given, info: Info) -> bool:
    if isinstance(value, YamlScalar) and value.kind == "bool":
        return value.text.lower() in _TRUE
    raise mistyped(value, info.context, "true or false", "Write true.")


def _scalar(value: Given, info: Info) -> Scalar:
    simple = {"str", "int", "float", "bool", "null"}
    if isinstance(value, YamlScalar) and value.kind in simple:
        node = ScalarNode(f"tag:yaml.org,2002:{value.kind}", value.text)
        try:
            constructed: Scalar = SafeConstructor().construct_object(node)
        except (ValueError, OverflowError):
            constructed = math.nan
        is_huge = isinstance(constructed, int) and abs(constructed) >= 10**_DIGITS_MAX
        is_finite = not isinstance(constructed, float) or math.isfinite(constructed)
        if is_finite and not is_huge:
            return constructed
    wanted = "text, a finite number, true, false or null"
    raise mistyped(value, info.context, wanted, f"Write {wanted}.")


def word(words: type[Word]) -> BeforeValidator:
    """Return what makes a field one of the words of an enumeration."""

    def read(value: Given, info: Info) -> Word:
        text = read_text(value, info)
        if text in set(words):
            return words(text)
        known = [one.value for one in words]
        raise reject(
            value,
            info.context,
            f"{value.at[-1]} is {text!r}.",
            f"It must be one of {', '.join(known)}.",
            suggest(text, known),
        )

    return BeforeValidator(read)


def _items(value: Given, handler: Handler, info: Info) -> list[Several]:
    """Read each item by itself; an empty tuple is in the place of a wrong one."""
    if not isinstance(value, YamlList):
        raise mistyped(value, info.context, *_LIST)
    read = []
    for item in value:
        try:
            read.append(handler((item,)))
        except ValidationError as error:
            _told(error)
            read.append(())
    return read


def _texts(value: Given, handler: Handler, info: Info) -> Several:
    if isinstance(value, tuple):
        return value
    return tuple(one for item in _items(value, handler, info) for one in item)


def _one_or_more(value: Given, handler: Handler, info: Info) -> Several:
    if isinstance(value, YamlList | tuple):
        return _texts(value, handler, info)
    return (read_text(value, info),)


def _one_or_all(value: Given, handler: Handler, info: Info) -> str | Several:
    if not isinstance(value, YamlList):
        return read_text(value, info)
    values = _texts(value, handler, info)
    return values[0] if len(values) == 1 else values


def _parts(value: Given, handler: Handler, info: Info) -> Several:
    if isinstance(value, tuple):
        return value
    return tuple(item[0] if item else None for item in _items(value, handler, info))


def one_by_one(stand_in: str | None = None) -> WrapValidator:
    """Return what reads values one by one; wrong ones are left out, or replaced."""

    def read(value: Given, handler: Handler, info: Info) -> Given:
        if isinstance(value, dict) and not isinstance(value, YamlMap):
            return value
        if not isinstance(value, YamlMap):
            raise mistyped(value, info.context, *_MAPPING)
        values: dict[str, object] = {}
        for key, one in value.items():
            try:
                values |= handler({key: one})
            except ValidationError as error:
                if stand_in is not None:
                    values[key] = stand_in
                if any(one["type"] == _CUT for one in _told(error)):
                    # What YAML takes for the next keys is the rest of an expression.
                    break
        if value and not values:
            raise _reported()
        return values

    return WrapValidator(read)


TEXT = WithJsonSchema({"type": "string"})
TEXTS = WithJsonSchema(
    {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
)

Text = Annotated[str, PlainValidator(read_text), TEXT]
Duration = Annotated[
    timedelta,
    PlainValidator(_duration),
    WithJsonSchema({"type": "string", "pattern": r"^\s*[0-9]+\s*[A-Za-z]+\s*$"}),
]
#: Spark SQL.
Condition = Annotated[str, PlainValidator(_condition), TEXT]
WholeNumber = Annotated[
    int,
    PlainValidator(_whole_number),
    WithJsonSchema({"type": "integer", "minimum": 0}),
]
Share = Annotated[
    float,
    PlainValidator(_share),
    WithJsonSchema({"type": ["number", "string"], "pattern": r"^[0-9.eE+-]+$"}),
]
Flag = Annotated[bool, PlainValidator(_flag), WithJsonSchema({"type": "boolean"})]
Simple = Annotated[
    Scalar,
    PlainValidator(_scalar),
    WithJsonSchema({"type": ["string", "number", "boolean", "null"]}),
]
Texts = Annotated[tuple[Text, ...], WrapValidator(_texts)]
OneOrMore = Annotated[
    tuple[Text, ...],
    WrapValidator(_one_or_more),
    TEXTS,
]
Pairs = Annotated[dict[str, Text], one_by_one(StandIn("unnamed"))]
Expressions = Annotated[dict[str, Condition], one_by_one()]
#: Columns of Spark SQL; null is in the place of a wrong one.
Computed = Annotated[dict[str, Condition], one_by_one("NULL")]
Simples = Annotated[dict[str, Simple], one_by_one()]
Lists = Annotated[dict[str, OneOrMore], one_by_one()]
OneOrAll = Annotated[str | tuple[Text, ...], WrapValidator(_one_or_all), TEXTS]
#: Parts in a list; None is in the place of a wrong one.
Parts = Annotated[tuple[Part | None, ...], WrapValidator(_parts)]
