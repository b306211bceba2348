"""The locations of an MLIR text: those of inlined operations, which name call and callee, made one name each."""

from __future__ import annotations

import functools
import re

from costtrace.target.opname import joined

_DEFINITION = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_CALL = re.compile(r"callsite\((#loc\d*) at (#loc\d*)\)$")
_NAME = re.compile(r'"((?:[^"\\]|\\.)*)"(?:\(#loc\d*\))?$')


def flat(text: str) -> str:
    """The same module; 'neg' at the call 'jit(f)/up/jit(silu)' is 'jit(f)/up/jit(silu)/neg'. Lines are lost."""
    places = dict(_DEFINITION.findall(text))

    @functools.cache
    def name(place: str) -> str:
        """'' of a place in a file, or of none."""
        said = places.get(place, "")
        if call := _CALL.match(said):
            callee, caller = call.groups()
            return joined(name(caller), name(callee))
        found = _NAME.match(said)
        return found[1] if found else ""  # as written, escapes and all

    def line(found: re.Match[str]) -> str:
        said = name(found[1])
        return f'{found[1]} = loc("{said}")' if said else f"{found[1]} = loc(unknown)"

    return _DEFINITION.sub(line, text)
