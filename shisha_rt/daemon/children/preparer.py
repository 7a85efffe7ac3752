"""`python -m shisha_rt.daemon.children.preparer CHANNEL PARENT`: prepares a daemon's model, then plans ahead."""

from __future__ import annotations

import logging
import os
import sys
from typing import Final

from shisha_rt.daemon.prepare import plans_for_others, prepare
from shisha_rt.daemon.prepared import (
    FROM_PREPARER,
    TO_PREPARER,
    FromPreparer,
    ModelPrepared,
    NoAccess,
    PlansAhead,
    PreparationStep,
    Refused,
)
from shisha_rt.errors import BadInput, Failure
from shisha_rt.process.parent import exit_at_signals, line_to_parent

STARTS_CHILDREN: Final = True
"""A process of this module has a fork server of its own: see `process/fork_server.py`."""
_NICENESS: Final = 10
"""While planning ahead, as workers start at the same time."""


def main(arguments: list[str]) -> int:
    channel = line_to_parent(arguments)
    with exit_at_signals(0):
        asked = TO_PREPARER.decode(channel.wait())
        level, style = asked.log
        logging.basicConfig(level=level, format=style)

        def say(message: FromPreparer) -> None:
            channel.send(FROM_PREPARER.encode(message))

        try:
            prepared = prepare(asked, lambda step: say(PreparationStep(step)))
        except (BadInput, Failure) as error:
            say(Refused(isinstance(error, BadInput), str(error), error.kind))
        except OSError as error:
            path = None if error.filename is None else os.fsdecode(error.filename)
            say(NoAccess(error.errno, error.strerror or str(error), path))
        else:
            say(ModelPrepared(prepared.for_serving))
            os.nice(_NICENESS)
            say(PlansAhead(plans_for_others(prepared)))
        channel.wait()  # the daemon ends this process when it has the result
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
