"""The hot loops, each in plain NumPy, the oracle, and fast.

Of operators on patches: `reference`, and `cpu` and `gpu`, the same functions compiled and on torch
devices. Of the joint model: `joint_reference`, and ``joint_*`` compiled, ``joint_gpu*`` on torch
devices with ``gpu_triton*`` where there is CUDA. `pictures` and `gpu_frames` read frames.
"""
