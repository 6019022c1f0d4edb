"""Sessions as plain objects: events in, actions out, no socket, no event loop, no clock."""
