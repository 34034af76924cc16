"""What made the trained model: a world of made stacks, and the training of `cofuse.model` in it.

Run from the repository, `python -m training --help`; a plain installation holds what runs on a
user's machine. It needs torch, onnx and Pillow beside NumPy, and nothing else that cofuse does.
"""
