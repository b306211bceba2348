"""The process of a compile, the cache and the targets, with stand-ins for the compiler: what fails, fails cleanly."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from costtrace import chip, disk, units
from costtrace.errors import UsageError
from costtrace.target import cache, compiler, gpu, setup, tpu, worker
from costtrace.target.program import Program

OK = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
(folder / "module.hlo").write_text("HloModule m")
(folder / "part").write_text(json.dumps({"compile_s": 1.0, "got": (folder / "program.bin").read_text()}))
(folder / "part").replace(folder / "result.json")
"""


def request(label: str = "block", **fields: Any) -> worker.Request:
    return worker.Request(label, sys.executable, b"program", {"topology": "v6e:2x2", **fields})


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """child(source): what runs in place of the compiler. Afterwards nothing of it may be left."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(disk.tempfile, "tempdir", str(temporary))

    def put(source: str) -> None:
        path = tmp_path / "child.py"
        path.write_text(source)
        monkeypatch.setattr(worker, "CHILD", path)

    yield put
    assert not list(temporary.iterdir())


# The process ----------------------------------------------------------------------------------------------------------


def test_an_answer_comes_back_with_its_text(child: Any) -> None:
    child(OK)
    told: list[Any] = []
    (answer,) = worker.run([request()], progress=lambda running: told.append(list(running)))
    assert (answer["text"], answer["got"], answer["compile_s"]) == ("HloModule m", "program", 1.0)
    assert any(label == "block" and seconds >= 0 for running in told for label, seconds in running)


def test_several_run_side_by_side_and_answer_in_order(child: Any) -> None:
    child(OK.replace("import json", "import time; time.sleep(0.3); import json"))
    seen: list[int] = []
    requests = [replace(request(), artifact=str(n).encode()) for n in range(8)]
    answers = worker.run(requests, at_once=8, progress=lambda some: seen.append(len(some)))
    assert [answer["got"] for answer in answers] == [str(n) for n in range(8)]
    assert max(seen) == 8


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL; it was killed (out of memory?)"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "SIGILL; the compiler met something it cannot do"),
        ("import os; os.abort()", "SIGABRT; the compiler crashed"),
        (
            "import no_such_module",
            "its environment is not whole: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("raise SystemExit(3)", "ended with code 3"),
        ("import sys; open(sys.argv[1] + '/result.json', 'w').write('{')", "ended with code 0"),
    ],
)
def test_a_death_is_an_error_with_its_reason(child: Any, source: str, message: str) -> None:
    child(source)
    with pytest.raises(worker.CompileError) as e:
        worker.run([request()])
    assert str(e.value).startswith("block: ") and message in str(e.value) and "\n" not in str(e.value)


def test_a_death_on_a_full_disk_is_the_disks(child: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    child("import os; os.abort()")
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=worker.LEAST_ROOM - 1))
    with pytest.raises(worker.CompileError, match=r"^block: the disk of .* is full: make room there, or set TMPDIR"):
        worker.run([request()])


def refused(text: str, step: str = "compile") -> str:
    return worker.refusal({"step": step, "type": "JaxRuntimeError", "text": text}, request())


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (refused("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 200.00G of 31.25G hbm. Exceeded"),
         "it does not fit: the compiler needs 200.00G of 31.25G HBM"),
        (refused("RESOURCE_EXHAUSTED: too big"), "it does not fit on the chip: RESOURCE_EXHAUSTED: too big; shard it"),
        (refused("no such thing.", "topology"), "no topology 'v6e:2x2': no such thing; for one chip leave it out"),
        (refused("bad\nmore", "version"), "environment is of another version: bad; run costtrace setup tpu"),
        (refused("JAX TPU support not installed", "topology"), "has no compiler: JAX TPU support not installed; run"),
        (refused("\n INTERNAL: oh.\n trace"), "refused the program while it was compiled: INTERNAL: oh"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_to_do_in_one_line(said: str, message: str) -> None:
    assert message in said and "\n" not in said


def test_limits_stop_it(child: Any) -> None:
    child("import time; time.sleep(60)")
    with pytest.raises(worker.CompileError, match=r"longer than 0 s and was stopped"):
        worker.run([request()], time_limit_s=0.3)
    with pytest.raises(worker.CompileError, match=r"of memory, its limit is 1 MiB"):
        worker.run([request()], memory_limit=2**20)


def test_the_first_failure_stops_the_others(child: Any) -> None:
    child(
        "import json,sys,time; t = json.load(open(sys.argv[1] + '/request.json'))['sleep']; time.sleep(t); sys.exit(4)"
    )
    began = time.monotonic()
    with pytest.raises(worker.CompileError, match=r"quick: .*code 4"):
        worker.run([request("slow", sleep=60), request("quick", sleep=0)], at_once=2)
    assert time.monotonic() - began < 20


PARENT = """
import sys
from pathlib import Path
from costtrace.target import worker
worker.CHILD = Path(sys.argv[1])
worker.run([worker.Request("block", sys.executable, b"", {"topology": ""})])
"""
ORPHAN = f"""
import os, sys, threading, time
sys.path.insert(0, {str(worker.CHILD.parent)!r})
from pathlib import Path
import child
open({{mark!r}}, "w").write(f"{{{{os.getpid()}}}} {{{{sys.argv[1]}}}}")
threading.Thread(target=child.watch, args=(Path(sys.argv[1]),), daemon=True).start()
time.sleep(60)
"""


def test_a_killed_parent_leaves_neither_process_nor_folder(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    (tmp_path / "child.py").write_text(ORPHAN.format(mark=str(mark)))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path / "child.py")], env=environment) as parent:
        wait(lambda: mark.is_file() and " " in mark.read_text())
        pid, folder = mark.read_text().split()
        parent.send_signal(signal.SIGKILL)
    wait(lambda: not Path(folder).exists())
    wait(lambda: gone(int(pid)))


def wait(until: Any) -> None:
    for _ in range(200):
        if until():
            return
        time.sleep(0.1)
    pytest.fail("it did not happen within 20 s")


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] == "Z"
    except OSError:
        return True


# The cache ------------------------------------------------------------------------------------------------------------


def test_what_was_put_is_found_and_nothing_else(tmp_path: Path) -> None:
    kept = cache.Answers(tmp_path / "c")
    assert kept.get("a") is None
    kept.put("a", {"text": "x" * 100000, "n": 1.5})
    assert cache.Answers(tmp_path / "c").get("a") == {"text": "x" * 100000, "n": 1.5}
    assert kept.get("b") is None and not kept.problems


def test_a_key_holds_all_that_an_answer_depends_on() -> None:
    parts = ("digest", {"topology": "v6e:2x2", "options": {"a": 1}}, {"libtpu": "1"})
    digest, fields, versions = parts
    others = [
        ("other", fields, versions),
        (digest, {**fields, "topology": "v6e:2x4"}, versions),
        (digest, {**fields, "options": {"a": 2}}, versions),
        (digest, fields, {"libtpu": "2"}),
    ]
    assert len({cache.key(*p) for p in [parts, *others]}) == 5
    assert cache.key(*parts) == cache.key(*json.loads(json.dumps(parts)))


def test_a_damaged_cache_is_begun_afresh(tmp_path: Path) -> None:
    kept = cache.Answers(tmp_path / "c")
    kept.put("a", {"n": 1})
    (tmp_path / "c" / "cache.db").write_bytes(b"no database at all" * 1000)
    for leftover in (tmp_path / "c").glob("cache.db-*"):
        leftover.unlink()
    assert kept.get("a") is None
    assert "damaged" in kept.problems[0]
    kept.put("a", {"n": 2})
    assert kept.get("a") == {"n": 2}


def test_a_cache_that_cannot_be_written_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kept = cache.Answers(tmp_path / "file" / "c")
    kept.put("a", {"n": 1})
    assert kept.get("a") is None
    assert all("could not be" in problem and "\n" not in problem for problem in kept.problems) and kept.problems


def test_a_full_disk_is_a_problem_not_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    kept = cache.Answers(tmp_path / "c")
    kept.put("a", {"n": 1})
    monkeypatch.setattr(cache.diskcache.Cache, "set", full)
    kept.put("b", {"n": 2})
    assert "No space left" in kept.problems[0]
    monkeypatch.undo()
    assert kept.get("a") == {"n": 1} and kept.get("b") is None


def test_the_cache_can_be_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.FOLDER, "off")
    kept = cache.Answers(tmp_path / "c")
    kept.put("a", {"n": 1})
    assert kept.get("a") is None and not (tmp_path / "c").exists()


def _puts(place: Path, n: int) -> None:
    kept = cache.Answers(place)
    for i in range(3):
        kept.put(f"{n}-{i}", {"text": "y" * 50000, "n": n})
    assert not kept.problems, kept.problems


def test_a_folder_of_a_disk_that_is_only_read_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o755)

    def refuse(path: Any, mode: int) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(os, "chmod", refuse)
    number = errno.EROFS
    disk.private(tmp_path)
    number = errno.EPERM
    with pytest.raises(OSError, match="not permitted"):
        disk.private(tmp_path)


@pytest.mark.slow
def test_eight_at_once_do_not_harm_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    each = [context.Process(target=_puts, args=(tmp_path / "c", n)) for n in range(8)]
    for process in each:
        process.start()
    for process in each:
        process.join()
    assert [process.exitcode for process in each] == [0] * 8
    kept = cache.Answers(tmp_path / "c")
    assert all(kept.get(f"{n}-{i}") == {"text": "y" * 50000, "n": n} for n in range(8) for i in range(3))


HOLDER = """
import sys, time
from pathlib import Path
from costtrace.target import cache
answers = cache.Answers(Path(sys.argv[1]))
with answers.reserving() as reserved:
    assert reserved(sys.argv[2])
    print("held", flush=True)
    sys.stdin.readline()
    if sys.argv[3] == "answers":
        answers.put(sys.argv[2], {"text": "", "compile_s": 1.0, "memory": {}, "versions": {}, "device": ""})
"""


@pytest.mark.parametrize("end", ["answers", "dies"])
def test_what_another_process_compiles_is_waited_for(end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    v6e, kept = chip.load("v6e"), cache.Answers(tmp_path / "c")
    programs = [Program(name, "tpu", {}, (), name, lambda: b"x") for name in ("theirs", "ours")]
    questions = [compiler.Question(each, v6e, label=each.name) for each in programs]
    compiled, said = [], []

    def run(requests: list[worker.Request], finished: Any, **rest: Any) -> None:
        for n, request in enumerate(requests):
            compiled.append(request.label)
            finished(n, {"text": "", "compile_s": 1.0, "memory": {}, "versions": {}, "device": ""})

    def progress(some: Any) -> None:
        said.extend(label for label, _ in some)
        if other.poll() is None and said:
            other.communicate("go\n")

    monkeypatch.setattr(worker, "run", run)
    monkeypatch.setattr(setup, "python", lambda kind: sys.executable)
    name = compiler.ask(questions[:1], cache.Answers(tmp_path / "names"))[0].key
    compiled.clear()
    command = [sys.executable, "-c", HOLDER, str(kept.place), name, end]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        theirs, ours = compiler.ask(questions, kept, progress)
    assert set(said) == {"theirs (in another process)"}
    assert compiled == (["ours"] if end == "answers" else ["ours", "theirs"])
    assert (theirs.cached, ours.cached) == (end == "answers", False)


# Targets --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in chip.names() if chip.load(n).kind == "tpu"])
def test_every_tpu_has_a_target_and_a_clock(name: str) -> None:
    c = chip.load(name)
    assert tpu.topology(c).partition(":")[2] == tpu.generation(c).host
    assert tpu.environment(c)["TPU_ACCELERATOR_TYPE"].startswith(tpu.generation(c).accelerator)
    assert c.value("cores.clock") and c.value("cores.clock") > units.parse("0.5 GHz", "Hz")


@pytest.mark.parametrize("name", sorted(gpu.CAPABILITIES))
def test_every_gpu_target_says_the_peaks_of_its_file(name: str) -> None:
    c = chip.load(name)
    text = gpu.target_config(c)
    cores = int(c.value("cores.sm") or 0)
    for unit, message in (("matrix", "matrix_unit"), ("vector", "scalar_unit")):
        part = text.partition(message)[2].partition("\n  }")[0]
        for line in part.splitlines()[1:]:
            numbers = {k: float(v) for k, v in re.findall(r"(\w+): ([\d.]+)", line)}
            dtype = next(d for d, key in gpu.TYPES.items() if key == numbers["key"])
            rate = 2 * cores * numbers["units_per_core"] * numbers["ops_per_clock"] * numbers["clock_rate_ghz"] * 1e9
            assert rate == pytest.approx(c.value(f"{unit}.{dtype}"), rel=1e-4)


def test_published_targets_of_xla_agree_with_the_chip_files() -> None:
    """Cores and lanes as in XLA's own h100_sxm and a100_sxm_80."""
    for name, cores, lanes in (("h100", 132, 128), ("a100", 108, 64), ("b200", 148, 128)):
        text = gpu.target_config(chip.load(name))
        assert f"core_count: {cores}" in text and f"fpus_per_core: {lanes}" in text


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: tpu.topology(chip.load("v6e"), "2x2x2"), "no topology '2x2x2' of v6e: write it like 2x2"),
        (lambda: tpu.topology(chip.load("v6e"), "many"), "no topology 'many'"),
        (lambda: gpu.topology("2x2x2"), "no topology '2x2x2' of GPUs"),
        (lambda: tpu.generation(chip.load("h100")), "no TPU compiler for h100: there is one for v4, v5e"),
        (lambda: gpu.capability(chip.load("rtx3050")), "no GPU target for rtx3050: there is one for a100"),
        (lambda: setup.make("npu", print), "no compiler 'npu' to set up: choose tpu or gpu"),
    ],
)
def test_what_there_is_no_target_for(ask: Any, message: str) -> None:
    with pytest.raises(UsageError) as e:
        ask()
    assert message in str(e.value)


def test_gpu_topologies() -> None:
    assert [gpu.topology(s) for s in (None, "8", "2x8")] == ["1x1x1", "1x1x8", "1x2x8"]
