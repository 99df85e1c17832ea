"""Rules of the repository that no linter knows, each as a function of its folder.

Every check returns what breaks it, as readable lines; an empty list is good.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tallyweir.schemas.errors import ReasonCode
from tallyweir.sinks.faultpoints import FaultPoint

MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70

#: Functions that may be longer; values may fall, not rise.
LONG_FUNCTIONS = {
    # A command's options are its parameters, three lines each.
    "services/cli/pipelines/emit.py:emit": 86,
}
#: Who may sleep, and why nothing can be waited for instead. Tests may in a loop only,
#: which polls.
SLEEPERS = {
    "services/dev/demo/external.py": "polls the ledger of a driver on another host",
    "services/cli/audit/wait_for.py": "polls the ledger of another process",
    "services/dev/bench/world/driver_run.py": "polls the ledger of another process",
    "spark_jobs/dedup_bench/catalog_figures.py": "looks whether merges have ended",
    "services/dev/bench/latency.py": "sends at a pace, and polls a table for its rows",
    "services/dev/bench/soak/soak.py": "sends at a pace, and polls the ledger",
    "services/dev/images/engine.py": "polls a server until it answers",
    "services/cli/steering/pause.py": "polls for a driver to end a drain",
    "services/local/embedded/embedded_server.py": "polls a server until it answers",
    "services/local/embedded/postgres.py": "polls for leftover processes to end",
}
#: Modules that may open a connection to Postgres without the pinned settings, and why.
CONNECTORS = {
    "sinks/postgres/server/connection.py": "pins them",
    "services/dev/chaos/chaos_world.py": "pins them, and wants psycopg's own errors",
    "services/local/embedded/postgres.py": "asks whether its server answers at all",
}
#: Where kinds of outputs are told apart by their names or classes, and why. Everything
#: else asks the kind or the output.
TELL_KINDS = {
    "schemas/pipeline/definition_json.py": "reads definitions out of the ledger",
    "services/dev/chaos/templates/sql/results.sql": "lists result tables to compare",
    "sinks/postgres/audit/checks/sql/keyed.sql": "checks functions and joins only",
    "sinks/postgres/audit/checks/sql/outbox.sql": "checks messages only",
    "sinks/postgres/audit/why/sql/explanation.sql": "joins the ledger's rows by kind",
    "sinks/postgres/steering/sql/restore.sql": "counts messages only",
    "sinks/postgres/versions/keyed_comparison.py": "a join is told as a join",
}
#: Upper-case words in the code that are no error codes.
NOT_CODES = {
    *("BLOCK_START", "L_BRACE", "L_BRACKET", "L_PAREN"),  # tokens of sqlglot
    *("RAW_STRING", "R_BRACKET", "R_PAREN"),  # as above
    *("JAVA_HOME", "NO_COLOR", "PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"),
    "XDG_DATA_HOME",
    "PYSPARK_SUBMIT_ARGS",
    *("TASK_PUT", "VALUE_CONVERTER"),  # stages of Kafka Connect
    "DEBIAN_FRONTEND",
    "IMPOSSIBLE_DISTANCE",  # a rule of a shipped pipeline
    "PEER_JDBC_URL",
    "PYTEST_ARGUMENTS",
}
OWN_VARIABLES = "TALLYWEIR_"
#: Names that modules of several packages share, and why they mean one thing. The module
#: of a command has the name of its command, even if another module has it too.
SHARED_NAMES = {
    "service.py": "the loop of a service",
    "errors.py": "the errors of a package",
    "columns.py": "of a pipeline, in its definition and in Postgres",
    "databases.py": "of a pipeline, in its definition and in the environment",
    "durations.py": "as text, and as a pipeline uses them",
}
_COMMANDS = "services/cli/"

_SOURCES = ("schemas", "sinks", "spark_jobs", "services", "integration_tests")
_UPPER_SNAKE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
_UPPER = re.compile(r"[A-Z][A-Z0-9_]+")
_KINDS = "append|join|outbox|stateful|window"
_KIND_COMPARED = re.compile(
    rf"\bkind\b.*(?:'(?:{_KINDS})'|\b(?:{_KINDS.upper()})\b)", re.IGNORECASE
)
_KIND_IN_SQL = re.compile(rf"\bkind'? *(?:=|<>|IN) *\(?'(?:{_KINDS})'", re.IGNORECASE)
_OUTPUT_CLASS = re.compile(
    r"\b(?:Append|Join|Keyed|Outbox|Stateful|Window)(?:Output|Table|Columns)\b"
)
_SQL_BLOCK = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
#: The modules that a line of a package's docstring lists: "- ``one``, ``two``: ...".
_LISTED = re.compile(r"^- ((?:``\w+``,\s+)*``\w+``):", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LAUNCHER_CODE = re.compile(r'echo "([A-Z_]+)"')
_TABLE_CODE = re.compile(r"^\| `([A-Z][A-Z0-9_]+)` \|", re.MULTILINE)
#: A row that begins with the name of what it is about.
_ROW_NAME = re.compile(r"^\| (`[^`]+`) \|")
#: Of a table in Markdown: the second row, which divides its head from the rest.
_ROW_UNDER_HEAD = 2
_THIS = Path(__file__).stem
# Written in two parts, or this file would break the rule.
_FORBIDDEN_TEXTS = tuple(
    "".join(parts)
    for parts in (
        ("py", "pi.org"),
        ("python", "hosted"),
        ("repo1.", "maven"),
        ("repo.", "maven"),
        ("/wo", "rk/"),
        ("/tmp/", "explore"),
        ("/ro", "ot/"),
    )
)


def python_files(root: Path, *, tests: bool = True) -> list[Path]:
    """Every module of ours; ``tests`` leaves those of tests in."""
    found = [path for source in _SOURCES for path in (root / source).rglob("*.py")]
    return sorted(path for path in found if tests or not _is_test(path, root))


def _is_test(path: Path, root: Path) -> bool:
    parts = path.relative_to(root).parts
    return bool({"tests", "testing", "integration_tests"} & set(parts))


@cache
def parse(path: Path) -> ast.Module:
    """Parse a module, once."""
    return ast.parse(path.read_text("utf-8"))


def name_of(path: Path, root: Path) -> str:
    """Write a path as the lists of this module do."""
    return path.relative_to(root).as_posix()


@cache
def calls(path: Path) -> list[ast.Call]:
    """List the calls of a module."""
    return [node for node in ast.walk(parse(path)) if isinstance(node, ast.Call)]


def callee(call: ast.Call) -> str:
    """Name what is called, without the object or module that it belongs to."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


@cache
def texts(path: Path) -> set[str]:
    """The string constants of a module."""
    return {
        node.value
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def shared_names(root: Path) -> dict[str, list[str]]:
    """The names that several modules have, each with these modules."""
    having: dict[str, list[str]] = {}
    for path in python_files(root, tests=False):
        name = name_of(path, root)
        if not path.name.startswith("__") and not name.startswith(_COMMANDS):
            having.setdefault(path.name, []).append(name)
    return {name: found for name, found in having.items() if len(found) > 1}


def find_shared_names(root: Path) -> list[str]:
    """Find modules that have one name and mean different things."""
    return [
        f"{' and '.join(found)} have one name"
        for name, found in shared_names(root).items()
        if name not in SHARED_NAMES
    ]


def find_gone_modules(root: Path) -> list[str]:
    """Find modules that the docstring of their package lists, and that it lacks."""
    return [
        f"{name_of(path, root)} lists {name}, which is not there"
        for path in python_files(root)
        if path.name == "__init__.py"
        for listed in _LISTED.findall(ast.get_docstring(parse(path)) or "")
        for name in re.findall(r"\w+", listed)
        if not (path.parent / f"{name}.py").exists()
        and not (path.parent / name).is_dir()
    ]


def find_long_modules(root: Path) -> list[str]:
    """Find modules that nobody can keep in mind."""
    return [
        f"{name_of(path, root)} has {lines} lines"
        for path in python_files(root)
        if (lines := len(path.read_text("utf-8").splitlines())) > MODULE_LINES_MAX
    ]


def find_long_functions(root: Path) -> list[str]:
    """Find functions that no screen shows whole."""
    found = []
    for path in python_files(root):
        for node in ast.walk(parse(path)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            name = f"{name_of(path, root)}:{node.name}"
            if lines > LONG_FUNCTIONS.get(name, FUNCTION_LINES_MAX):
                found.append(f"{name} has {lines} lines")
    return found


def sleeps(tree: ast.AST) -> list[int]:
    """The lines that sleep."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and callee(node) == "sleep"
    ]


def find_sleeps(root: Path) -> list[str]:
    """Find sleeps where something could be waited for."""
    found = []
    for path in python_files(root):
        name = name_of(path, root)
        loops = (node for node in ast.walk(parse(path)) if isinstance(node, ast.While))
        allowed = (
            {line for loop in loops for line in sleeps(loop)}
            if _is_test(path, root)
            else set()
        )
        if name not in SLEEPERS:
            found += [
                f"{name}:{line} sleeps"
                for line in sleeps(parse(path))
                if line not in allowed
            ]
    return found


def find_unpinned_connections(root: Path) -> list[str]:
    """Find sessions whose settings the role, the database or PG* variables decide."""
    return [
        f"{name_of(path, root)}:{call.lineno} connects past "
        "tallyweir.sinks.postgres.server.connection"
        for path in python_files(root, tests=False)
        if name_of(path, root) not in CONNECTORS
        for call in calls(path)
        if ast.unparse(call.func)
        in {"psycopg.connect", "psycopg.Connection.connect", "Connection.connect"}
    ]


def find_prints(root: Path) -> list[str]:
    """Find output that goes past the command line's own."""
    return [
        f"{name_of(path, root)}:{call.lineno} prints"
        for path in python_files(root, tests=False)
        for call in calls(path)
        if isinstance(call.func, ast.Name) and call.func.id == "print"
    ]


def sql_files(root: Path) -> list[Path]:
    """List every file of SQL, migrations included."""
    return sorted(path for one in _SOURCES for path in (root / one).rglob("*.sql"))


def find_select_stars(root: Path) -> list[str]:
    """Find queries whose columns a migration would change."""
    return [
        f"{name_of(path, root)} selects *"
        for path in sql_files(root)
        if re.search(r"\bSELECT\s+(\w+\.)?\*", path.read_text("utf-8"), re.IGNORECASE)
    ]


def find_unused_sql(root: Path) -> list[str]:
    """Find blocks that no module which loads their file names."""
    modules = [texts(path) for path in python_files(root, tests=False)]
    found = []
    for path in sql_files(root):
        used = set().union(*(words for words in modules if path.name in words))
        blocks = _SQL_BLOCK.findall(path.read_text("utf-8"))
        unused = {f"{name_of(path, root)}: {one}" for one in blocks if one not in used}
        found += sorted(unused)
    return found


def dead_letter_reasons(root: Path) -> set[str]:
    """Our own reason codes; pipelines add those of their rules."""
    marked = {
        call.args[0].value
        for path in python_files(root, tests=False)
        for call in calls(path)
        if callee(call) == "DeadVerdict"
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, str)
    }
    return marked | {str(code) for code in ReasonCode}


def error_codes(root: Path) -> set[str]:
    """Find the codes: first arguments of errors, and what else looks like one."""
    found = set()
    for path in python_files(root, tests=False):
        found |= {text for text in texts(path) if _UPPER_SNAKE.fullmatch(text)}
        for call in calls(path):
            if callee(call).endswith("Error") and call.args:
                first = call.args[0]
                word = first.value if isinstance(first, ast.Constant) else None
                if isinstance(word, str) and _UPPER.fullmatch(word):
                    found.add(word)
    launcher = root / "tallyweir"
    if launcher.exists():
        found |= set(_LAUNCHER_CODE.findall(launcher.read_text("utf-8")))
    found = {code for code in found if not code.startswith(OWN_VARIABLES)}
    return found - NOT_CODES - dead_letter_reasons(root)


def document(root: Path, name: str) -> str:
    """Read a page; nothing if there is none."""
    path = root / "docs" / name
    return path.read_text("utf-8") if path.exists() else ""


def find_undocumented_codes(root: Path) -> list[str]:
    """Find error codes that the on-call page lacks, and rows without a code."""
    documented = set(_TABLE_CODE.findall(document(root, "operations.md")))
    codes = error_codes(root)
    missing = [
        f"docs/operations.md lacks {code}" for code in sorted(codes - documented)
    ]
    gone = [f"nothing raises {code}" for code in sorted(documented - codes)]
    return missing + gone


def find_undocumented_fault_points(root: Path) -> list[str]:
    """Find moments of the protocol that its page does not name."""
    protocol = document(root, "protocol.md")
    return [
        f"docs/protocol.md lacks {point.value}"
        for point in FaultPoint
        if f"`{point.value}`" not in protocol
    ]


def find_untested_fault_points(root: Path) -> list[str]:
    """Find moments of the protocol at which no test makes a driver fail."""
    tests = [path for path in python_files(root) if _is_test(path, root)]
    tested = "\n".join(path.read_text("utf-8") for path in tests if path.stem != _THIS)
    # A test names a point, or goes over all of them.
    everywhere = re.search(r"\bin FaultPoint\b|\blist\(FaultPoint\)", tested)
    return [
        f"no test reaches {point.value}"
        for point in FaultPoint
        if not everywhere
        and f"FaultPoint.{point.name}" not in tested
        and f'"{point.value}"' not in tested
    ]


def markdown_files(root: Path) -> list[Path]:
    """List every page."""
    return sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md")])


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


def find_broken_links(root: Path) -> list[str]:
    """Find links to files and headings that are not there."""
    found = []
    for page in markdown_files(root):
        text = _CODE_FENCE.sub("", page.read_text("utf-8"))
        for link in _LINK.findall(text):
            if re.match(r"[a-z]+:", link):
                continue
            file, _, anchor = link.partition("#")
            target = (page.parent / file).resolve() if file else page
            leads = target.exists()
            if leads and anchor and target.suffix == ".md":
                leads = anchor in anchors(target)
            if not leads:
                found.append(f"{name_of(page, root)} links to {link}")
    return found


def find_mangled_tables(root: Path) -> list[str]:
    """A table has its head at its top, and names each thing once.

    But for the tables of ``docs/proofs``, which programs write.
    """
    found = []
    for path in markdown_files(root):
        rows: list[str] = []
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            rows = [*rows, line] if line.startswith("|") else []
            what = f"{name_of(path, root)}:{number}"
            if len(rows) > _ROW_UNDER_HEAD and set(line) <= set("|-: "):
                found.append(f"{what}: a head in mid-table")
            named = None if "proofs" in path.parts else _ROW_NAME.match(line)
            if named and any(row.startswith(named[0]) for row in rows[:-1]):
                found.append(f"{what}: two rows of {named[1]}")
    return found


def find_forbidden_texts(root: Path) -> list[str]:
    """Find names of hosts and folders that are true of one machine only."""
    # What is hidden is not ours, but for the CI's folder, and much of it is large.
    tops = [top for top in root.iterdir() if top.name[0] != "." or top.name == ".ci"]
    kept = [
        path
        for top in tops
        for path in (top, *top.rglob("*"))
        if path.is_file()
        and not any(
            part.startswith(".") or part == "__pycache__"
            for part in path.relative_to(top).parts
        )
    ]
    found = []
    for path in kept:
        text = path.read_text("utf-8", errors="replace")
        found += [
            f"{name_of(path, root)} holds {word}"
            for word in _FORBIDDEN_TEXTS
            if word in text
        ]
    return found


def tells_kinds(path: Path) -> bool:
    """Tell whether a module or a statement compares kinds of outputs."""
    if path.suffix == ".sql":
        return bool(_KIND_IN_SQL.search(path.read_text("utf-8")))
    for node in ast.walk(parse(path)):
        match node:
            case ast.Compare() if _KIND_COMPARED.search(ast.unparse(node)):
                return True
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, classes]) if (
                _OUTPUT_CLASS.search(ast.unparse(classes))
            ):
                return True
            case ast.MatchClass(cls=named) if _OUTPUT_CLASS.search(ast.unparse(named)):
                return True
    return False


def telling_kinds(root: Path) -> set[str]:
    """Name the modules and statements of the product that compare kinds of outputs."""
    files = [*python_files(root, tests=False), *sql_files(root)]
    return {
        name_of(path, root)
        for path in files
        if "migrations" not in path.parts and tells_kinds(path)
    }


def find_told_kinds(root: Path) -> list[str]:
    """Find code that a new kind of output would have to be added to."""
    return [
        f"{name} compares kinds of outputs instead of asking them"
        for name in sorted(telling_kinds(root) - TELL_KINDS.keys())
    ]


CHECKS: tuple[Callable[[Path], list[str]], ...] = (
    find_shared_names,
    find_gone_modules,
    find_long_modules,
    find_long_functions,
    find_sleeps,
    find_prints,
    find_unpinned_connections,
    find_select_stars,
    find_unused_sql,
    find_undocumented_codes,
    find_undocumented_fault_points,
    find_untested_fault_points,
    find_broken_links,
    find_mangled_tables,
    find_told_kinds,
    find_forbidden_texts,
)
