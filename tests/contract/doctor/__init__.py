"""`stickybus doctor`, whose findings are each provoked for real."""
