"""Ready-made handlers for workers of a work queue."""

from work_queue.workers.ready.batches import in_batches
from work_queue.workers.ready.deliveries import post_to
from work_queue.workers.ready.files import write_files
from work_queue.workers.ready.mapping import map_to
from work_queue.workers.ready.programs import run_program

__all__ = ["in_batches", "map_to", "post_to", "run_program", "write_files"]
