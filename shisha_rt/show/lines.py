"""Words that several views share, and text that is cut if it is too wide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


def plain_console(*, soft_wrap: bool = False) -> Console:
    """Prints text as it is: names may look like rich's markup, or like its codes of emoji, as `a:x:b` does."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, soft_wrap=soft_wrap)


def plain_table(title: str | None = None, *, show_edge: bool = True, show_footer: bool = False) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    return Table(
        title=title,
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=show_edge,
        show_footer=show_footer,
    )


def counted(number: int, what: str) -> str:
    """`1 tensor`, `2 tensors`."""
    return f"{number} {what}{'s' * (number != 1)}"


def waits_in_words(waits_s: float) -> str:
    """Why nothing is being measured, by `profiler_waits_s` of a status."""
    return f"waiting for {waits_s:.0f} s while another process measures on this host"


def aim_in_words(tuner: Mapping[str, Any]) -> str:
    """Words that follow the strategy's name; empty for throughput, unless the objective follows the load.

    Without a tuner nothing follows the load, and until a plan has been measured the load is not known.
    """
    serves = tuner["serves"]
    if tuner["objective"] != "auto" or tuner["state"] == "off":
        return f" for {serves}" if serves == "latency" else ""
    used = tuner["utilisation"]
    return f" for {serves}, later as the load asks" if used is None else f" for {serves}, at a load of {used:.0%}"


def plan_in_words(status: Mapping[str, Any]) -> list[str]:
    """Which model a daemon serves, and by which plan."""
    epoch, preparing = status["plan"]["epoch"], status["preparing"]
    words = [status["model"]["name"], status["state"]]
    words += [] if epoch is None else [f"epoch {epoch}"]
    return words + ([] if preparing is None else [f"preparing epoch {preparing}"])


def clipped(text: str, style: str = "") -> Text:
    """A text that is cut at the terminal's width."""
    from rich.text import Text

    return Text(text, style, no_wrap=True, overflow="ellipsis")


def shortened(text: str, width: int, style: str = "") -> Text:
    """A text cut to `width`, for a table: with one too wide column, it would cut all columns."""
    shown = clipped(text, style)
    shown.truncate(max(1, width), overflow="ellipsis")
    return shown
