"""The command line: arguments in, text out, exit code. One small file per command; no arithmetic in any.

Exit codes: 0; 1 where a check does not hold; 2 for what the user can mend (one line on stderr); 70 for a bug of
costtrace; 130 after Ctrl-C, 143 after SIGTERM.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path

import click

from costtrace import authored, disk
from costtrace.cli.group import INTERRUPTED, TERMINATED, Interrupted, Terminated, commands
from costtrace.errors import CosttraceError, UsageError
from costtrace.report.table import printable

BUG = 70
LONG = re.compile(r"[0-9]{301}")
TRACEBACK = "COSTTRACE_TRACEBACK"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line (by default the process's own) and returns its exit code."""
    if argv is None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)
    argv = sys.argv[1:] if argv is None else list(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # jaxlib's readers print the C++ stack of a file they refuse
    with authored.prints_apart():
        return _run(argv)


def _terminate(number: int, frame: object) -> None:
    raise Terminated


def _run(argv: list[str]) -> int:
    threshold = gc.get_threshold()
    gc.set_threshold(100_000, *threshold[1:])  # tracing makes many objects that live on; looking for cycles takes 0.1 s
    try:
        if any(LONG.search(text) for text in argv):
            raise UsageError("a number of more than 300 digits: give a smaller one")
        return commands.main(argv or ["--help"], "costtrace", standalone_mode=False) or 0
    except click.ClickException as e:
        return _failed(_usage(e), 2)
    except CosttraceError as e:
        return _failed(str(e), e.exit_code)
    except Interrupted as e:
        return _failed("terminated" if e.code == TERMINATED else "interrupted", e.code)
    except (KeyboardInterrupt, click.Abort):
        return _failed("interrupted", INTERRUPTED)
    except OSError as e:
        if e.errno not in disk.FULL:
            return _bug(e)
        return _failed(f"{e.filename or 'the answer'} cannot be written: {e.strerror}: make room there", 2)
    except OverflowError:
        return _failed("a count or a time is more than 1e308: give smaller sizes, trips or calls", 2)
    except MemoryError:
        return _failed("out of memory: give the machine more, or the program fewer unrolled parts", 2)
    except Exception as e:  # noqa: BLE001  # the process's last handler: a bug, too, is said in one line
        return _bug(e)
    finally:
        gc.set_threshold(*threshold)


def _bug(e: Exception) -> int:
    at = traceback.extract_tb(e.__traceback__)[-1]
    where = f"{Path(at.filename).name}:{at.lineno}"
    return _failed(f"a bug of costtrace, at {where}: {type(e).__name__}: {e} ({TRACEBACK}=1 shows more)", BUG)


def _usage(error: click.ClickException) -> str:
    """click's message, with the option that was meant, and the command whose --help has the answer."""
    context = getattr(error, "ctx", None)
    message = error.format_message().strip().rstrip(".")
    if isinstance(error, click.NoSuchOption) and not error.possibilities and context is not None:
        known = [name for param in context.command.params for name in param.opts if name.startswith("--")]
        near = [name for name in known if len(name) > 4 and error.option_name.startswith(name)]
        message += f". Did you mean {near[0]!r}?" if near else ""
    return f"{message[:1].lower()}{message[1:]}" + (f" ({context.command_path} --help)" if context else "")


def _failed(message: str, code: int) -> int:
    if os.environ.get(TRACEBACK):
        traceback.print_exc()
    click.echo(f"costtrace: error: {printable(' '.join(message.split()))}", err=True)
    return code
