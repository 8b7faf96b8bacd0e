"""The face of the work queue, in parts."""
