"""`python -m shisha_rt.daemon.children.preparer CHANNEL PARENT`: prepares a daemon's model, then plans ahead.

Messages are pickled: both ends are the same program, and nobody else has the channel.
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
from typing import Final

from shisha_rt.daemon.prepare import plans_for_others, prepare
from shisha_rt.daemon.prepared import Preparation, PreparedModel
from shisha_rt.errors import BadInput, Failure
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import Objective
from shisha_rt.process.parent import exit_at_sigterm, line_to_parent

STARTS_CHILDREN: Final = True
"""A process of this module has a fork server of its own: see `process/fork_server.py`."""
_NICENESS: Final = 10
"""While planning ahead, as workers start at the same time."""


def main(arguments: list[str]) -> int:
    channel = line_to_parent(arguments)
    with exit_at_sigterm():
        asked: Preparation = pickle.loads(channel.wait())
        level, style = asked.log
        logging.basicConfig(level=level, format=style)

        def say(message: str | Exception | PreparedModel | dict[Objective, Plan]) -> None:
            channel.send(pickle.dumps(message))

        try:
            prepared = prepare(asked, say)
        except BadInput as error:
            say(BadInput(str(error), error.kind))
        except Failure as error:
            say(Failure(str(error), error.kind))
        except OSError as error:
            say(error)
        else:
            say(prepared.for_serving)
            os.nice(_NICENESS)
            say(plans_for_others(prepared))
        channel.wait()  # the daemon ends this process when it has the result
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
