"""All that goes past SQLAlchemy: to the driver itself, or to the socket beneath it."""
