"""Reads rules and channels from YAML; one error shows all problems of a file."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import yaml
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails
from yaml.nodes import MappingNode, Node, SequenceNode

from tallyweir.services.alerts.alert_rule import AlertRule, AnyRule, Duration
from tallyweir.sinks.protocol.errors import ConfigurationError

FILE_BYTES_MAX = 1_000_000

_NOTHING_ELSE = ConfigDict(extra="forbid")
_NAME = r"^[a-z][a-z0-9-]{0,62}$"
_SETTING = r"^[A-Z][A-Z0-9_]{0,99}$"

Name: TypeAlias = Annotated[str, Field(pattern=_NAME)]
#: An environment variable; with _FILE appended, one that names a file.
Setting: TypeAlias = Annotated[str, Field(pattern=_SETTING)]


def checked_url(url: str) -> str:
    """Return an address if it can be posted to.

    Raises:
        ValueError: The address is invalid; the message does not show it, because it may
            be a secret.
    """
    if not re.fullmatch(r"https?://[^\s/@?#]+(/[^\s#]*)?", url):
        raise ValueError(
            "it must look like https://example.org/path; a password in it would not "
            "be sent"
        )
    return url


Url: TypeAlias = Annotated[str, AfterValidator(checked_url)]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSection:
    """A channel of the kind ``webhook``; either ``url`` or ``url_from``."""

    __pydantic_config__: ClassVar[ConfigDict] = _NOTHING_ELSE

    kind: Literal["webhook"]
    url: Url | None = None
    url_from: Setting | None = None
    secret_from: Setting | None = None

    def __post_init__(self) -> None:
        if (self.url is None) == (self.url_from is None):
            raise ValueError("a webhook has either url or url_from")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailSection:
    """A channel of the kind ``email``."""

    __pydantic_config__: ClassVar[ConfigDict] = _NOTHING_ELSE

    kind: Literal["email"]
    server: str
    sender: Annotated[str, Field(alias="from")]
    to: Annotated[tuple[str, ...], Field(min_length=1)]
    port: Annotated[int, Field(ge=1, le=65_535, strict=True)] = 587
    starttls: Annotated[bool, Field(strict=True)] = True
    user: str | None = None
    password_from: Setting | None = None

    def __post_init__(self) -> None:
        if (self.user is None) != (self.password_from is None):
            raise ValueError("user and password_from need each other")
        if self.user is not None and not self.starttls:
            raise ValueError("without starttls a password would be sent in the clear")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertmanagerSection:
    """A channel of the kind ``alertmanager``."""

    __pydantic_config__: ClassVar[ConfigDict] = _NOTHING_ELSE

    kind: Literal["alertmanager"]
    url: Url


AnyChannel: TypeAlias = Annotated[
    WebhookSection | EmailSection | AlertmanagerSection, Field(discriminator="kind")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesFile:
    """The rules, and the channels that are told.

    Attributes:
        rules: Rules by name.
        channels: Channels by name.
        every: Time from the start of one look to the start of the next.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _NOTHING_ELSE

    rules: dict[Name, AnyRule]
    channels: Annotated[dict[Name, AnyChannel], Field(default_factory=dict)]
    every: Annotated[Duration, Field(ge=timedelta(seconds=1))] = timedelta(seconds=15)


_ADAPTER: TypeAdapter[RulesFile] = TypeAdapter(RulesFile)
_KINDS: dict[str, type] = {
    "webhook": WebhookSection,
    "email": EmailSection,
    "alertmanager": AlertmanagerSection,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    line: int
    text: str


def read_rules(path: Path) -> RulesFile:
    """Read and check a file of rules.

    Raises:
        ConfigurationError: ``ALERT_RULES_UNREADABLE``: no file, or no plain YAML.
            ``ALERT_RULES_INVALID``: the file says something that has no effect; the
            error lists every problem with its line.
    """
    node = _compose(path)
    problems = [*_find_repeats(node)]
    try:
        found = _ADAPTER.validate_python(
            yaml.SafeLoader("").construct_document(node), context=path.parent
        )
    except ValidationError as error:
        told = [
            _problem(node, one)
            for one in error.errors(include_url=False, include_context=False)
        ]
        raise _invalid(path, [*problems, *told]) from None
    problems += _find_unknown_channels(node, found)
    if problems:
        raise _invalid(path, problems)
    return found


def _compose(path: Path) -> Node:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise _unreadable(path, str(error.strerror)) from error
    if len(content) > FILE_BYTES_MAX:
        raise _unreadable(path, f"it is larger than {FILE_BYTES_MAX:,} bytes")
    try:
        for event in yaml.parse(content, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise _unreadable(path, "aliases are not allowed; write the value out")
        node = yaml.compose(content, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _unreadable(path, " ".join(str(error).split())) from error
    if not isinstance(node, MappingNode):
        raise _unreadable(path, "it is not a mapping of keys to values")
    return node


def _find_repeats(node: Node) -> Iterator[_Problem]:
    """Yield the keys that a mapping has twice; only one of them would count."""
    if isinstance(node, SequenceNode):
        for item in node.value:
            yield from _find_repeats(item)
    if isinstance(node, MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if str(key.value) in seen:
                line = key.start_mark.line + 1
                yield _Problem(line=line, text=f"The key {key.value!r} occurs twice.")
            seen.add(str(key.value))
            yield from _find_repeats(value)


def _find_unknown_channels(node: Node, found: RulesFile) -> Iterator[_Problem]:
    for name, rule in found.rules.items():
        for channel in rule.channels:
            if channel not in found.channels:
                yield _Problem(
                    line=_line_of(node, ("rules", name, "channels")),
                    text=f"There is no channel {channel!r}. "
                    + _nearest(channel, found.channels),
                )
        if len(set(rule.channels)) < len(rule.channels):
            yield _Problem(
                line=_line_of(node, ("rules", name, "channels")),
                text="The rule names a channel twice.",
            )


def _problem(node: Node, error: ErrorDetails) -> _Problem:
    """Describe the problem at one place, without any value but a key."""
    at = tuple(error["loc"])
    line = _line_of(node, at)
    where = ".".join(str(step) for step in at if not _is_tag(at, step))
    match error["type"]:
        case "extra_forbidden" | "unexpected_keyword_argument":
            known = _known_keys(at)
            text = f"Unknown key {at[-1]!r}. {_nearest(str(at[-1]), known)}"
        case "missing":
            text = f"{where} is missing."
        case "union_tag_invalid" | "union_tag_not_found":
            key, tags = _tags(at)
            text = f"{where}.{key} must be one of {', '.join(tags)}."
        case _:
            text = f"{where}: {error['msg'].removeprefix('Value error, ')}."
    return _Problem(line=line, text=text)


def _is_tag(at: Sequence[int | str], step: int | str) -> bool:
    """Whether a step is the kind that pydantic adds, not a key of the file."""
    return len(at) > 2 and step == at[2]  # noqa: PLR2004 - rules.NAME.KIND


def _tags(at: Sequence[int | str]) -> tuple[str, Sequence[str]]:
    return ("kind", [*_KINDS]) if at[0] == "channels" else ("when", [*_conditions()])


def _known_keys(at: Sequence[int | str]) -> Sequence[str]:
    kind: Any = RulesFile
    if len(at) > 2:  # noqa: PLR2004 - as above
        kinds = _KINDS if at[0] == "channels" else _conditions()
        kind = kinds[str(at[2])]
    aliases = {"lasting": "for", "sender": "from"}
    return [aliases.get(one.name, one.name) for one in fields(kind)]


def _conditions() -> Mapping[str, type[AlertRule]]:
    found: dict[str, type[AlertRule]] = {}
    for kind in AlertRule.__subclasses__():
        found[TypeAdapter(kind).json_schema()["properties"]["when"]["const"]] = kind
    return found


def _nearest(wrong: str, known: Sequence[str] | Mapping[str, object]) -> str:
    nearest = difflib.get_close_matches(wrong, list(known), n=1)
    if nearest:
        return f"Write {nearest[0]}."
    return f"Write one of {', '.join(known)}." if known else "None is known."


def _line_of(node: Node, at: Sequence[int | str]) -> int:
    """Return the line of a place, or of its nearest parent in the file."""
    line = node.start_mark.line
    for step in at:
        if isinstance(node, MappingNode):
            pairs = [(key, value) for key, value in node.value if key.value == step]
            if pairs:
                key, node = pairs[-1]
                line = key.start_mark.line
        elif isinstance(node, SequenceNode) and isinstance(step, int):
            node = node.value[step]
            line = node.start_mark.line
    return line + 1


def _unreadable(path: Path, what: str) -> ConfigurationError:
    return ConfigurationError(
        "ALERT_RULES_UNREADABLE",
        saw=f"{path} cannot be read: {what}.",
        why="Without rules no alert is sent.",
        fix="Correct the path, or the file; docs/alerts.md has an example.",
    )


def _invalid(path: Path, problems: Sequence[_Problem]) -> ConfigurationError:
    told = sorted(problems, key=lambda one: one.line)
    return ConfigurationError(
        "ALERT_RULES_INVALID",
        saw="\n".join(f"{path}:{one.line}: {one.text}" for one in told),
        why="A rule that cannot be read would never fire, and its "
        "silence would look like health.",
        fix="Correct each line; docs/alerts.md has every key.",
    )
