"""``headrace assess``: what stands in the way of a configuration, and what it will take."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from headrace.cli.output import ConfigFile, a_number, console, errors_without_traceback
from headrace.plural import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.replicator.assess.estimates import Estimates
    from headrace.replicator.assess.pipeline import PipelineAssessment, TableAssessment
    from headrace.replicator.assess.problems import Problem

__all__ = ["assess"]

_STYLES = {"YES": "green", "PARTIAL": "yellow", "NO": "bold red"}


@errors_without_traceback
def assess(
    file: ConfigFile,
    table: Annotated[
        str, typer.Option("--table", help="One table, schema.name, column by column.")
    ] = "",
    sample_s: Annotated[
        float,
        typer.Option(
            "--sample-seconds",
            min=0,
            max=3600,
            callback=a_number,
            help="How long to look at the log.",
        ),
    ] = 1.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, for programs.")
    ] = False,
) -> None:
    """Say what stands in the way of a configuration, what each problem costs, and what the first copy will take.

    Takes our own files, and the stage-and-connection JSON of the Replicator's design. Whatever cannot be reached is a
    problem among the others. Nothing is started or changed; an object store gets one small object, which goes again.

    Exit code: 0 when `run` may start, 1 when something must be done first, 2 on an error.

    [bold]Example[/bold]  headrace assess shop.yaml
    """
    from headrace.replicator.assess.document import (
        assess_document,
        assess_table_of_document,
        load_document,
    )
    from headrace.replicator.assess.estimates import sample_log

    document = load_document(file)
    found: PipelineAssessment | TableAssessment
    if table:
        found = assess_table_of_document(document, table)
    else:
        found = assess_document(document, sample=lambda written: sample_log(written, sample_s))
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
    else:
        _show(found)
    if found.errors:
        raise typer.Exit(1)


def _show(found: PipelineAssessment | TableAssessment) -> None:
    from headrace.replicator.assess.pipeline import PipelineAssessment

    if isinstance(found, PipelineAssessment):
        _show_tables(found)
    elif found.verdict:
        _show_columns(found)
    _show_problems(found.problems)
    if isinstance(found, PipelineAssessment) and found.estimates:
        _show_estimates(found.estimates)
    errors = len(found.errors)
    console.print(
        Text.assemble((f"{errors} to do first", "bold red"))
        if errors
        else Text.assemble(("nothing stands in the way", "bold green"))
    )


def _show_tables(found: PipelineAssessment) -> None:
    if not found.tables:
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("table")
    for name in ("columns", "in another type", "not at all"):
        table.add_column(name, justify="right")
    for verdict in found.tables:
        partly, absent = verdict.partially_supported, verdict.not_supported
        table.add_row(
            Text(str(verdict.table)),
            str(verdict.num_columns),
            Text(str(partly), style=_STYLES["PARTIAL"] if partly else ""),
            Text(str(absent), style=_STYLES["NO"] if absent else ""),
        )
    console.print(table)


def _show_columns(found: TableAssessment) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("column", "type", "target column", "target type", "support"):
        table.add_column(name)
    columns = found.verdict.columns if found.verdict else ()
    for column in columns:
        style = _STYLES[column.support.value]
        table.add_row(
            Text(column.source_name or "(computed)"),
            Text(column.source_type),
            Text(column.target_name),
            Text(column.target_type or ("by expression" if column.target_name else "")),
            Text(column.support.value, style=style),
        )
    console.print(table)
    for column in columns:
        if column.message:
            console.print(Text(f"      {column.message}"), soft_wrap=True)
        for remedy in column.remedies:
            console.print(Text(f"      tables: {remedy}"), soft_wrap=True)


def _show_problems(problems: Iterable[Problem]) -> None:
    for problem in sorted(problems, key=lambda p: not p.is_error):
        bad = problem.is_error
        console.print(
            Text.assemble(
                (problem.severity.value.lower(), "bold red" if bad else "bold yellow"),
                " ",
                (problem.name, "bold"),
                f"  {problem.description}" + (f"  [{problem.field}]" if problem.field else ""),
            ),
            soft_wrap=True,
        )
        console.print(Text(f"      {problem.kind.impact}"), soft_wrap=True)
        console.print(Text(f"      {problem.suggestion}"), soft_wrap=True)


def _show_estimates(found: Estimates) -> None:
    unknown = f", without {counted(len(found.unknown), 'uncounted table')}" if found.unknown else ""
    console.print(
        f"about {counted(found.rows, 'row')} in {counted(found.bytes, 'byte')}{unknown}: "
        f"first copy about {found.first_copy_s:,.0f} s at {found.rows_per_s:,.0f} rows/s"
    )
    if found.log:
        console.print(
            f"the server writes about {found.log.bytes_per_hour:,} bytes of log an hour "
            f"(looked at for {found.log.seconds:.1f} s)"
        )
