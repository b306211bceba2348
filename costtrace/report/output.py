"""Documents -> the text that a command prints: FORMATS is every form there is."""

from __future__ import annotations

import json
from collections.abc import Sequence

from costtrace.report import table, text
from costtrace.report.document import GROUPS, Document, several
from costtrace.report.flat import flat
from costtrace.report.side import side_by_side
from costtrace.report.views import ordered

FORMATS = ("text", "json", "csv", "tsv", "md", "latex")


def written(
    documents: Sequence[Document], form: str, *, unit: str = "flop", sort: str | None = None, top: int | None = None,
    verbose: bool = False, colour: bool = False,
) -> str:  # fmt: skip
    """The documents in one of FORMATS; `unit`, `verbose` and `colour` are for readers and change no data."""
    if form == "json":
        return json.dumps(several([_arranged(doc, sort, top) for doc in documents]), indent=2)
    if form == "text":
        if len(documents) == 1:
            return text.page(documents[0], unit=unit, sort=sort, top=top, verbose=verbose, colour=colour)
        return side_by_side(documents, unit=unit, sort=sort, top=top, verbose=verbose)
    return table.FORMATS[form](flat(documents, data=form in table.DATA, unit=unit, sort=sort, top=top))


def _arranged(doc: Document, sort: str | None, top: int | None) -> Document:
    if sort is None and top is None:
        return doc
    stages = []
    for stage in doc["stages"]:
        kept, rest = ordered(doc, stage, sort, top)
        by_key = {row[GROUPS[doc["by"]]]: row for row in stage["rows"]}
        stages.append(stage | {"rows": [by_key[row[GROUPS[doc["by"]]]] for row in kept], "rows_left_out": len(rest)})
    return doc | {"stages": stages}
