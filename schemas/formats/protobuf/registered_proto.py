"""Read a schema of a registry: a source, or a descriptor in Base64, and its imports.

Registries hand out what a producer has registered. Those of some languages register
sources, those of others what the compiler has made of them.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError as InvalidBytesError

from tallyweir.schemas.formats.protobuf.message_indexes import Indexes, list_messages
from tallyweir.schemas.formats.protobuf.proto_file import (
    canonical_text,
    choose_message,
    compile_source,
    malformed,
    names_of,
)
from tallyweir.sinks.protocol.registered_schema import RegisteredSchema

#: The name of the schema's own file, which nothing imports.
_OWN = "registered.proto"
_GIVEN = "given.pb"
_OF_LIBRARY = re.compile(r"google/protobuf/([a-z_]+)\.proto")


def read_message(schema: RegisteredSchema, wanted: str) -> str:
    """Choose a message of a schema.

    Args:
        schema: A schema of the kind ``PROTOBUF``.
        wanted: The message, with or without its package; empty for the only one that
            is not inside another.

    Returns:
        The canonical text, which ``message_of`` and ``messages_of`` take.

    Raises:
        ContractError: It is no such schema, or has no such message, or several.
    """
    path = Path(f"schema {schema.schema_id} of the registry")
    *_, own = files = _files(schema.text, schema.references, path)
    outermost = [name for indexes, name in list_messages(own) if len(indexes) == 1]
    if not wanted and len(outermost) == 1:
        (wanted,) = outermost
    chosen = choose_message(path, wanted, list(names_of(own)), "schema: registry")
    return canonical_text(files, chosen, path, messages=[*list_messages(own)])


def with_messages_of(text: str, writer: str) -> str:
    """Return the text of a reader for payloads whose indexes are those of a writer."""
    messages = json.loads(writer)["messages"]
    document = {**json.loads(text), "messages": messages}
    return json.dumps(document, separators=(",", ":"))


@lru_cache(maxsize=256)
def messages_of(text: str) -> Mapping[Indexes, str]:
    """Return the full names of a schema's messages by their indexes."""
    return {tuple(one): name for one, name in json.loads(text)["messages"]}


@lru_cache(maxsize=256)
def _files(
    text: str, references: tuple[tuple[str, str], ...], path: Path
) -> tuple[FileDescriptorProto, ...]:
    """Return the files that a schema consists of; its own is the last."""
    texts = {**dict(references), _OWN: text}
    read = {name: _descriptor(one, name) for name, one in texts.items()}
    files = {name: one for name, one in read.items() if one is not None}
    if len(files) == len(texts):
        return tuple(_with_imports(_OWN, files, set()))
    sources = {name: one for name, one in texts.items() if name not in files}
    if _OWN in files:
        raise malformed(path, f"is compiled, and {', '.join(sources)} are sources")
    with TemporaryDirectory() as folder:
        given = Path(folder) / _GIVEN
        seen: set[str] = set()
        imports = [one for name in files for one in _with_imports(name, files, seen)]
        given.write_bytes(FileDescriptorSet(file=imports).SerializeToString())
        for name, source in sources.items():
            _write(Path(folder), name, source, path)
        compiled = compile_source(
            Path(folder) / _OWN, *([given] if imports else []), told=path
        )
    return tuple(FileDescriptorSet.FromString(compiled).file)


def _descriptor(text: str, name: str) -> FileDescriptorProto | None:
    """Read a descriptor; None if the text is something else, such as a source."""
    try:
        found = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, InvalidBytesError, ValueError):
        return None
    # Others import it by the name that the registry knows it by.
    found.name = name
    return found


def _with_imports(
    name: str, files: Mapping[str, FileDescriptorProto], seen: set[str]
) -> Iterator[FileDescriptorProto]:
    """Yield a file behind those that it imports, each once.

    An import that is not there is left out; building the files then fails.
    """
    if name in seen:
        return
    seen.add(name)
    file = files.get(name) or _of_library(name)
    if file is not None:
        for one in file.dependency:
            yield from _with_imports(one, files, seen)
        yield file


def _of_library(name: str) -> FileDescriptorProto | None:
    found = _OF_LIBRARY.fullmatch(name)
    if found is None:
        return None
    try:
        module = import_module(f"google.protobuf.{found[1]}_pb2")
    except ImportError:
        return None
    file = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    return file


def _write(folder: Path, name: str, source: str, path: Path) -> None:
    place = PurePosixPath(name)
    try:
        if place.is_absolute() or ".." in place.parts:
            raise ValueError(name)  # noqa: TRY301 - it is told as the others are
        file = folder / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")
    except (OSError, ValueError) as exc:
        raise malformed(path, f"refers to {name!r:.100}, which is no file") from exc
