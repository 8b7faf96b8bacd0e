"""What tests, benchmarks and examples run beside the product: servers, and a network that fails."""
