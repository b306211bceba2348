"""SCHEMAS: the JSON Schema (2020-12) of every document that costtrace writes, built from the same tables as they are.

Keys that a schema requires stay; others may be added, so no object is closed. Base units: FLOP, byte, second.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from costtrace import figure, version
from costtrace.core import COUNTS, EXACT, MODELLED, TABLES, UNKNOWN
from costtrace.coverage import WORK
from costtrace.diff import ADDED, CHANGED, REMOVED, SHOWN
from costtrace.report.document import GROUPS
from costtrace.roofline import TERMS
from costtrace.summary import SCHEMA as PROFILE

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
TEXT: Schema = {"type": "string"}
TRUTH: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
SECONDS: Schema = {"type": "number", "minimum": 0}
NUMBER: Schema = {"type": "number"}
STATUS: Schema = {"enum": [EXACT, MODELLED, UNKNOWN]}
CONFIG: Schema = {"type": "object", "description": "option -> value, as given or as it follows"}
MAYBE = {"description": "null where it is not known or not defined; never 0 for that"}


def _or_null(schema: Schema) -> Schema:
    if "enum" in schema:
        return {"enum": [*schema["enum"], None]}
    return schema | {"type": [schema["type"], "null"]} | MAYBE


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _table(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def _object(needed: Schema, more: Schema | None = None) -> Schema:
    """An object with the keys `needed`, and `more` that may be there."""
    return {"type": "object", "properties": needed | (more or {}), "required": list(needed)}


def _each(names: Iterable[str], schema: Schema) -> Schema:
    return dict.fromkeys(names, schema)


BOUND = _or_null({"enum": list(TERMS)})
CUTS = ("bytes_fused", "bytes_scoped")
COST = _object(
    {
        **{name: _or_null(COUNT) if name in (*CUTS, *WORK) else COUNT for name in ("flops", *COUNTS)},
        **_each(TABLES, _table(COUNT)),
    }
)
TIMES = {
    **_each(("floor_s", "pessimistic_s", "unfused_s"), _or_null(SECONDS)),
    **_each(("bound_fused", "bound_scoped", "bound_unfused"), BOUND),
}
USEFUL = {"useful_flops": COUNT, "useful_floor_s": _or_null(SECONDS)}
ROW = {
    "type": "object",
    "properties": {**_each(dict.fromkeys(GROUPS.values()), TEXT), "status": STATUS, "instances": COUNT,
                   "cost": {"$ref": "#/$defs/cost"}, **TIMES, "share": _or_null(SECONDS), **USEFUL},
    "required": ["status", "instances", "cost", *TIMES, "share"],
    "oneOf": [{"required": [key]} for key in dict.fromkeys(GROUPS.values())],
}  # fmt: skip
STAGE = _object(
    {
        "name": TEXT,
        "calls": COUNT,
        "parameters": COUNT,
        "status": STATUS,
        "total": {"$ref": "#/$defs/cost"},
        "peak_bytes": COUNT,
        "peak": _object(
            {
                "scope": TEXT,
                "primitive": TEXT,
                "alive": _list(_object({"value": TEXT, "bytes": COUNT})),
                "tiled_bytes": COUNT,
            }
        ),
        **TIMES,
        "rows": _list(ROW),
    },
    {**USEFUL, "rows_left_out": COUNT},
)
HEAD = {"schema": {"const": version.DOCUMENT}, "costtrace": TEXT}
NOTE = _object({"kind": TEXT, "stage": TEXT, "scope": TEXT, "text": TEXT})
RATE = _object({"key": TEXT, "text": TEXT, "value": NUMBER, "unit": TEXT, "tag": {"enum": ["M", "D", "S"]},
                "source": TEXT, "date": TEXT})  # fmt: skip
THROUGHPUT = _object({"stage": TEXT, "count": COUNT, "unit": TEXT, "per_s": _or_null(NUMBER)})
TURNING = _object(
    {**_each(("stage", "option", "row", "text"), TEXT), **_each(("whole", "row_at"), _or_null(COUNT)), "most": COUNT,
     "intensity": NUMBER, "ridge": _or_null(NUMBER)}
)  # fmt: skip
MODEL = _object(
    {
        **HEAD,
        "model": TEXT,
        "config": CONFIG,
        "chip": TEXT,
        "chip_title": TEXT,
        "by": {"enum": list(GROUPS)},
        "efficiency": TRUTH,
        "stages": _list(STAGE),
        "total": {"$ref": "#/$defs/cost"},
        **_each(("floor_s", "pessimistic_s"), _or_null(SECONDS)),
        "status": STATUS,
        "coverage": _object(_each((EXACT, MODELLED, UNKNOWN), _or_null(SECONDS))),
        "ops": _object(_each((EXACT, MODELLED, UNKNOWN), COUNT)),
        "numbers": _list(RATE),
        "notes": _list(NOTE),
    },
    {**USEFUL, "training": {"type": "object"}, "throughput": _list(THROUGHPUT), "turning": _list(TURNING)},
)
RUNS = _object({**HEAD, "runs": _list({"$ref": "#/$defs/model"})})
PAIR = _object(_each(("before", "after"), _or_null(NUMBER)))
SIDE = _object({"title": TEXT, "chip": TEXT, "status": STATUS, "missing": _list(TEXT)})
QUANTITY = {"enum": list(figure.QUANTITIES)}
DIFF = _object(
    {
        **HEAD,
        "before": SIDE,
        "after": SIDE,
        "quantity": QUANTITY,
        "total": _table(PAIR),
        "rows": _list(
            _object(
                {"stage": TEXT, "scope": TEXT, "verdict": {"enum": [ADDED, REMOVED, CHANGED]}, **_each(SHOWN, PAIR)}
            )
        ),
        "same": COUNT,
    }
)
CHECK = _object(
    {
        **HEAD,
        "passed": TRUTH,
        "rows": _list(
            _object(
                {
                    "program": TEXT,
                    "chip": TEXT,
                    "stage": TEXT,
                    "scope": TEXT,
                    "quantity": QUANTITY,
                    "unit": TEXT,
                    "sign": {"enum": ["<=", "==", ">="]},
                    "limit": NUMBER,
                    "value": _or_null(NUMBER),
                    "passed": _or_null(TRUTH),
                    "why": TEXT,
                }
            )
        ),
    }
)

POINT = _object(
    {
        "config": CONFIG,
        "chip": TEXT,
        "chips": COUNT,
        "strategy": _or_null(TEXT),
        **_each(("flops", "bytes_fused", "peak_bytes"), _or_null(COUNT)),
        "fits": _or_null(TRUTH),
        **_each(("floor_s", "pessimistic_s", "predicted_s", "usd"), _or_null(SECONDS)),
        "compiled_peak_bytes": _or_null(COUNT),
        "derived": _or_null(CONFIG),
        "stages": _or_null(_table(COUNT)),
        "status": _or_null(STATUS),
        "missing": _list(TEXT),
        "error": TEXT,
    }
)
SWEEP = _object({**HEAD, "model": TEXT, "rows": _list(POINT)})

ADVICE = _object(
    {
        **HEAD,
        "model": TEXT,
        "config": CONFIG,
        "chip": TEXT,
        "chip_title": TEXT,
        "chips": COUNT,
        **_each(("serial_s", "floor_s"), SECONDS),
        "predicted_s": _or_null(SECONDS),
        "missing": _list(TEXT),
        "rows": _list(
            _object(
                {
                    **_each(("kind", "scope", "what", "costs", "verdict"), TEXT),
                    **_each(("before_s", "after_s"), SECONDS),
                    **_each(("saved_s", "share"), NUMBER),
                    **_each(("floor_saved_s", "predicted_saved_s"), _or_null(NUMBER)),
                    "holds": TRUTH,
                }
            )
        ),
    }
)


DEVICE = _object({**_each(("platform", "kind", "jax", "jaxlib", "python"), TEXT), **_each(("count", "cores"), COUNT)})
LOOP = _object({"steps": COUNT, **_each(("scanned_s", "separate_s", "waited_s", "scanned_spread", "separate_spread",
                                         "waited_spread", "dispatch_s"), _or_null(NUMBER)), "why": TEXT})  # fmt: skip
PART = _object({"scope": TEXT, **_each(("runs", "programs"), COUNT), "finite": TRUTH,
                **_each(("compile_s", "measured_s", "spread"), SECONDS),
                "samples_s": _list(_list(SECONDS))})  # fmt: skip
MEASURED = _object(
    {
        **HEAD,
        "model": TEXT,
        "config": CONFIG,
        "device": DEVICE,
        "date": TEXT,
        "stages": _list(
            _object(
                {
                    "name": TEXT,
                    **_each(("calls", "weight_bytes", "peak_bytes"), COUNT),
                    **_each(("compile_s", "staging_s", "measured_s", "first_s", "spread"), SECONDS),
                    "staging_bytes_per_s": _or_null(SECONDS),
                    "samples_s": _list(SECONDS),
                    "finite": TRUTH,
                    "peak_by": {"enum": ["device", "compiled"]},
                    "loop": {"anyOf": [{"type": "null"}, LOOP]},
                    "parts": _list(PART),
                    "left_out": _list(TEXT),
                }
            )
        ),
    }
)
CALIBRATED = _object(
    {
        **HEAD,
        **_each(("file", "samples", "device", "kind", "versions"), TEXT),
        **_each(("devices", "timed_again"), COUNT),
        **_each(("spread_median", "spread_most", "drift"), NUMBER),
        "numbers": _list(_object({**_each(("key", "unit", "text", "tag", "convention"), TEXT), "value": NUMBER})),
        "grids": _list(
            _object(
                {
                    **_each(("kind", "dtype", "unit"), TEXT),
                    "points": COUNT,
                    **_each(("best_per_s", "worst_per_s"), NUMBER),
                    **_each(("best_at", "worst_at"), _list(COUNT)),
                }
            )
        ),
        "farthest_from_numpy": _object({"kind": TEXT, "error": NUMBER}),
    }
)
COMPARED = _object(
    {
        **HEAD,
        "model": TEXT,
        "config": CONFIG,
        "chip": TEXT,
        "datasheet": _or_null(TEXT),
        "measured": _list(TEXT),
        "rows": _list(
            _object(
                {
                    **_each(("stage", "scope", "below", "what"), TEXT),
                    "measured_s": SECONDS,
                    "runs_s": _list(SECONDS),
                    **_each(("floor_s", "floor_measured_rates_s", "shape_aware_s", "compiled_s"), _or_null(SECONDS)),
                    "ratio": _or_null(SECONDS),
                    "gap": _table(_or_null(NUMBER)),
                }
            )
        ),
        "notes": _list(TEXT),
        **_each((f"mean_error_{key}" for key in ("floor", "floor_measured_rates", "shape_aware", "compiled")),
                _or_null(SECONDS)),
    }
)  # fmt: skip


def _tuple(*items: Schema) -> Schema:
    return {"type": "array", "prefixItems": list(items), "minItems": len(items), "maxItems": len(items)}


_COST = {"$ref": "#/$defs/cost"}
SAVED = _object(
    {
        "schema": {"const": PROFILE},
        "name": TEXT,
        "status": STATUS,
        "parameters": COUNT,
        "useful_flops": COUNT,
        "total": _COST,
        "notes": _list(_tuple(TEXT, TEXT, TEXT)),
        "peak": _tuple(
            COUNT,
            TEXT,
            TEXT,
            _list(_tuple(TEXT, COUNT)),
            _list(_tuple(_list(COUNT), COUNT, COUNT)),
            _list(_tuple(TEXT, COUNT)),
            _list(_tuple(TEXT, COUNT)),
        ),
        "largest": _table(_tuple(_list(COUNT), TEXT, COUNT)),
        "records": _list(_tuple(TEXT, TEXT, TEXT, TEXT, STATUS, COUNT, COUNT, _COST)),
        "traffic": _list(_tuple(TEXT, TEXT, COUNT)),
        "lines": _table(_COST),
        "scopes": _table(_COST),
        "instances": _table(COUNT),
        "weights": _table(_COST),
    }
)


def _whole(name: str, title: str, body: Schema) -> Schema:
    return {"$schema": DIALECT, "title": f"costtrace {name}", "description": title, **body,
            "$defs": {"cost": COST, "model": MODEL}}  # fmt: skip


SCHEMAS: dict[str, Schema] = {
    "model": _whole("model", "costtrace MODEL or trace, --format json: one configuration on one chip", MODEL),
    "runs": _whole("runs", "the same for several configurations or chips, side by side", RUNS),
    "profile": _whole("profile", "Profile.to_json: everything that is known of one function, without a chip", SAVED),
    "diff": _whole("diff", "costtrace diff, --format json", DIFF),
    "check": _whole("check", "costtrace check, --format json", CHECK),
    "advise": _whole("advise", "costtrace advise, --format json: what pays first", ADVICE),
    "sweep": _whole("sweep", "costtrace sweep, --format json: null in the figures of a failed point", SWEEP),
    "calibrate": _whole("calibrate", "costtrace calibrate, --format json: the rates of its file", CALIBRATED),
    "measure": _whole(
        "measure", "costtrace measure, --out or --format json: seconds of one call of each stage", MEASURED
    ),
    "compare": _whole(
        "compare", "costtrace compare, --format json: measured beside modelled, seconds of one call", COMPARED
    ),
}
"""Name of a document -> its schema."""
