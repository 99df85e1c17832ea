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
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError as InvalidBytesError

from tallyweir.schemas.errors import ContractError, raise_faults

_COMPILER_S = 60
_SHOWN = 300
_LISTED = 10


def compile_source(path: Path) -> bytes:
    """Compile a source; it may import the files of its folder and Google's types.

    Returns:
        A serialised ``FileDescriptorSet``.

    Raises:
        ContractError: The compiler refuses it; the error has all that it says.
    """
    # A process of its own: the compiler writes its messages to the standard error.
    command = ["-m", "grpc_tools.protoc", "-I.", "--include_imports"]
    command += ["--descriptor_set_out=/dev/stdout", path.name]
    try:
        done = subprocess.run(
            [sys.executable, "-P", *command],
            cwd=path.parent,
            capture_output=True,
            timeout=_COMPILER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise _malformed(path, f"cannot be compiled ({exc})") from exc
    if done.returncode == 0:
        return done.stdout
    told = done.stderr.decode(errors="replace").splitlines()
    lines = [one for one in told if one.strip() and "warning:" not in one]
    raise_faults([_malformed(path, f"is refused: {one:.{_SHOWN}}") for one in lines])
    raise _malformed(path, f"cannot be compiled (exit code {done.returncode})")


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
        raise _malformed(path, "is not a compiled descriptor set") from exc
    names = [
        name
        for file in files
        for one in file.message_type
        for name in _names_of(one, f"{file.package}." if file.package else "")
    ]
    chosen = _choose(path, message, names)
    for file in files:
        # Only comments and places differ between equal sources.
        file.ClearField("source_code_info")
    written = [base64.b64encode(one.SerializeToString()).decode() for one in files]
    text = json.dumps({"files": written, "message": chosen}, separators=(",", ":"))
    try:
        message_of(text)
    except TypeError as exc:
        raise _malformed(path, f"is not complete: {exc!s:.{_SHOWN}}") from exc
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


def _names_of(message: descriptor_pb2.DescriptorProto, prefix: str) -> Iterator[str]:
    if message.options.map_entry:
        return
    yield f"{prefix}{message.name}"
    for inner in message.nested_type:
        yield from _names_of(inner, f"{prefix}{message.name}.")


def _choose(path: Path, wanted: str, names: list[str]) -> str:
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
        fix=f"Write {path.name}#MESSAGE, with one of {fits or 'its messages'}.",
    )


def _malformed(path: Path, saw: str) -> ContractError:
    return ContractError(
        "CONTRACT_MALFORMED",
        saw=f"{path} {saw}.",
        why="Events cannot be decoded without their contract.",
        fix="Correct the file (Protocol Buffers, Language Guide), or put the files "
        "that it imports beside it.",
    )
