"""The ways to fuse, one a file: the trained model, plain shrinkage, and the letter's own."""
