"""`python -m stickybus`: the command line."""

import sys

from stickybus.cli import main

sys.exit(main())
