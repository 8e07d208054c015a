"""Following runs over WebSockets: reads of the event table, one hub per process and run, the consumers."""
