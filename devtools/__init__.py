"""Tools beside the product for tests, benchmarks and examples: servers, a network that fails."""
