#!/bin/bash
# `pip install .` as a user does it, in a virtual environment of its own: pip.sh PYTHON.
set -euo pipefail
python=$1
rm -rf "$SCRATCH/pip"
"$python" -m venv "$SCRATCH/pip"
unset PYTHONPATH
if ! "$SCRATCH/pip/bin/pip" --disable-pip-version-check -q download --no-deps -d "$SCRATCH/pip" scikit-build-core; then
  printf 'python.pip: Skipped\nno package index is reached\n'
  exit 77
fi
"$SCRATCH/pip/bin/pip" --disable-pip-version-check -q install "$SOURCE" numpy
cd "$SCRATCH"  # the sources are not in the way
"$SCRATCH/pip/bin/python3" - <<'PYTHON'
import sys

import numpy as np

import kiln

x = np.linspace(-2, 2, 9, dtype=np.float32)
np.testing.assert_allclose(kiln.fuse("silu(x)")(x), x / (1 + np.exp(-x)), rtol=1e-6)
assert sys.version_info < (3, 12) or kiln._kiln.__file__.endswith(".abi3.so"), kiln._kiln.__file__
assert "/pip/" in kiln.__file__, kiln.__file__
PYTHON
