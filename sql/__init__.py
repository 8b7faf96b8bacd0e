"""Tables, statements and migrations: all that is known about the databases, and nothing about the queue's rules."""
