"""Work queues over gRPC."""
