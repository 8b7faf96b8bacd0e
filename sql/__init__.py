"""Tables, statements, migrations and connections.

All knowledge of the databases is here, and none of the queue's rules.
"""
