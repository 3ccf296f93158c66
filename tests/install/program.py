# The first program of src/python/README.md, run against an installed kiln.
import kiln
import numpy as np

swiglu = kiln.fuse("silu(gate) * up")

gate = np.array([-1, 0, 1, 2], np.float32)
up = np.array([1, 2, 3, 4], np.float32)
for value in swiglu(gate, up):  # allocates an array of NumPy
    print(f"{value:.4f}")  # -0.2689 0.0000 2.1932 7.0464
