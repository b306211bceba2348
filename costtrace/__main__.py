"""`python -m costtrace`."""

from __future__ import annotations

import sys

from costtrace.cli import main

if __name__ == "__main__":
    sys.exit(main())
