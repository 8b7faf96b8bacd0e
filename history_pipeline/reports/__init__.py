"""Reports: figures as a page, with its plots and its verdict."""
