"""`python -m shisha_rt`: the same as the `shisha-rt` command."""

import sys

from shisha_rt.cli.app import main

sys.exit(main())
