"""All that only MySQL does, and what MariaDB shares with it."""
