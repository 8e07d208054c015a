"""Who may do what: users, roles, one-time links, and the audit log of what people did."""
