"""What is installed -> text, json or a table: the answer of `costtrace doctor`."""

from __future__ import annotations

import json
from typing import Any

from costtrace import units
from costtrace.report.document import preamble
from costtrace.report.table import FORMATS, Column, Table

COLUMNS = (Column("name", "what"), Column("version", "version"), Column("state", "state"), Column("command", "get it"))


def document(found: dict[str, Any]) -> dict[str, Any]:
    return {**preamble(), **found}


def printed(doc: dict[str, Any], form: str) -> str:
    if form == "json":
        return json.dumps(doc, indent=2)
    table = Table(COLUMNS, [_row(each) for each in (*doc["packages"], *doc["compilers"])])
    if form != "text":
        return FORMATS[form](table)
    python, on_disk = doc["python"], doc["cache"]
    sizes = ", ".join(
        f"{units.text(on_disk[f'{name}_nbytes'], 'B', 3)} of {name}" for name in ("answers", "environments")
    )
    lines = [
        f"costtrace {doc['costtrace']} at {doc['place']}: {doc['models']} models, {doc['chips']} chips",
        f"Python {python['version']} at {python['executable']}, {python['platform']}",
        f"cache {on_disk['place']}: {on_disk['state']}, {on_disk['mode'] or 'not made yet'}, {sizes}",
        "",
        FORMATS["text"](table),
        "",
        *(f"problem: {text}" for text in doc["problems"]),
    ]
    return "\n".join([*lines, "nothing that commands need is missing"] if not doc["problems"] else lines)


def _row(each: dict[str, Any]) -> list[Any]:
    version = each["version"] if "version" in each else " ".join(f"{k} {v}" for k, v in each["versions"].items())
    return [f"{each['name']}{each.get('bound', '')}", version or "-", each["state"], each["command"] or ""]
