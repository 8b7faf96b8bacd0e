"""Claims: the way of a node to entries that are due. `queue_core.claim_loop` calls them."""
