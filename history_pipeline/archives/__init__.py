"""Archives: what belongs to one, where it is stored, and how it is read and verified."""
