"""Read the file of a contract: the source of messages, or the compiled form of one.

A source is compiled by ``protoc``, which the package ``grpcio-tools`` has. A compiled
file is a ``FileDescriptorSet`` with all imports, as ``protoc --include_imports -o``
writes it.
"""

from __future__ import annotations

import base64
import difflib
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError as InvalidBytesError

from tallyweir.schemas.errors import ContractError, raise_faults

_COMPILER_S = 60
_SHOWN = 300
_LISTED = 10


def compile_source(path: Path, *given: Path, told: Path | None = None) -> bytes:
    """Compile a source; it may import the files of its folder and Google's types.

    Args:
        path: The source.
        given: Compiled files, beside it, that it may import too.
        told: What messages call the source; None for its path.

    Returns:
        A serialised ``FileDescriptorSet``, in which the source comes last.

    Raises:
        ContractError: The compiler refuses it; the error has all that it says.
    """
    # A process of its own: the compiler writes its messages to the standard error.
    command = ["-m", "grpc_tools.protoc", "-I.", "--include_imports"]
    command += [f"--descriptor_set_in={one.name}" for one in given]
    command += ["--descriptor_set_out=/dev/stdout", path.name]
    told = told or path
    try:
        done = subprocess.run(
            [sys.executable, "-P", *command],
            cwd=path.parent,
            capture_output=True,
            timeout=_COMPILER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise malformed(told, f"cannot be compiled ({exc})") from exc
    if done.returncode == 0:
        return done.stdout
    said = done.stderr.decode(errors="replace").splitlines()
    lines = [one for one in said if one.strip() and "warning:" not in one]
    raise_faults([malformed(told, f"is refused: {one:.{_SHOWN}}") for one in lines])
    raise malformed(told, f"cannot be compiled (exit code {done.returncode})")


def read_compiled(content: bytes, path: Path, message: str) -> str:
    """Choose a message of a compiled file.

    Args:
        content: A serialised ``FileDescriptorSet``.
        path: The contract's file, for messages.
        message: The message's name, with or without its package; empty if the
            reference to the contract names none.

    Returns:
        The canonical text, which ``message_of`` takes.

    Raises:
        ContractError: It is no such file, or has no such message, or several.
    """
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(content).file
    except InvalidBytesError as exc:
        raise malformed(path, "is not a compiled descriptor set") from exc
    names = [name for file in files for name in names_of(file)]
    chosen = choose_message(path, message, names, path.name)
    return canonical_text(files, chosen, path)


def canonical_text(
    files: Iterable[descriptor_pb2.FileDescriptorProto],
    message: str,
    path: Path,
    **more: object,
) -> str:
    """Return the text of a message that ``message_of`` takes.

    Args:
        files: The message's file, and those that it imports before it.
        message: Its full name.
        path: What errors call the contract.
        more: What else the text is to hold.

    Raises:
        ContractError: A file lacks one that it imports, or contradicts itself.
    """
    written = []
    for file in files:
        # Only comments and places differ between equal sources.
        file.ClearField("source_code_info")
        written.append(base64.b64encode(file.SerializeToString()).decode())
    document = {"files": written, "message": message, **more}
    text = json.dumps(document, separators=(",", ":"))
    try:
        message_of(text)
    except TypeError as exc:
        raise malformed(path, f"is not complete: {exc!s:.{_SHOWN}}") from exc
    return text


@lru_cache(maxsize=256)
def message_of(text: str) -> Descriptor:
    """Return the message of a canonical text, in a pool of its own.

    Raises:
        TypeError: A file lacks one that it imports, or contradicts itself.
    """
    document = json.loads(text)
    pool = descriptor_pool.DescriptorPool()
    for file in document["files"]:
        pool.AddSerializedFile(base64.b64decode(file))
    found = pool.FindMessageTypeByName(document["message"])
    assert isinstance(found, Descriptor)
    return found


def names_of(file: descriptor_pb2.FileDescriptorProto) -> Iterator[str]:
    """Yield the full names of a file's messages, but for those that maps consist of."""
    prefix = f"{file.package}." if file.package else ""
    for one in file.message_type:
        yield from _names_within(one, prefix)


def _names_within(
    message: descriptor_pb2.DescriptorProto, prefix: str
) -> Iterator[str]:
    if message.options.map_entry:
        return
    yield f"{prefix}{message.name}"
    for inner in message.nested_type:
        yield from _names_within(inner, f"{prefix}{message.name}.")


def choose_message(path: Path, wanted: str, names: list[str], place: str) -> str:
    """Return the full name of the message that a reference names.

    Args:
        path: What errors call the contract.
        wanted: The name, with or without its package; empty if there is none.
        names: The full names that there are.
        place: What stands before ``#`` in a reference.

    Raises:
        ContractError: ``CONTRACT_MESSAGE``: none has that name, or several have.
    """
    if wanted in names:
        return wanted
    found = [one for one in names if one.endswith(f".{wanted}")] if wanted else []
    if len(found) == 1:
        return found[0]
    own = [one for one in names if not one.startswith("google.protobuf.")]
    nearest = difflib.get_close_matches(wanted, own, n=1, cutoff=0.4)
    fits = ", ".join((found or nearest or own)[:_LISTED])
    raise ContractError(
        "CONTRACT_MESSAGE",
        saw=f"{path} has {len(found)} messages {wanted!r:.{_SHOWN}}."
        if wanted
        else f"The reference to {path} names no message.",
        why="Nothing in a payload says which message of the file it is.",
        fix=f"Write {place}#MESSAGE, with one of {fits or 'its messages'}.",
    )


def malformed(path: Path, saw: str) -> ContractError:
    """Return the error that a contract's file is not one."""
    return ContractError(
        "CONTRACT_MALFORMED",
        saw=f"{path} {saw}.",
        why="Events cannot be decoded without their contract.",
        fix="Correct the file (Protocol Buffers, Language Guide), or put the files "
        "that it imports beside it.",
    )
