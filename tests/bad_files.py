"""Files that are wrong, each in one way, for tests/test_bad_input.py; made from the right form where there is one."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import authored
import pytest

from costtrace import chip

HEADER = {"w": {"dtype": "BF16", "shape": [8, 16], "data_offsets": [0, 256]}}
BUDGET = 'program = "small.py"\n[[limit]]\nscope = ""\nflops = "1 GFLOP"\n'
HLO = """HloModule tiny, entry_computation_layout={(f32[4,8])->f32[4,8]}

ENTRY main {
  x = f32[4,8]{1,0} parameter(0)
  ROOT y = f32[4,8]{1,0} add(x, x)
}
"""
EXITS = "import sys\nsys.exit(3)\n"
PYTHON = {
    "exits": EXITS,
    "exits_later": "import sys\ndef f(x):\n    sys.exit('bye')\ndef args():\n    sys.exit()\n",
    "model_exits": authored.MODEL.replace("lambda c: [", "lambda c: [exit(4)] or ["),
    "recursing": "def f(x):\n    return f(x)\n",
    "multiline": "def f(x):\n    raise ValueError('one\\ntwo\\n\\nthree')\n",
    "empty": "",
    "nothing": "def f():\n    pass\n",
    "text": "def f(x):\n    return 'words'\n",
    "asks": "def f(x):\n    return x if x.sum() > 0 else -x\n",
    "fails": authored.MODEL.replace("return x @", "x.nothing\n    return x @"),
    "no_function": authored.MODEL.replace('"run", forward', '"run", 3'),
    "interrupts": "raise KeyboardInterrupt\n",
    "claims_none": "x = 1\n",
    "claims_exits": EXITS,
    "claims_raise": "1 / 0\n",
    "claims_measure": "from costtrace.claim import Claim, Claims\n"
    "CLAIMS = Claims([Claim('flopz', 'run', '', '1', source='x')])\n",
    "claims_formula": "from costtrace.claim import Claim, Claims\n"
    "CLAIMS = Claims([Claim('product_flops', 'run', '', '__import__(\"os\")', source='x')])\n",
    "claims_power": "from costtrace.claim import Claim, Claims\n"
    "CLAIMS = Claims([Claim('product_flops', 'run', '', '9**9**9**9', source='x')])\n",
    "claims_deep": "from costtrace.claim import Claim, Claims\n"
    "CLAIMS = Claims([Claim('product_flops', 'run', '', '+'.join(['1'] * 100000), source='x')])\n",
    "claims_stage": "from costtrace.claim import Claim, Claims\n"
    "CLAIMS = Claims([Claim('product_flops', 'walk', '', '1', source='x')])\n",
}  # fmt: skip


def safetensors(header: object, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text


def binary() -> dict[str, bytes]:
    v6e = (chip.folder() / "v6e.toml").read_bytes()
    entry = HEADER["w"]
    return {
        "latin.py": "# caf\xe9\nx = 'caf\xe9'\n".encode("latin-1"),
        "nul.py": b"x = 1\0\n",
        "latin_model.py": authored.MODEL.replace("tokens", "t\xf6kens").encode("latin-1"),
        "empty.toml": b"",
        "binary.toml": bytes(range(256)),
        "latin.toml": v6e.replace(b"Google", "G\xf6\xf6gle".encode("latin-1")),
        "cut.toml": v6e[: len(v6e) // 2].rpartition(b"=")[0],
        "huge.toml": v6e.replace(b"918 TFLOP/s", b"1e999 TFLOP/s"),
        "nan.toml": v6e.replace(b"918 TFLOP/s", b"nan TFLOP/s"),
        "minus.toml": v6e.replace(b"918 TFLOP/s", b"-918 TFLOP/s"),
        "unit.toml": v6e.replace(b"918 TFLOP/s", b"918 TB/s"),
        "nested.toml": b"a = " + b"[" * 5000 + b"]" * 5000,
        "budget_none.toml": b'program = "small.py"\n',
        "budget_key.toml": b'program = "small.py"\nlimits = 3\nlimit = []\n',
        "budget_unit.toml": BUDGET.replace("1 GFLOP", "1 GB").encode(),
        "budget_word.toml": BUDGET.replace("1 GFLOP", "few").encode(),
        "budget_scope.toml": BUDGET.replace('scope = ""', 'scope = "nowhere"').encode(),
        "budget_quantity.toml": BUDGET.replace("flops", "flopz").encode(),
        "budget_program.toml": BUDGET.replace("small.py", "klien").encode(),
        "budget_nameless.toml": BUDGET.partition("\n")[2].encode(),
        "budget_chip.toml": b'chip = "v99"\n' + BUDGET.encode(),
        "budget_latin.toml": BUDGET.replace("small", "sm\xe4ll").encode("latin-1"),
        "budget_list.toml": BUDGET.replace('"1 GFLOP"', "[1]").encode(),
        "empty.json": b"",
        "binary.json": bytes(range(256)),
        "list.json": b"[1, 2]",
        "schema.json": b'{"schema": "costtrace.profile/99"}',
        "bare.json": b'{"schema": "costtrace.profile/1"}',
        "bare_document.json": b'{"schema": "costtrace/1"}',
        "nested.json": b"[" * 200_000,
        "digits.json": b'{"schema": ' + b"9" * 5000 + b"}",
        "empty.safetensors": b"",
        "short.safetensors": b"\x08\0\0\0",
        "long.safetensors": safetensors(b"{}", 2**63),
        "past.safetensors": safetensors(b"{}", 5000),
        "words.safetensors": safetensors(b"not json"),
        "latin.safetensors": safetensors(b'{"\xe9": 1}'),
        "list.safetensors": safetensors([1]),
        "shape.safetensors": safetensors({"w": {**entry, "shape": ["x"]}}),
        "minus.safetensors": safetensors({"w": {**entry, "shape": [-8, 16]}}),
        "huge.safetensors": safetensors({"w": {**entry, "shape": [10**30, 16]}}),
        "dtype.safetensors": safetensors({"w": {**entry, "dtype": "F99"}}),
        "dtype_list.safetensors": safetensors({"w": {**entry, "dtype": [1]}}),
        "clash.safetensors": safetensors({"a": entry, "a/b": entry}),
        "good.safetensors": safetensors(HEADER),
        "absent.safetensors.index.json": json.dumps({"weight_map": {"w": "absent.safetensors"}}).encode(),
        "up.safetensors.index.json": json.dumps({"weight_map": {"w": "../../etc/passwd"}}).encode(),
        "number.safetensors.index.json": json.dumps({"weight_map": {"w": 3}}).encode(),
        "listed.safetensors.index.json": json.dumps({"weight_map": ["w"]}).encode(),
        "other.safetensors.index.json": json.dumps({"weight_map": {"v": "good.safetensors"}}).encode(),
        "map_list.json": b"[]",
        "map_number.json": b'{"w": 3}',
        "map_absent.json": b'{"w": "nowhere"}',
        "map_weight.json": b'{"nowhere": "w"}',
        "empty.hlo": b"",
        "words.hlo": b"these are words\n",
        "binary.hlo": bytes(range(1, 256)),
        "cut.hlo": HLO[: len(HLO) - 30].encode(),
        "shape.hlo": HLO.replace("f32[4,8]{1,0} add", "f32[4,x]{1,0} add").encode(),
        "operand.hlo": HLO.replace("add(x, x)", "add(x, z)").encode(),
        "entry.hlo": HLO.replace("ENTRY ", "").encode(),
        "empty.pb": b"",
        "zeros.pb": b"\0" * 100,
        "cut.pb": b"\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01abc",
        "words.jaxexport": b"these are words",
        "empty.jaxexport": b"",
        "stable.jaxexport": b"ML\xefRStableHLO_v1.0.0" + bytes(200),
    }  # fmt: skip


def folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """authored.folder with every wrong file too."""
    authored.folder(path, monkeypatch)
    for name, text in PYTHON.items():
        (path / f"{name}.py").write_text(text)
    for name, data in binary().items():
        (path / name).write_bytes(data)
    (path / "folder.toml").mkdir()
    (path / "folder.json").mkdir()
    (path / "folder.py").mkdir()
    (path / "folder.hlo").mkdir()
    (path / "checkpoint").mkdir()
    (path / "orbax").mkdir()
    (path / "orbax" / "_METADATA").write_text("{")
    return path
