"""Every public behaviour on SQLite, PostgreSQL and MariaDB."""
