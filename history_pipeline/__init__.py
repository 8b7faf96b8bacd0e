"""History as a Spark DataFrame: read, streamed, archived, analysed, and posted again.

Importing this package needs no Spark; its modules do, all but `session` and `errors`.
"""
