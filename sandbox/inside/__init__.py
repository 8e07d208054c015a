"""What runs inside the sandboxed processes. Nothing here is ever trusted by the host."""
