"""Mistakes in a command line, each in one line that names the fix."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import click


def mistake(error: click.UsageError, root: click.Group, arguments: Iterable[str]) -> str:
    """What is wrong with a command line, and the fix.

    Args:
        error: what the parser found.
        root: all commands.
        arguments: the words after the name of the program.
    """
    context = error.ctx or _context(root, arguments)
    problem, fix = _said(error, context)
    return f"{context.command_path}: {problem}; {fix}"


def _context(root: click.Group, arguments: Iterable[str]) -> click.Context:
    """The command that was meant: the parser does not always name it."""
    context = click.Context(root, info_name="kueuelib")
    for argument in arguments:
        command = context.command
        subcommand = (
            command.get_command(context, argument) if isinstance(command, click.Group) else None
        )
        if subcommand is not None:
            context = click.Context(subcommand, parent=context, info_name=argument)
    return context


def _said(error: click.UsageError, context: click.Context) -> tuple[str, str]:
    """The problem and the fix."""
    usage = " ".join(context.command.get_usage(context).partition(":")[2].split())
    if isinstance(error, click.NoSuchOption):
        return f"unknown option {error.option_name}", _instead(error.possibilities or (), context)
    if isinstance(error, click.BadOptionUsage):
        option = _option(context, error.option_name)
        if option is None or option.is_flag:
            return f"{error.option_name} takes no value", f"write {error.option_name} alone"
        ranged = isinstance(option.type, click.IntRange | click.FloatRange)
        value = "NUMBER" if ranged else _metavar(option, context)
        return f"{error.option_name} needs a value", f"write {error.option_name} {value}"
    if isinstance(error, click.MissingParameter):
        name = _name(error, context)
        return f"{name} is missing", f"write {usage.replace('[OPTIONS]', _added(name))}"
    if isinstance(error, click.BadParameter):
        kind = error.param.type if error.param is not None else click.STRING
        return f"{_name(error, context)}: {_plain(error.message)}", _valid(kind, context)
    if isinstance(context.command, click.Group) and context.invoked_subcommand is None:
        known = context.command.list_commands(context)
        typed = getattr(error, "command_name", error.message.partition("'")[2].rstrip("'."))
        return f"unknown command {typed}", _instead(get_close_matches(typed, known), context)
    return _plain(error.message), f"write {usage}"


def _instead(names: Iterable[str], context: click.Context) -> str:
    choices = " or ".join(names)
    return f"did you mean {choices}?" if choices else f"see {context.command_path} --help"


def _option(context: click.Context, name: str) -> click.Option | None:
    options = (one for one in context.command.params if isinstance(one, click.Option))
    return next((one for one in options if name in (*one.opts, *one.secondary_opts)), None)


def _metavar(option: click.Option, context: click.Context) -> str:
    """What stands for the value of an option in its help."""
    record = option.get_help_record(context)
    return record[0].rpartition(" ")[2] if record is not None else "VALUE"


def _name(error: click.BadParameter, context: click.Context) -> str:
    """The parameter as the user types it."""
    param = error.param
    if isinstance(param, click.Option):
        return max(param.opts, key=len)
    pieces = param.get_usage_pieces(context) if param is not None else []
    return pieces[0] if pieces else str(error.param_hint or "a value")


def _added(name: str) -> str:
    return f"[OPTIONS] {name} VALUE" if name.startswith("-") else "[OPTIONS]"


def _plain(message: str) -> str:
    """A message of the parser as the start of a sentence that continues."""
    text = " ".join(message.split()).rstrip(".")
    return text[:1].lower() + text[1:]


def _valid(kind: click.ParamType[Any], context: click.Context) -> str:
    """The values that an option accepts."""
    if isinstance(kind, click.Choice):
        return "write one of these"
    if isinstance(kind, click.IntRange | click.FloatRange):
        noun = "an integer" if isinstance(kind, click.IntRange) else "a number"
        low = f" {'above' if kind.min_open else 'from'} {kind.min}" if kind.min is not None else ""
        high = f" {'below' if kind.max_open else 'to'} {kind.max}" if kind.max is not None else ""
        return f"write {noun}{low}{high or (' on' if low and not kind.min_open else '')}"
    return f"see {context.command_path} --help"
