"""The statements, written once in SQLAlchemy Core: on entries (`entries`) and on all else."""
