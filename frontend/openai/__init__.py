"""OpenAI's chat shapes: requests into jobs, chunks into answers. Pure: no sockets, no event loop, no clock."""
