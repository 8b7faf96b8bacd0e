"""Options of commands on archives."""

from __future__ import annotations

from typing import Annotated

import typer

from history_pipeline.scale import HELP

ArchivedTable = Annotated[
    str,
    typer.Option(
        "--table",
        help="Main table of the bus or notification service; work_task_history: finished tasks.",
    ),
]
Folder = Annotated[str, typer.Option("--in", help="Directory of the archive.", show_default=False)]
SearchedArchive = Annotated[
    str | None,
    typer.Option(
        "--archive",
        help="Directory of an archive, which is searched instead of the database.",
        show_default=False,
    ),
]

RunRows = Annotated[int, typer.Option("--run-rows", min=1, help=f"{HELP['run_rows']}.")]
IdsPerPartition = Annotated[
    int, typer.Option("--ids-per-partition", min=1, help=f"{HELP['ids_per_partition']}.")
]
MaxPartitions = Annotated[
    int, typer.Option("--max-partitions", min=1, help=f"{HELP['max_partitions']}.")
]
FileBytes = Annotated[int, typer.Option("--file-bytes", min=1, help=f"{HELP['file_bytes']}.")]
