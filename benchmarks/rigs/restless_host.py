"""`shisha-rt` as its user starts it, except for its dealer: places that have moved may move again at once.

So a campaign has as many moves in minutes as a machine in days. It is put before the usual command.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Final

from shisha_rt.cli.app import main
from shisha_rt.core import dealer

_BEFORE: Final = 3
"""Number of words of the usual command that this replaces: the interpreter, `-c` and a program."""

if __name__ == "__main__":
    vars(dealer)["Dealer"] = partial(dealer.Dealer, rests_s=(0.0, 0.0))
    del sys.argv[1 : 1 + _BEFORE]
    sys.exit(main())
