"""Pipeline files: the shipped ones load, and each mistake is found on its line."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyweir.schemas.contract import CONTRACTS_FOLDER
from tallyweir.schemas.pipeline import (
    Deduplicate,
    HeaderId,
    Late,
    Pipeline,
    PipelineError,
    Window,
    load_pipeline,
)
from tallyweir.schemas.pipeline.document.yaml_tree import (
    DEPTH_MAX,
    FILE_BYTES_MAX,
    read_tree,
)

VALID = """\
pipeline: p
source:
  topic: t
  schema: flight_departure.v1
  event_id: event_id
  event_time: scheduled_at
  watermark_delay: 2 hours
validate:
  FAR: distance_miles > 0
enrich:
  - table: airlines
    on: {carrier: code}
    select: {airline: name}
outputs:
  - append: {table: a}
  - window:
      table: w
      fixed: 1 hour
      by: [origin]
      aggregate:
        flights: count(*)
"""


def _load(folder: Path, text: str) -> Pipeline:
    path = folder / "p.yaml"
    path.write_text(text)
    return load_pipeline(path)


def _problems(folder: Path, text: str) -> list[tuple[int, str, str]]:
    with pytest.raises(PipelineError) as caught:
        _load(folder, text)
    file = folder / "p.yaml"
    return [
        (int(place.removeprefix(f"{file}:")), problem.code, problem.fix)
        for place, problem in zip(
            caught.value.places, caught.value.problems, strict=True
        )
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("pipeline: p", "pipelin: p", (1, "PIPELINE_UNKNOWN_KEY", "Write pipeline.")),
        ("  topic: t", "  topics: t", (2, "PIPELINE_MISSING_KEY", "Add it to source.")),
        ("  topic: t", "  topic: 0123", (3, "PIPELINE_VALUE", 'Quote it: "0123".')),
        ("  topic: t", "  topic: no", (3, "PIPELINE_VALUE", 'Quote it: "no".')),
        ("  topic: t", "  topic: 12:30:00", (3, "PIPELINE_VALUE", '"12:30:00"')),
        ("  topic: t", "  topic: 2020-99-99", (3, "PIPELINE_VALUE", '"2020-99-99"')),
        ("  topic: t", "  topic:", (3, "PIPELINE_VALUE", "Write text.")),
        ("  topic: t", "  topic: {t: 1}", (3, "PIPELINE_VALUE", "Write text.")),
        ("  topic: t", "  topic: []", (3, "PIPELINE_VALUE", "Fill it in.")),
        ("  topic: t", "  topic: [t, 7]", (3, "PIPELINE_VALUE", 'Quote it: "7".')),
        ("  topic: t", "  topic:\n  - t\n  - u\n  - t", (6, "_NAME", "Remove one.")),
        ("  topic: t", "  topic:\n  - t\n  - a/b", (5, "PIPELINE_NAME", "")),
        ("  topic: t", "  topic: t\n  topic: u", (4, "PIPELINE_DUPLICATE_KEY", "")),
        ("e.v1", "e.v9", (4, "CONTRACT_MISSING", "Write flight_departure.v1")),
        (
            "d: event_id",
            "d: even_id",
            (5, "PIPELINE_UNKNOWN_COLUMN", "Write event_id."),
        ),
        ("d: event_id", 'd: "header:"', (5, "PIPELINE_VALUE", "Fill it in.")),
        ("e: scheduled_at", "e: carrier", (6, "PIPELINE_COLUMN_TYPE", "another field")),
        ("watermark_", "watermrk_", (7, "PIPELINE_UNKNOWN_KEY", "Write watermark_")),
        ("2 hours", "2 fortnights", (7, "PIPELINE_DURATION", '"30 minutes"')),
        ("2 hours", "7200", (7, "PIPELINE_VALUE", 'Quote it: "7200".')),
        ("validate:", "validat:", (8, "PIPELINE_UNKNOWN_KEY", "Write validate.")),
        ("FAR", "far", (9, "PIPELINE_NAME", "")),
        ("_miles >", "_mile >", (9, "PIPELINE_UNKNOWN_COLUMN", "distance_miles.")),
        ("distance_miles > 0", "a >", (9, "PIPELINE_EXPRESSION_SYNTAX", "")),
        ("distance_miles > 0", "rand() > 0", (9, "PIPELINE_FUNCTION_REFUSED", "")),
        ("distance_miles > 0", "true", (9, "PIPELINE_VALUE", 'Quote it: "true".')),
        ("table: airlines", "tabel: airlines", (11, "PIPELINE_UNKNOWN_KEY", "table.")),
        ("{carrier:", "{carier:", (12, "PIPELINE_UNKNOWN_COLUMN", "Write carrier.")),
        ("{carrier: code}", "carrier", (12, "PIPELINE_VALUE", "key: value")),
        ("{airline:", "{origin:", (13, "PIPELINE_DUPLICATE_NAME", "another name")),
        (": name}", ": name}\n    refresh: 1", (14, "PIPELINE_VALUE", '"1"')),
        (": name}", ": name}\n    default: {airlin: 1}", (14, "_COLUMN", "airline.")),
        (": name}", ": name}\n    default: {airline: .nan}", (14, "_VALUE", "finite")),
        (": name}", ": name}\n    default: {airline: [1]}", (14, "_VALUE", "text, a")),
        ("- append", "- apend", (15, "PIPELINE_UNKNOWN_KEY", "Write append.")),
        ("{table: a}", "{table: w}", (17, "PIPELINE_DUPLICATE_NAME", "another table")),
        ("{table: a}", "{table: a, columns: origin}", (15, "_VALUE", "Write [a, b]")),
        ("{table: a}", "a", (15, "PIPELINE_VALUE", "keys and values")),
        ("fixed: 1", "fixt: 1", (18, "PIPELINE_UNKNOWN_KEY", "Write fixed.")),
        ("fixed: 1", "fixed: 0", (18, "PIPELINE_DURATION", "")),
        ("[origin]", "[origin,\n        carier]", (20, "_COLUMN", "Write carrier.")),
        (
            "aggregate:\n        flights: count(*)",
            "aggregate: {}",
            (20, "_VALUE", "Fill"),
        ),
        ("count(*)", "count(*", (21, "PIPELINE_VALUE", "quotation marks")),
        ("count(*)", "median(flight)", (21, "PIPELINE_AGGREGATE", "count_if")),
        ("count(*)", "sum(flihgt)", (21, "PIPELINE_UNKNOWN_COLUMN", "Write flight.")),
        ("flights:", "pane:", (21, "PIPELINE_RESERVED_NAME", "another name")),
        ("flights:", "origin:", (16, "PIPELINE_DUPLICATE_NAME", "Rename")),
        ("by: [origin]", "late: revize", (19, "PIPELINE_VALUE", "Write revise.")),
    ],
)
def test_a_mistake_is_found_on_its_line(
    tmp_path: Path, old: str, new: str, expected: tuple[int, str, str]
) -> None:
    """One edit to a valid file gives its own code, line and remedy."""
    assert VALID.count(old) == 1, "the edit must be unambiguous"
    problems = _problems(tmp_path, VALID.replace(old, new))
    line, code, fix = expected
    assert any(
        seen_line == line and seen_code.endswith(code) and fix in seen_fix
        for seen_line, seen_code, seen_fix in problems
    ), problems


def test_a_list_of_topics_is_one_source(tmp_path: Path) -> None:
    """Their order means nothing to Kafka; one in a list is the same as one alone."""
    several = _load(tmp_path, VALID.replace("topic: t", "topic: [t, T]"))
    assert ("t", "T") == several.source.topics
    (single, listed) = (
        _load(tmp_path, VALID.replace("topic: t", topic))
        for topic in ("topic: t", "topic: [t]")
    )
    assert single == listed
    assert ("t",) == listed.source.topics


def test_all_problems_of_a_file_are_reported_in_the_order_of_lines(
    tmp_path: Path,
) -> None:
    """Problems of shape, of names, of SQL and of columns come together."""
    text = (
        VALID.replace("pipeline: p", "pipeline: P")
        .replace("validate:", "deduplicat: off\nvalidate:")
        .replace("distance_miles > 0", "uuid() > 0")
        .replace("{table: a}", "{table: a, columns: [orign]}")
        .replace("[origin]", "[airlin]")
        .replace("count(*)", "max(carier)")
    )
    assert [problem[:2] for problem in _problems(tmp_path, text)] == [
        (1, "PIPELINE_NAME"),
        (8, "PIPELINE_UNKNOWN_KEY"),
        (10, "PIPELINE_FUNCTION_REFUSED"),
        (16, "PIPELINE_UNKNOWN_COLUMN"),
        (20, "PIPELINE_UNKNOWN_COLUMN"),
        (22, "PIPELINE_UNKNOWN_COLUMN"),
    ]


def test_an_output_after_a_wrong_one_keeps_its_own_line(tmp_path: Path) -> None:
    """Leaving the wrong one out does not move the problems of the next."""
    text = VALID.replace("{table: a}", "{tabel: a}").replace("[origin]", "[orign]")
    assert [problem[:2] for problem in _problems(tmp_path, text)] == [
        (15, "PIPELINE_UNKNOWN_KEY"),
        (15, "PIPELINE_MISSING_KEY"),
        (19, "PIPELINE_UNKNOWN_COLUMN"),
    ]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("", Deduplicate()),
        ("deduplicate: off", None),
        ('deduplicate: "off"', None),
        ("deduplicate: false", None),
        ("deduplicate: {horizon: 1 day}", Deduplicate(horizon=timedelta(days=1))),
        ("deduplicate: {conflicts: no}", Deduplicate(conflicts=False)),
    ],
)
def test_deduplication_is_off_only_where_it_says_so(
    tmp_path: Path, written: str, expected: Deduplicate | None
) -> None:
    """YAML 1.1 reads off as false; both mean off, and silence means on."""
    assert _load(tmp_path, f"{VALID}{written}\n").deduplicate == expected


@pytest.mark.parametrize("written", ["on", "yes", "7 days", "", "[off]"])
def test_any_other_deduplicate_is_refused(tmp_path: Path, written: str) -> None:
    """Nothing but off can turn exactly-once off by accident."""
    ((line, code, _),) = _problems(tmp_path, f"{VALID}deduplicate: {written}\n")
    assert (line, code) == (22, "PIPELINE_VALUE")


def test_the_id_may_be_in_a_header(tmp_path: Path) -> None:
    """The other form of event_id."""
    pipeline = _load(tmp_path, VALID.replace("d: event_id", "d: header:ce_id"))
    assert pipeline.source.event_id == HeaderId(header="ce_id")


@pytest.mark.parametrize("late", list(Late))
def test_every_kind_of_lateness_has_its_word(tmp_path: Path, late: Late) -> None:
    """The words of the file are the values of the model."""
    text = VALID.replace("by: [origin]", f"late: {late.value}")
    output = _load(tmp_path, text).outputs[1]
    assert isinstance(output, Window)
    assert output.late is late


def test_defaults_keep_the_type_they_have_in_the_file(tmp_path: Path) -> None:
    """A lookup's default may be a number, a truth value or null."""
    text = VALID.replace(
        "{airline: name}",
        "{a: x, b: x, c: x, d: x}\n    default: {a: 1, b: 1.5, c: off, d: null}",
    )
    (enrichment,) = _load(tmp_path, text).enrich
    assert enrichment.default == {"a": 1, "b": 1.5, "c": False, "d": None}
    assert [type(value) for value in enrichment.default.values()] == [
        int,
        float,
        bool,
        type(None),
    ]


def test_a_contract_may_lie_beside_the_pipeline_file(tmp_path: Path) -> None:
    """A user's first pipeline needs nothing inside the installation."""
    contract = (CONTRACTS_FOLDER / "flight_departure.v1.avsc").read_bytes()
    (tmp_path / "mine.v1.avsc").write_bytes(contract)
    pipeline = _load(tmp_path, VALID.replace("flight_departure.v1", "mine.v1.avsc"))
    assert pipeline.source.schema == "mine.v1.avsc"


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("outputs: []", "PIPELINE_VALUE"),
        ("outputs:", "PIPELINE_VALUE"),
        ("outputs: [{}]", "PIPELINE_VALUE"),
        ("", "PIPELINE_MISSING_KEY"),
    ],
)
def test_a_pipeline_without_outputs_has_one_problem(
    tmp_path: Path, written: str, code: str
) -> None:
    """However the outputs are left out, that is the only thing said."""
    text = VALID[: VALID.index("outputs:")] + written
    assert [problem[1] for problem in _problems(tmp_path, text)] == [code]


def test_a_wrong_list_of_lookups_hides_no_column(tmp_path: Path) -> None:
    """What an enrichment would have added is not called unknown."""
    text = VALID.replace("[origin]", "[airline]").replace(
        "  - table: airlines\n    on:", "    table: airlines\n    on:"
    )
    assert _problems(tmp_path, text) == [
        (10, "PIPELINE_VALUE", "Write [a, b], or a line - a for each.")
    ]


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    """Some editors write one, and nobody sees it."""
    assert _load(tmp_path, f"\ufeff{VALID}").name == "p"


def test_a_comma_that_cuts_an_expression_is_explained(tmp_path: Path) -> None:
    """Between braces, YAML ends a value at a comma, which nobody expects."""
    text = VALID.replace(
        "aggregate:\n        flights: count(*)",
        "aggregate: {a: sum(coalesce(flight, 0)), b: count(*)}",
    )
    ((line, code, fix),) = _problems(tmp_path, text)
    assert (line, code) == (20, "PIPELINE_VALUE")
    assert fix == "Put quotation marks around the whole expression."


@pytest.mark.parametrize(
    ("text", "line", "seen"),
    [
        ("a: &x 1\nb: *x\n", 1, "anchors and aliases are not allowed"),
        ("a: 1\nb: *x\n", 2, "anchors and aliases are not allowed"),
        ("a: !!python/object/apply:os.system [ls]\n", 1, "tags are not allowed"),
        (f"a: {'[' * DEPTH_MAX}{']' * DEPTH_MAX}\n", 1, "nested deeper than"),
        (f"a: {'[' * 10_000}\n", 1, "nested deeper than"),
        ("a: 1\nb: [\n", 3, "while parsing a flow node"),
        ("a: 1\n\tb: 2\n", 2, "cannot start any token"),
        ("a: 1\n---\nb: 2\n", 2, "but found another document"),
        ("- a\n", 1, "not a mapping"),
        ("", 1, "not a mapping"),
        ("a: \x07\n", 1, "unacceptable character"),
        (f"a: {'x' * FILE_BYTES_MAX}", 1, "larger than 1,000,000 bytes"),
    ],
)
def test_what_is_not_a_plain_document_is_refused(
    tmp_path: Path, text: str, line: int, seen: str
) -> None:
    """Nothing in a file can run code, fill the memory or exhaust the stack."""
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(PipelineError) as caught:
        load_pipeline(path)
    assert caught.value.code == "PIPELINE_SYNTAX"
    assert caught.value.places == (f"{path}:{line}",)
    assert seen in caught.value.saw


def test_a_file_that_is_not_utf_8_is_refused_on_its_line(tmp_path: Path) -> None:
    """An editor's wrong encoding is named as such."""
    path = tmp_path / "p.yaml"
    path.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(PipelineError, match="not UTF-8") as caught:
        load_pipeline(path)
    assert caught.value.places == (f"{path}:2",)


@pytest.mark.parametrize("name", ["absent.yaml", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    """A wrong path is the first mistake that users make."""
    path = tmp_path / name
    with pytest.raises(PipelineError) as caught:
        load_pipeline(path)
    assert caught.value.code == "PIPELINE_FILE_MISSING"
    assert str(path) in caught.value.saw


@given(st.data())
def test_a_damaged_file_never_fails_in_another_way(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Any edit is a pipeline or a PipelineError with a line of the file."""
    start = data.draw(st.integers(0, len(VALID)))
    end = data.draw(st.integers(start, min(len(VALID), start + 20)))
    middle = data.draw(st.text("{}[]:-,'\"#&*!|> \nab01()é", max_size=8))
    text = VALID[:start] + middle + VALID[end:]
    folder = tmp_path_factory.mktemp("damaged")
    try:
        pipeline = _load(folder, text)
    except PipelineError as exc:
        lines = [int(place.rpartition(":")[2]) for place in exc.places]
        assert lines == sorted(lines)
        assert 1 <= lines[0] <= lines[-1] <= text.count("\n") + 1
    else:
        assert dataclasses.replace(pipeline) == pipeline


def test_keys_keep_the_spelling_of_the_file(tmp_path: Path) -> None:
    """YAML 1.1 would read the key ``on`` as true."""
    path = tmp_path / "p.yaml"
    path.write_text("on: 1\nno: 2\n")
    assert list(read_tree(path)[0]) == ["on", "no"]


def test_the_package_loads_without_spark_and_without_the_sql_parser() -> None:
    """``--help`` and ``status`` import it, and must stay fast."""
    program = (
        "import sys, tallyweir.schemas.pipeline; "
        "print(sorted({'pyspark', 'sqlglot', 'fastavro', 'psycopg'} & {*sys.modules}))"
    )
    root = Path(__file__).parents[3]
    answer = subprocess.run(
        [sys.executable, "-c", program],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    )
    assert answer.stdout.strip() == "[]"


def test_one_mistake_hides_no_other(tmp_path: Path) -> None:
    """Each kind of mistake is told beside the others: names, lookups, types, SQL."""
    text = VALID.replace("distance_miles > 0", "distance_mile > 0")
    text = text.replace("count(*)", "counts(*)")
    text = text.replace("event_time: scheduled_at", "event_time: origin")
    text = text.replace("select: {airline: name}", "select: {pane: name}")
    text = text.replace("- append: {table: a}", "- append: {table: a, columns: []}")
    text += "filter: rand() > 0.5\n"
    assert [(line, code) for line, code, _ in _problems(tmp_path, text)] == [
        (6, "PIPELINE_COLUMN_TYPE"),
        (9, "PIPELINE_UNKNOWN_COLUMN"),
        (13, "PIPELINE_RESERVED_NAME"),
        (15, "PIPELINE_VALUE"),
        (21, "PIPELINE_AGGREGATE"),
        (22, "PIPELINE_FUNCTION_REFUSED"),
    ]


def test_a_key_that_is_there_twice_hides_no_mistake_in_its_value(
    tmp_path: Path,
) -> None:
    """The first value counts, and is checked."""
    text = VALID.replace("2 hours", "2 hours\nfilter: orign = 'x'\nfilter: true = true")
    assert [(line, code) for line, code, _ in _problems(tmp_path, text)] == [
        (8, "PIPELINE_UNKNOWN_COLUMN"),
        (9, "PIPELINE_DUPLICATE_KEY"),
    ]


def test_an_output_of_wrong_aggregates_is_checked_for_the_rest(tmp_path: Path) -> None:
    """Its columns, and those of the lookups before it."""
    text = VALID.replace("count(*)", "counts(*)").replace("[origin]", "[orign]")
    text = text.replace("carrier: code", "carier: code")
    assert [(line, code) for line, code, _ in _problems(tmp_path, text)] == [
        (12, "PIPELINE_UNKNOWN_COLUMN"),
        (19, "PIPELINE_UNKNOWN_COLUMN"),
        (21, "PIPELINE_AGGREGATE"),
    ]


def test_a_wrong_source_hides_no_column(tmp_path: Path) -> None:
    """Nor any other mistake: something stands in for what is wrong."""
    text = VALID.replace("2 hours", "soon").replace("topic: t", "topic: a/b")
    text = text.replace("  event_time: scheduled_at\n", "")
    text = text.replace("[origin]", "[orign]").replace("{table: a}", "{table: w}")
    assert [(line, code) for line, code, _ in _problems(tmp_path, text)] == [
        (2, "PIPELINE_MISSING_KEY"),
        (3, "PIPELINE_NAME"),
        (6, "PIPELINE_DURATION"),
        (16, "PIPELINE_DUPLICATE_NAME"),
        (18, "PIPELINE_UNKNOWN_COLUMN"),
    ]


def test_a_source_without_a_contract_hides_what_needs_none(tmp_path: Path) -> None:
    """Columns are not known then; names are."""
    text = VALID.replace("  schema: flight_departure.v1\n", "")
    text = text.replace("[origin]", "[orign]").replace("{table: a}", "{table: w}")
    assert [(line, code) for line, code, _ in _problems(tmp_path, text)] == [
        (2, "PIPELINE_MISSING_KEY"),
        (16, "PIPELINE_DUPLICATE_NAME"),
    ]


def test_parts_that_are_wrong_are_checked_for_the_rest(tmp_path: Path) -> None:
    """The columns of an output, and those that a lookup or a model adds."""
    text = VALID.replace("table: airlines", "table: 'air lines'")
    text = text.replace("{table: a}", "{tabel: a, columns: [airlin, orign]}")
    text = text.replace("1 hour", "1 houre").replace("[origin]", "[airline, orign]")
    assert [(line, code) for line, code, _ in _problems(tmp_path, text)] == [
        (11, "PIPELINE_NAME"),
        (15, "PIPELINE_UNKNOWN_KEY"),
        (15, "PIPELINE_MISSING_KEY"),
        (15, "PIPELINE_UNKNOWN_COLUMN"),
        (15, "PIPELINE_UNKNOWN_COLUMN"),
        (18, "PIPELINE_DURATION"),
        (19, "PIPELINE_UNKNOWN_COLUMN"),
    ]


def test_every_fault_of_a_contract_is_told(tmp_path: Path) -> None:
    """On the line that names it."""
    fields = '{"name": "a-b", "type": "int"}, {"name": "c", "type": "money"}'
    (tmp_path / "e.v1.avsc").write_text(
        f'{{"type": "record", "name": "E", "fields": [{fields}]}}'
    )
    text = VALID.replace("flight_departure.v1", "e.v1.avsc")
    assert [(line, code) for line, code, _ in _problems(tmp_path, text)] == [
        (4, "CONTRACT_FIELD_NAME"),
        (4, "CONTRACT_MALFORMED"),
    ]


def test_a_contract_of_any_name_is_checked(tmp_path: Path) -> None:
    """No name that a file can have is taken for a missing one."""
    text = VALID.replace("flight_departure.v1", "unnamed")
    assert [(line, code) for line, code, _ in _problems(tmp_path, text)] == [
        (4, "CONTRACT_MISSING"),
    ]


def test_outboxes_and_joins_are_checked_for_the_rest(tmp_path: Path) -> None:
    """What they lack hides none of their columns, nor clashes with anything."""
    head, _ = VALID.split("outputs:")
    text = (
        head.replace("  topic: t\n", "")
        + """outputs:
  - outbox: {select: [orign], where: "cancelld"}
  - outbox: {key: 1x, select: [origin, ctid]}
  - join: {table: j}
  - join:
      table: k
      within: 1 hour
      left: {where: "true", select: {a: orign}}
      right: {select: {b: orign}}
  - join:
      table: l
      on: [1x]
      within: 1 hour
      left: {where: "orign > 1", select: {unnamed: origin}}
"""
    )
    assert [(line, code) for line, code, _ in _problems(tmp_path, text)] == [
        (2, "PIPELINE_MISSING_KEY"),  # topic
        (14, "PIPELINE_MISSING_KEY"),  # topic
        (14, "PIPELINE_MISSING_KEY"),  # key
        (14, "PIPELINE_UNKNOWN_COLUMN"),
        (14, "PIPELINE_UNKNOWN_COLUMN"),
        (15, "PIPELINE_MISSING_KEY"),  # topic
        (15, "PIPELINE_NAME"),
        (15, "PIPELINE_RESERVED_NAME"),
        (16, "PIPELINE_MISSING_KEY"),  # on
        (16, "PIPELINE_MISSING_KEY"),  # within
        (16, "PIPELINE_MISSING_KEY"),  # left
        (16, "PIPELINE_MISSING_KEY"),  # right
        (17, "PIPELINE_MISSING_KEY"),  # on
        (20, "PIPELINE_UNKNOWN_COLUMN"),
        (21, "PIPELINE_MISSING_KEY"),  # where
        (21, "PIPELINE_UNKNOWN_COLUMN"),
        (22, "PIPELINE_MISSING_KEY"),  # right
        (24, "PIPELINE_NAME"),
        (26, "PIPELINE_UNKNOWN_COLUMN"),
    ]


@pytest.mark.parametrize("branches", ["9" * 4301, "1" + "0" * 38])
def test_a_number_that_is_too_long_never_becomes_a_default(
    tmp_path: Path, branches: str
) -> None:
    """Python itself refuses to convert more than 4,300 digits."""
    text = VALID.replace("{table: a}", f"{{table: a, branches: {branches}}}")
    ((line, code, _),) = _problems(tmp_path, text)
    assert (15, "PIPELINE_VALUE") == (line, code)


@pytest.mark.parametrize("value", ["0x" + "f" * 9000, "1" + ":00" * 174 + ".0"])
def test_a_default_that_no_column_holds_is_refused(tmp_path: Path, value: str) -> None:
    """Whether YAML reads it as digits to the base 16 or 60."""
    text = VALID.replace(
        "{airline: name}", f"{{airline: name}}\n    default: {{airline: {value}}}"
    )
    ((line, code, _),) = _problems(tmp_path, text)
    assert (14, "PIPELINE_VALUE") == (line, code)


@pytest.mark.parametrize(
    ("written", "line"),
    [('  "\\ud800": 1\nvalidate:', 8), ('"\\ud800": 1\nvalidate:', 8)],
)
def test_half_of_a_character_is_an_unknown_key(
    tmp_path: Path, written: str, line: int
) -> None:
    """JSON's escapes can write it, and no encoding holds it."""
    text = VALID.replace("validate:", written, 1)
    ((found, code, _),) = _problems(tmp_path, text)
    assert (line, "PIPELINE_UNKNOWN_KEY") == (found, code)


def test_a_wrong_lookup_hides_no_mistake_in_the_next(tmp_path: Path) -> None:
    """The columns that it would add are unknown, but not what else is wrong."""
    text = VALID.replace(
        "  - table: airlines", '  - table: x\n    select: {q: w}\n  - table: "a;b"'
    )
    assert [(11, "PIPELINE_MISSING_KEY"), (13, "PIPELINE_NAME")] == [
        problem[:2] for problem in _problems(tmp_path, text)
    ]


def test_a_missing_source_brings_no_problem_of_its_stand_in(tmp_path: Path) -> None:
    """Every problem is of something that the file has, or lacks."""
    text = VALID.replace("source:", "sourc:")
    assert ["PIPELINE_MISSING_KEY", "PIPELINE_UNKNOWN_KEY"] == sorted(
        code for _, code, _ in _problems(tmp_path, text)
    )


def test_many_problems_take_time_in_proportion(tmp_path: Path) -> None:
    """A file of a megabyte may have tens of thousands."""
    rules = "".join(f'  r{number}: "true"\n' for number in range(9000))
    before = time.process_time()
    assert len(_problems(tmp_path, VALID.replace("validate:\n", f"validate:\n{rules}")))
    assert time.process_time() - before < 4
