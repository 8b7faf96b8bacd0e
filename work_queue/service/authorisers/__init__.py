"""Authorisers: a file of rights, or an Open Policy Agent."""
