"""Says which of the modules named by its arguments were imported before it began."""

import sys

BEFORE = frozenset(sys.modules)

if __name__ == "__main__":
    print(*(name for name in sys.argv[1:] if name in BEFORE))
