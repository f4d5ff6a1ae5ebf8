"""Tables of other tools, known by their marks: one file for each, and one line here."""

from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.lab.tables.exports import (
    asv,
    benchmark_dotnet,
    blocks,
    clearml,
    commands,
    criterion,
    fio,
    fixed_width,
    go_bench,
    hpl,
    html,
    iperf3,
    jmh,
    kernel_tuner,
    long_form,
    lsf,
    markdown,
    micro,
    mlflow,
    nccl_tests,
    optuna,
    osu,
    parallel,
    pbs,
    pgbench,
    pivoted,
    ray_tune,
    records,
    run_reports,
    sacct,
    serving,
    sklearn,
    smac,
    spaced,
    summaries,
    sysbench,
    tfruns,
    torch_compare,
    transposed,
    tvm,
    units,
    wandb,
)
from tunerd.lab.tables.exports.base import (
    INPUT,
    ColumnHint,
    DetectedExport,
    ExportFormat,
    ReadOptions,
    TableHead,
)

__all__ = [
    "EXPORTERS",
    "INPUT",
    "ColumnHint",
    "DetectedExport",
    "ReadOptions",
    "TableHead",
    "recognised",
]

EXPORTERS: tuple[ExportFormat, ...] = (
    html.EXPORTER,
    optuna.EXPORTER,
    smac.EXPORTER,
    ray_tune.EXPORTER,
    mlflow.EXPORTER,
    wandb.EXPORTER,
    sacct.EXPORTER,
    pbs.EXPORTER,
    lsf.EXPORTER,
    parallel.EXPORTER,
    kernel_tuner.EXPORTER,
    tvm.EXPORTER,
    sklearn.EXPORTER,
    tfruns.EXPORTER,
    clearml.EXPORTER,
    micro.HYPERFINE,
    micro.GOOGLE,
    micro.PYTEST,
    asv.EXPORTER,
    torch_compare.EXPORTER,
    criterion.EXPORTER,
    jmh.EXPORTER,
    benchmark_dotnet.EXPORTER,
    go_bench.EXPORTER,
    pgbench.EXPORTER,
    sysbench.EXPORTER,
    fio.EXPORTER,
    hpl.EXPORTER,
    nccl_tests.EXPORTER,
    osu.EXPORTER,
    iperf3.EXPORTER,
    *summaries.EXPORTERS,
    serving.EXPORTER,
    run_reports.EXPORTER,
    long_form.EXPORTER,
    units.EXPORTER,
    pivoted.EXPORTER,
    transposed.EXPORTER,
    records.EXPORTER,
    commands.EXPORTER,
    fixed_width.EXPORTER,
    markdown.EXPORTER,
    spaced.EXPORTER,
    blocks.BLOCKS,
    blocks.PAIRS,
)
"""The first that recognises a table has it."""


def recognised(head: TableHead, asked: str, where: str) -> DetectedExport | None:
    """What a table is.

    Args:
        head: its beginning.
        asked: ``auto``, ``none``, or the key of an exporter: then no other is looked at.
        where: names the table in mistakes.

    Raises:
        MisconfiguredError: there is no such export, or the table is none.
    """
    if asked == "none":
        return None
    shapes = {"fixed_width", "html", "markdown", "spaced", "blocks", "pairs"}
    keys = {exporter.key for exporter in EXPORTERS} - shapes
    if asked != "auto" and asked not in keys:
        known = ", ".join(["auto", "none", *sorted(keys)])
        raise MisconfiguredError(
            [ValidationProblem("mapping.export", f"there is no {asked!r}; there are {known}")]
        )
    if asked == "auto":
        tries = [exporter.recognise for exporter in EXPORTERS]
    else:
        tries = [
            exporter.asked or exporter.recognise for exporter in EXPORTERS if exporter.key == asked
        ]
    detected = next(
        (export for recognise in tries if (export := recognise(head)) is not None), None
    )
    if detected is None and asked != "auto":
        message = f'does not look like {asked}; export = "none" in [mapping] reads it as it stands'
        raise MisconfiguredError([ValidationProblem(where, message)])
    return detected
