"""The writing of outcomes."""
