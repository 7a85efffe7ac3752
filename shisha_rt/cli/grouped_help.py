"""The text of `--help`: commands in groups, and for a command with many options only the common ones explained.

An option without a group (`rich_help_panel`) is common. All others are only listed, by group, so that `--help` fits a
screen; `--help-all` explains them.
"""

from __future__ import annotations

import textwrap
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

EVERY: Final = "--help-all"
_EVERY_KEY: Final = "shisha_rt.help_all"


class GroupedCommand(TyperCommand):
    """A command whose options may have groups."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the remaining arguments; with `--help-all` explain all options instead, and exit."""
        if EVERY in args and any(getattr(param, "rich_help_panel", None) for param in self.get_params(ctx)):
            ctx.meta[_EVERY_KEY] = True
            typer.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        names: dict[str, list[str]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None:
                continue
            is_option = param.param_type_name == "option"
            group = getattr(param, "rich_help_panel", None)
            sections.setdefault(group or ("Options" if is_option else "Arguments"), []).append(record)
            if group:
                names.setdefault(group, []).append(param.opts[0])
        explained = sections if ctx.meta.get(_EVERY_KEY) else {name: sections[name] for name in sections.keys() - names}
        for name in sorted(explained, key=lambda name: (name in names, name)):  # Arguments, Options, then groups
            with formatter.section(name):
                formatter.write_dl(explained[name])
        if names and explained is not sections:
            with formatter.section(f"More options ({EVERY} explains them)"):
                for group, options in names.items():  # by hand: the formatter breaks lines at hyphens
                    text = f"{group}: {', '.join(options)}"
                    width = formatter.width - formatter.current_indent
                    for line in textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False):
                        formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class GroupedCommands(TyperGroup):
    """The commands, in groups, each in the order in which they were registered."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            assert command is not None  # listed
            panel = getattr(command, "rich_help_panel", None)
            group = panel if isinstance(panel, str) else "Commands"
            summary = command.get_short_help_str(formatter.width)
            sections.setdefault(group, []).append((name, summary))
        for group, rows in sections.items():
            with formatter.section(group):
                formatter.write_dl(rows)
