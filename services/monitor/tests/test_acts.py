"""What acts ask for is checked before anything is done, and told in one place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tallyweir.services.monitor.acts import ACTS, ActField, Arguments, FieldKind
from tallyweir.services.monitor.tokens import Role
from tallyweir.sinks.protocol.errors import ConfigurationError

_DOCS = Path(__file__).resolve().parents[3] / "docs" / "monitor.md"

_FIELDS = (
    ActField(name="id", label="ID"),
    ActField(name="most", label="At most", kind=FieldKind.NUMBER, is_required=False),
    ActField(name="off", label="Off", kind=FieldKind.BOOLEAN, is_required=False),
    ActField(
        name="windows",
        label="Windows",
        kind=FieldKind.CHOICE,
        choices=(("close", "Close them"), ("keep", "Keep them")),
    ),
)
_GIVEN = {"id": " 7f0c ", "most": "8", "off": "true", "windows": "keep"}


def test_values_are_read_by_their_kinds() -> None:
    """A blank one is none."""
    found = Arguments(_FIELDS, _GIVEN)
    assert (found.text("id"), found.number("most")) == ("7f0c", 8)
    assert (found.is_set("off"), found.text("windows")) == (True, "keep")
    blank = Arguments(_FIELDS, {"id": "7f0c", "windows": "close"})
    assert (blank.number("most"), blank.is_set("off")) == (None, False)


def test_an_argument_that_the_act_does_not_have_is_refused() -> None:
    """A name with a slip of the pen must not make an act do more."""
    given = {"reason": "again", "recrod": "views/0/7"}
    with pytest.raises(ConfigurationError, match="recrod") as refused:
        Arguments(ACTS["redrive"].fields, given)
    assert refused.value.code == "ACT_ARGUMENT"


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": "  "},
        {"id": "x" * 501},
        {"most": "-1"},
        {"most": "1.5"},
        {"most": "٣"},
        {"most": "9" * 19},
        {"off": "yes"},
        {"windows": ""},
        {"windows": "open"},
    ],
)
def test_a_value_of_another_kind_is_refused(wrong: dict[str, str]) -> None:
    """Missing, too long, no whole number, no boolean, none of the choices."""
    with pytest.raises(ConfigurationError) as refused:
        Arguments(_FIELDS, {**_GIVEN, **wrong})
    assert refused.value.code == "ACT_ARGUMENT"


def test_every_act_but_the_end_of_a_pause_asks_for_a_reason() -> None:
    """And refuses a blank one with the code of the command."""
    without = {name for name, act in ACTS.items() if "reason" not in _names(name)}
    assert without == {"resume"}
    with pytest.raises(ConfigurationError) as refused:
        Arguments(ACTS["pause"].fields, {"reason": " "})
    assert refused.value.code == "REASON_MISSING"


def _names(act: str) -> set[str]:
    return {one.name for one in ACTS[act].fields}


def test_the_page_is_told_all_that_it_needs() -> None:
    """As JSON, with the kinds that its fields have elements for."""
    told = json.loads(json.dumps([act.as_json() for act in ACTS.values()]))
    kinds = {field["kind"] for act in told for field in act["fields"]}
    assert kinds <= {kind.value for kind in FieldKind}


def test_the_documented_table_is_that_of_the_registry() -> None:
    """Whoever adds an act adds its row: act, role, arguments, command."""
    rows = [
        f"| {act.title} (`{name}`) | `{act.role.value}` | {_arguments(name)} "
        f"| `{act.command}` |"
        for name, act in ACTS.items()
    ]
    documented = _DOCS.read_text("utf-8").splitlines()
    print("\n".join(rows))  # noqa: T201 - what is to be in the document
    assert [row for row in documented if row in rows] == rows


def _arguments(act: str) -> str:
    told = [
        f"`{one.name}`{'' if one.is_required else '?'}"
        + ("" if one.kind is FieldKind.TEXT else f" ({one.kind.value})")
        for one in ACTS[act].fields
    ]
    return ", ".join(told) or "none"


def test_only_an_admin_erases_and_discards() -> None:
    """What cannot be taken back is for the greatest role."""
    of_admins = [name for name, act in ACTS.items() if act.role is Role.ADMIN]
    assert of_admins == ["erase", "discard"]
    assert not Role.OPERATOR.may(Role.ADMIN)
