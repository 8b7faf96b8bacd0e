"""Who may call: by a file of rights, or as an Open Policy Agent says."""
