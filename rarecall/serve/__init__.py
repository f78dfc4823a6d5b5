"""`rarecall serve`: a page where anyone teaches a memory, and an HTTP service behind it."""
