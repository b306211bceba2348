"""`python -m costtrace`, and the console script: Ctrl-C is one line even while the command line is still imported."""

from __future__ import annotations

import sys


def main() -> int:
    try:
        from costtrace.cli import main as run

        return run()
    except KeyboardInterrupt:
        print("costtrace: error: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
