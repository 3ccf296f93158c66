# program.cpp in Python.
import kiln
import numpy as np

swiglu = kiln.fuse("silu(gate) * up")
gate, up = np.float32([-1, 0, 1, 2]), np.float32([1, 2, 3, 4])
for value in swiglu(gate, up):
    print(f"{value:.4f}")
