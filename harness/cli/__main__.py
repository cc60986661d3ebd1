"""``python -m hanglab.harness.cli``, the same as ``hanglab``."""

import sys

from hanglab.harness.cli import main

sys.exit(main())
