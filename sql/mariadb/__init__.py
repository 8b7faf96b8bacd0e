"""All that only MariaDB does."""
