"""All that only MySQL does, and the part that MariaDB shares with it."""
