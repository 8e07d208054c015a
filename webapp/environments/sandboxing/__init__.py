"""What a worker does in the sandbox for people: plays and gates. Imported by tasks only, never by the web process."""
