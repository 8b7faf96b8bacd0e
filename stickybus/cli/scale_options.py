"""Options of commands that archive: how large runs, tasks and files are."""

from __future__ import annotations

from typing import Annotated

import typer

from history_pipeline.scale import HELP

RunRows = Annotated[int, typer.Option("--run-rows", min=1, help=f"{HELP['run_rows']}.")]
IdsPerPartition = Annotated[
    int, typer.Option("--ids-per-partition", min=1, help=f"{HELP['ids_per_partition']}.")
]
MaxPartitions = Annotated[
    int, typer.Option("--max-partitions", min=1, help=f"{HELP['max_partitions']}.")
]
FileBytes = Annotated[int, typer.Option("--file-bytes", min=1, help=f"{HELP['file_bytes']}.")]
