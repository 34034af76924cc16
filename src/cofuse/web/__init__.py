"""The local page: fuse stacks in a browser, look at the result, and retouch it."""
