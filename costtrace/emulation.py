"""Demand x Chip x Scheme -> seconds: float64 work moved to other units of the chip, then the same roofline. No jax.

    T = max(alpha W_mma / P_low, Q' / B, c_q r n_in / P_int, rest) + gamma n_out / P_int

with Q' = Q + (beta - 1) 8 n_in. The third term is the one that the first model forgot: every float64 number that
enters is taken apart on the integer pipe. All of it is an upper bound of a model, not a measurement: scaling factors,
registers and the latency before the first product are not counted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from costtrace import roofline, units
from costtrace.chip import Chip
from costtrace.chipfile import Number
from costtrace.demand import WIDE, Demand, product
from costtrace.errors import UsageError
from costtrace.scheme import NATIVE_TILE, SCHEMES, Handling, Scheme, changed

MODEL_ONLY = "speed-ups and caps are upper bounds of a model, not measurements"
REGRESSION, REACHABLE, NOT_BINDING, NO_GAIN = "regression", "reachable", "not binding", "no gain"
NOTHING, NO_NATIVE, UNKNOWN = "nothing to emulate", "no native float64", "unknown"
VERDICTS = {
    REGRESSION: "slower than native",
    NO_GAIN: "exactly as fast as native",
    REACHABLE: "faster, and conversion is what limits it: the cap can be reached",
    NOT_BINDING: "faster, and something else than conversion limits it",
    NOTHING: "no float64 sums or products",
    NO_NATIVE: "the chip has no float64 rate to compare with",
    UNKNOWN: "a constant of the scheme or a rate of the chip is not known",
}
SUBLANES = 8
INT, HBM, FP64 = "integer.int32", "hbm.bandwidth", ("matrix.float64", "vector.float64")


@dataclass(frozen=True, slots=True)
class Emulation:
    """One kernel, native and emulated. Seconds, None where something that they need is not known.

    terms: matrix, memory, deconstruction, rest (only where there is some) and reconstruction. cap: native over
    deconstruction time, which no emulation of the scheme can beat; None where nothing is converted on the way.
    cap_compute: the same with W / P_fp64 alone as the native time (the note's equation 2).
    """

    demand: Demand
    native_s: float | None
    native_bound: str | None
    terms: dict[str, float | None]
    emulated_s: float | None
    original_s: float | None
    """The first model: no tiles, no deconstruction."""
    binding: str | None
    cap: float | None
    cap_compute: float | None
    missing: tuple[str, ...] = ()

    @property
    def speedup(self) -> float | None:
        return self.native_s / self.emulated_s if self.native_s and self.emulated_s else None

    @property
    def verdict(self) -> str:
        if not self.demand.flops:
            return NOTHING
        if self.emulated_s is None:
            return UNKNOWN
        if self.speedup is None:
            return NO_NATIVE
        if self.speedup <= 1:
            return REGRESSION if self.speedup < 1 else NO_GAIN
        return REACHABLE if self.binding == "deconstruction" else NOT_BINDING

    @property
    def pays(self) -> bool:
        return self.verdict in (REACHABLE, NOT_BINDING, NO_NATIVE)

    @property
    def best_s(self) -> float | None:
        """The faster of native and emulated."""
        return self.emulated_s if self.pays else self.native_s


def native(demand: Demand, chip: Chip) -> roofline.Times:
    """The kernel in float64: products on the matrix unit in whole tiles, or on the vector unit where that is faster."""
    cost, flops = demand.cost, sum(n for d, n in demand.cost.by_dtype.items() if d in WIDE)
    matrix, vector = (chip.value(key) for key in FP64)
    if flops and vector and (not matrix or demand.native_products(NATIVE_TILE) / matrix > flops / vector):
        wide = sum(n for d, n in cost.vector_by_dtype.items() if d in WIDE) + flops
        cost = cost.replace(
            by_dtype={d: n for d, n in cost.by_dtype.items() if d not in WIDE},
            vector_by_dtype={d: n for d, n in cost.vector_by_dtype.items() if d not in WIDE} | {"float64": wide},
        )
    return roofline.times(cost, chip, demand.nbytes)


def emulated(demand: Demand, chip: Chip, scheme: Scheme, handling: Handling = Handling()) -> Emulation:  # noqa: B008
    """The kernel's native and emulated time. Raises UsageError where the chip cannot run the scheme's products."""
    low, hbm, pipe = chip.value(f"matrix.{scheme.dtype}"), chip.value(HBM), chip.value(INT)
    if low is None:
        raise UsageError(
            f"{scheme.name} needs {scheme.dtype} products: {chip.lacks('matrix', scheme.dtype)}; "
            f"{chip.name} runs {', '.join(possible(chip)) or 'no scheme'}"
        )
    missing = [] if hbm else [chip.lacks("hbm")]
    own = native(demand, chip)
    native_s = None if any("float64" in line for line in own.missing) or hbm is None else own.seconds
    work = roofline.times(demand.rest, chip, 0)
    streamed = demand.nbytes + (handling.beta_of(scheme) - 1) * 8 * demand.n_in
    given = scheme.deconstruct if handling.converts else 0.0
    terms: dict[str, float | None] = {
        "matrix": scheme.products * demand.executed(scheme) / low + work.terms.get("compute", 0.0),
        "memory": streamed / hbm if hbm else None,
        "deconstruction": _over(given, handling.recompute * demand.n_in, pipe, "--convert", scheme, chip, missing),
        "reconstruction": _over(scheme.reconstruct, demand.parts(scheme), pipe, "--gamma", scheme, chip, missing),
    }
    if others := [s for term, s in work.terms.items() if term != "compute"]:
        terms["rest"] = max(others)
    missing += work.missing
    taken = None if None in terms.values() else {k: v for k, v in terms.items() if v is not None}
    dec = terms["deconstruction"]
    rate = next((chip.value(key) for key in FP64 if chip.value(key)), None)
    return Emulation(
        demand, native_s, None if native_s is None else own.bound, terms,
        None if taken is None else _total(taken, handling),
        _original(demand, scheme, low, hbm, terms["reconstruction"]),
        None if taken is None else max(taken, key=taken.__getitem__),
        native_s / dec if native_s and dec else None,
        demand.flops / rate / dec if rate and dec else None,
        tuple(dict.fromkeys(missing)),
    )  # fmt: skip


def _over(each: float | None, count: float, rate: float | None, option: str, scheme: Scheme, chip: Chip,
          missing: list[str]) -> float | None:  # fmt: skip
    """`count` times `each` instructions in seconds; None, with a line in `missing`, where one of them is not known."""
    if not count or each == 0:
        return 0.0
    if each is None:
        missing.append(f"{scheme.name}: nobody published this count: give {option}")
    if rate is None:
        missing.append(chip.lacks("integer"))
    return None if each is None or rate is None else each * count / rate


def _total(terms: Mapping[str, float], handling: Handling) -> float:
    serial = ["reconstruction", *(["deconstruction"] if handling.deconstruction == "serial" else [])]
    return max(s for term, s in terms.items() if term not in serial) + sum(terms[term] for term in serial)


def _original(
    demand: Demand, scheme: Scheme, low: float, hbm: float | None, reconstruction: float | None
) -> float | None:
    if hbm is None or reconstruction is None:
        return None
    return max(scheme.products * demand.flops / low, demand.nbytes / hbm) + reconstruction


# -- which scheme


def ceiling(scheme: Scheme, chip: Chip) -> float | None:
    """float64 FLOP/s that the matrix unit alone would allow: P_low / alpha. None where the chip lacks the dtype."""
    low = chip.value(f"matrix.{scheme.dtype}")
    return None if low is None else low / scheme.products


def possible(chip: Chip) -> list[str]:
    """The schemes whose products the chip can run, the one with the highest ceiling first."""
    high = {name: c for name, s in SCHEMES.items() if (c := ceiling(s, chip))}
    return sorted(high, key=high.__getitem__, reverse=True)


def on(scheme: Scheme, chip: Chip) -> Scheme:
    """The scheme with the chip's own tile: a TPU's is 8 rows by the side of its matrix unit, squared."""
    side = chip.value("cores.mxu_side")
    return scheme if side is None else changed(scheme, tile=(SUBLANES, int(side), int(side)))


def best(chip: Chip) -> Scheme:
    """The scheme with the highest ceiling of those whose conversion is known. Raises UsageError where there is none."""
    for name in possible(chip):
        if SCHEMES[name].convert is not None:
            return on(SCHEMES[name], chip)
    raise UsageError(f"{chip.name} has neither int8 nor FP8 products: no scheme runs on it; costtrace chips lists them")


# -- thresholds and the inverse questions


def threshold(chip: Chip, scheme: Scheme) -> float | None:
    """OI*: FLOP per byte below which a kernel that converts all it streams loses to a compute-bound native one:
    c_q r P_fp64 / (8 P_int). None where a number is missing."""
    rate, pipe, each = chip.value(FP64[0]) or chip.value(FP64[1]), chip.value(INT), scheme.deconstruct
    return None if rate is None or pipe is None or each is None else each * rate / (8 * pipe)


@dataclass(frozen=True, slots=True)
class Parity:
    """What would have to hold, all else as it is, for conversion alone to take as long as the native kernel.

    convert, count, integer_per_s: with the native time as it is. fp64_per_s: the native rate below which emulation can
    win. convert_compute: c_q where the native time is W / P_fp64 alone, as the note has it.
    """

    convert: float | None
    count: float | None
    integer_per_s: float | None
    fp64_per_s: float | None
    convert_compute: float | None


def parity(run: Emulation, chip: Chip, scheme: Scheme) -> Parity:
    """Closed forms: the cap falls as c_q and r grow and rises with P_int; that by W / P_fp64 falls as P_fp64 grows."""
    pipe, rate = chip.value(INT), chip.value(FP64[0]) or chip.value(FP64[1])
    cap, compute = run.cap, run.cap_compute
    return Parity(
        _times(scheme.convert, cap), _times(scheme.count, cap), None if not cap or pipe is None else pipe / cap,
        _times(rate, compute), _times(scheme.convert, compute),
    )  # fmt: skip


def _times(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a * b


SIZES = 1 << 24
"""Crossovers are looked for below this size."""


def crossover(made: Callable[[int], Demand], chip: Chip, scheme: Scheme, handling: Handling) -> int | None:
    """The smallest size at which the emulated kernel is faster, by doubling and bisection; None below SIZES."""

    def wins(size: int) -> bool:
        speedup = emulated(made(size), chip, scheme, handling).speedup
        return speedup is not None and speedup > 1

    high = 1
    while not wins(high):
        high *= 2
        if high > SIZES:
            return None
    low = high // 2  # loses, or is 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if wins(middle) else (middle, high)
    return high


def crossovers(chip: Chip, scheme: Scheme, handling: Handling, side: int) -> dict[str, int | None]:
    """The smallest B (right-hand sides), k (side x side results) and n (all three sides alike) that pay."""
    forms: dict[str, Callable[[int], Demand]] = {
        "B": lambda b: product(side, b, side),
        "k": lambda k: product(side, side, k),
        "n": lambda n: product(n, n, n),
    }
    return {name: crossover(made, chip, scheme, handling) for name, made in forms.items()}


# -- numbers other than the chip file's


def with_rates(chip: Chip, scheme: Scheme, fp64: str | None = None, low: str | None = None, integer: str | None = None,
               hbm: str | None = None) -> Chip:  # fmt: skip
    """The chip with the rates that a user gives as text: native float64, the scheme's products, integers, memory."""
    texts = {**dict.fromkeys(FP64, fp64), f"matrix.{scheme.dtype}": low, INT: integer, HBM: hbm}
    given = {key: text for key, text in texts.items() if text is not None}
    return with_numbers(chip, given, "the command line") if given else chip


def with_numbers(chip: Chip, texts: Mapping[str, str], source: str) -> Chip:
    """The chip with some numbers replaced: {key: "1.4 TFLOP/s"}. Raises UsageError for a text not in the key's unit."""
    numbers = dict(chip.numbers)
    for key, text in texts.items():
        unit = "B/s" if key == HBM else "OP/s" if key in (INT, "matrix.int8") else "FLOP/s"
        numbers[key] = Number(key, units.parse(text, unit), unit, text, "S", source, "")
    return dataclasses.replace(chip, numbers=numbers)


@dataclass(frozen=True, slots=True)
class Alternative:
    """What another source says of a number that the verdicts rest on, and the verdicts that it changes.

    flips: (kernel, verdict with the number in use, verdict with this one). scheme: the best one with this number.
    """

    key: str
    used: str
    text: str
    source: str
    scheme: str
    threshold: float | None
    flips: tuple[tuple[str, str, str], ...]


def alternatives(demands: Iterable[Demand], chip: Chip, scheme: Scheme | None, handling: Handling) -> list[Alternative]:
    """Every conflicting number of the chip file, taken instead of the one in use; a rate that the file gives twice (the
    matrix and the vector unit's float64) is changed in both. `scheme` None: the best for the numbers."""
    kernels = list(demands)
    base_scheme = scheme or best(chip)
    base = {d.name: emulated(d, chip, base_scheme, handling).verdict for d in kernels}
    dtypes = {s.dtype for s in SCHEMES.values()} if scheme is None else {scheme.dtype}
    groups = [FP64, *((f"matrix.{d}",) for d in sorted(dtypes)), (INT,), (HBM,)]
    out: dict[tuple[tuple[str, ...], str], Alternative] = {}
    for keys in groups:
        found = [n for key in keys if (n := chip.number(key))]
        for number in found:
            for other in number.conflicts:
                if (keys, other.text) in out:
                    continue
                changed_chip = with_numbers(chip, {n.key: other.text for n in found}, other.source)
                by = scheme or best(changed_chip)
                after = {d.name: emulated(d, changed_chip, by, handling).verdict for d in kernels}
                flips = tuple((name, base[name], after[name]) for name in base if base[name] != after[name])
                out[keys, other.text] = Alternative(number.key, number.text, other.text, other.source, by.name,
                                                    threshold(changed_chip, by), flips)  # fmt: skip
    return list(out.values())


__all__ = ["MODEL_ONLY", "VERDICTS", "Alternative", "Emulation", "Handling", "Parity", "alternatives", "best",
           "ceiling", "changed", "crossovers", "emulated", "native", "on", "parity", "possible", "threshold",
           "with_numbers", "with_rates"]  # fmt: skip
