"""The work queue: tasks that consumers claim under a lease, and docs that they share."""
