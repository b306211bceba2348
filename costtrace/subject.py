"""The text that names what to compare -> its profiles and figures: "saved.json", "klein", "klein:res=1360x768".

A model's options stand after a colon. `chip` among them is the chip. Tracing happens here; nothing is printed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costtrace import chip as chips
from costtrace import figure, model
from costtrace.core import Note
from costtrace.errors import UsageError
from costtrace.figure import Figures
from costtrace.profiler import profile
from costtrace.summary import Profile

_FORM = re.compile(r"(?P<name>.+?)(?::(?P<options>[\w-]+=.*))?")
DEFAULT_CHIP = "v6e"


@dataclass(frozen=True, slots=True)
class Traced:
    """A model's stages as profiles, (name, calls, profile of one call), and the depth that each is shown at."""

    title: str
    config: dict[str, Any]
    stages: list[tuple[str, int, Profile]]
    depths: dict[str, int | None]


def traced(found: model.Model, config: Any, strict: bool = False) -> Traced:
    """The profiles of a model's stages, with the notes that the model makes of them."""
    some = found.stages(config)
    made = []
    for stage in some:
        fn, args = model.bind(stage)
        one = profile(fn, *args, weights=0, strict=strict)
        one.notes += [Note(kind, "", text) for kind, text in stage.notes]
        made.append((stage.name, stage.calls, one))
    return Traced(found.name, found.shown(config), made, {stage.name: stage.depth for stage in some})


def parsed(text: str) -> tuple[str, dict[str, str]]:
    """("klein", {"res": "512x512"}) of "klein:res=512x512". Raises UsageError for an option without a value."""
    form = _FORM.fullmatch(text)
    if form is None:
        raise UsageError(f"{text!r} names nothing: give a saved JSON file, or a model: klein:res=512x512")
    options: dict[str, str] = {}
    for pair in (form["options"] or "").split(","):
        name, is_pair, value = pair.partition("=")
        if pair and (not is_pair or not value):
            raise UsageError(f"{text}: option {pair!r} has no value: write {form['name']}:NAME=VALUE,NAME=VALUE")
        if pair:
            options[name.replace("-", "_")] = value
    return form["name"], options


def opened(text: str, chip: str | None = None, depth: int | None = None) -> Figures:
    """The figures of a saved file or a model, on the chip that it names, else `chip`, else its own (a model: v6e).

    Raises UsageError and FormatError as figure.read, model.find and Model.configure do.
    """
    name, options = parsed(text)
    on = options.pop("chip", None) or chip
    if name.endswith(".json"):
        if options:
            raise UsageError(f"{text}: a saved file has no options but chip: its program is traced already")
        return figure.read(Path(name), on)
    found = model.find(name)
    made = traced(found, found.configure(**options))
    depths = {stage: depth or usual for stage, usual in made.depths.items()}
    return figure.of_profiles(text, chips.load(on or DEFAULT_CHIP), made.stages, depths)
