"""Sleepers: sessions of idle processes on MariaDB and MySQL, which the next commit wakes."""
