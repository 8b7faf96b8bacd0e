"""The pipeline as jobs for `spark-submit`."""
