"""docs/primitives.md, made of the tables: every primitive, what prices it, what that was held against, its test rows.

python tests/primitives.py          # writes the page; a test holds it current
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import collectives
import needs
import rule_rows
import rule_rows_algebra
import rule_rows_machine
from flow_rows import FLOW_ROWS, UNTRIED
from statements_special import ELEMENTWISE, PAIRED

from costtrace.rules import FLOW, OTHER_VERSIONS, RULES, UNPRICED, UNREACHABLE

PAGE = Path(__file__).parent.parent / "docs" / "primitives.md"
OURS = {name: rule for name, rule in RULES.items() if rule.owner.startswith("costtrace.")}
ROWS = Counter(
    row.primitive for rows in (rule_rows.ROWS, rule_rows_algebra.ROWS, rule_rows_machine.ROWS) for row in rows
)
XLA = {*ELEMENTWISE, *PAIRED, "reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "dot_general",
       "conv_general_dilated"}  # fmt: skip
LOOPED = ("scan", "while", "cond", "jit", "remat2", "pallas_call", "custom_jvp_call", "custom_vjp_call")

HEAD = """# Primitives

Made by `python tests/primitives.py`; do not edit. Every primitive that is alive in a supported jax ({count} of them)
stands here once: a test lists the live ones and refuses one without an entry, and an entry without a live one.

A formula is one execution's work; bytes have one definition for all ([conventions.md](conventions.md)). Beside its rows
of arithmetic (`tests/rule_rows*.py`, `tests/flow_rows.py`) a price is held against an oracle that shares no code
with it, on random programs (`tests/program_laws.py`), where there is one:

- **XLA**: its cost analysis of the lowered program, FLOP by FLOP;
- **elements**: an interpreter that follows every element says what has to be read and written;
- **ring**: the collective played out message by message;
- **unrolled**: the same program without the loop, the call or the kernel.
"""


def oracle(name: str) -> str:
    known = {
        "XLA": name in XLA,
        "elements": name in {*needs.VIEWS, *needs.MOVES, *needs.INDEXED} or name in XLA,
        "ring": name.removesuffix("_invariant") in collectives.PLAYED,
        "unrolled": name in LOOPED,
    }
    return ", ".join(each for each, holds in known.items() if holds)


def formula(name: str) -> str:
    """The first sentence of the rule's docstring."""
    text = " ".join((OURS[name].formula.__doc__ or "").split())
    first = re.split(r"(?<=[^.\d])\. ", text)[0].rstrip(".")
    return first.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


def only(name: str) -> str:
    return OTHER_VERSIONS.get(name, "")


def table(heads: list[str], rows: list[list[str]]) -> list[str]:
    return ["", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads),
            *("| " + " | ".join(row) + " |" for row in rows), ""]  # fmt: skip


def page() -> str:
    count = len(OURS) + len(FLOW) + len(UNPRICED) + len(UNREACHABLE)
    out = [HEAD.format(count=count)]
    families = sorted({rule.owner.rpartition(".")[2] for rule in OURS.values()})
    for family in families:
        names = sorted(name for name, rule in OURS.items() if rule.owner.endswith(f".{family}"))
        out += [f"## {family}.py"]
        out += table(
            ["primitive", "formula", "status", "oracle", "rows", "only jax"],
            [[f"`{n}`", formula(n), OURS[n].status, oracle(n), str(ROWS[n]), only(n)] for n in names],
        )
    out += ["## Programs inside programs", "", "Opened while tracing; what they hold is priced."]
    out += table(
        ["primitive", "is", "oracle", "rows", "only jax"],
        [
            [f"`{n}`", FLOW[n], oracle(n), "1" if n in FLOW_ROWS else f"none: {UNTRIED[n]}", only(n)]
            for n in sorted(FLOW)
        ],
    )
    out += ["## Without a price", "", "Their bytes are counted, their status is unknown, and a note says so."]
    out += table(["primitive", "why", "only jax"], [[f"`{n}`", UNPRICED[n], only(n)] for n in sorted(UNPRICED)])
    out += ["## In no user's program"]
    out += table(["primitive", "why", "only jax"], [[f"`{n}`", UNREACHABLE[n], only(n)] for n in sorted(UNREACHABLE)])
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
