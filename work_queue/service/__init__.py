"""Work queues for other processes and languages, over gRPC and HTTP."""
