"""Rows of the tables as entries, and the connections that lead to them."""
