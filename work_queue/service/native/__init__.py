"""The service's end of the wire that the clients of this library speak."""
