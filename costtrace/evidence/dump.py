"""A user's own dump of an HLO module, text or proto, lowered or optimized, as a module to read. The proto goes through
jaxlib, the one private door here."""

from __future__ import annotations

from pathlib import Path

from costtrace.chip import Chip
from costtrace.errors import FormatError, PrivateDoorError, UsageError
from costtrace.evidence.compiled import Compiled
from costtrace.evidence.compiled import compiled as by_kernel
from costtrace.target.compiler import Answer
from costtrace.target.hlo import Module, parsed

SUFFIXES = (".hlo", ".txt", ".pb")


def read(path: Path) -> Module:
    """The module in a file. Raises UsageError where there is none, FormatError where it is no HLO module."""
    try:
        data = path.read_bytes()
    except OSError as e:
        raise UsageError(
            f"{path}: {e.strerror}: give the path of an HLO dump (XLA_FLAGS=--xla_dump_to=FOLDER)"
        ) from None
    try:
        if data[:1] == b"\n" or b"\0" in data[:4096]:
            return parsed(text_of(data, path))
        return parsed(data.decode())
    except UnicodeDecodeError:
        raise FormatError(f"{path} is neither HLO text nor an HLO proto: dump it with --xla_dump_hlo_as_text") from None
    except FormatError as e:
        raise FormatError(f"{path}: {e}") from None


def answer(path: Path, chip: Chip) -> Answer:
    """The module as a compiler's answer for `chip`: its estimates where the text has some, else rooflines."""
    module = read(path)
    mesh = {"devices": module.partitions} if module.partitions > 1 else {}
    return Answer(chip, "", 0.0, {}, {}, "", False, mesh, _module=module)


def compiled(path: Path, chip: Chip) -> Compiled:
    """What `chip` makes of the module in a file. Raises FormatError where what it says does not hang together."""
    try:
        return by_kernel(answer(path, chip))
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, AssertionError, RecursionError) as e:
        raise FormatError(
            f"{path}: the module cannot be followed ({type(e).__name__}: {e}): was it cut or edited? If it is as XLA "
            "wrote it, this is a bug of costtrace: COSTTRACE_TRACEBACK=1 shows where"
        ) from e


def text_of(data: bytes, path: Path) -> str:
    """The text of an HloModuleProto, or of the HloProto that XLA dumps, whose first field is one."""
    try:
        from jaxlib._hlo import HloModule
    except ImportError:
        raise PrivateDoorError(
            "jaxlib._hlo.HloModule is not in this jaxlib: an HLO proto cannot be read; dump the module as text"
        ) from None
    for some in (data, _first_field(data)):
        try:
            module = HloModule.from_serialized_hlo_module_proto(some)
        except (RuntimeError, ValueError):
            continue
        if module.computations():
            return str(module.to_string())
    raise FormatError(f"{path} is no HLO proto that this jaxlib reads: dump it with --xla_dump_hlo_as_text")


def _first_field(data: bytes) -> bytes:
    """The bytes of a message's first field: a tag, a length of seven bits a byte, and so many bytes."""
    length = shift = 0
    at = 1
    while at < len(data):
        length |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            break
    return data[at : at + length]
