"""Calls and loops that an exception from outside cuts off."""
