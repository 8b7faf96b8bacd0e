"""Roll-ups: the same figures without Spark, added up from those of days."""
