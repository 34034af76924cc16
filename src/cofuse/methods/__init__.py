"""The ways to fuse, one a file: the joint model, plain shrinkage, and the letter's own."""
