"""The noise of a stack, from the frames alone."""
