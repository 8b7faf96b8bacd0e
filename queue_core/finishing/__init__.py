"""The writing of outcomes: the finish loop."""
