"""The Python package on tensors of a framework that has DLPack's C exchange API, as PyTorch's do: one that is
made here, on the CPU."""

import ctypes
import sys
import unittest

import numpy as np

import kiln

GATE = np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6)
UP = np.arange(24, dtype=np.float32).reshape(4, 6)
swiglu = kiln.fuse("silu(gate) * up", name="swiglu")


def expected(gate, up):
    gate = gate.astype(np.float64)
    return (gate / (1 + np.exp(-gate)) * up).astype(np.float32)


class ExchangedTensor:
    """A tensor of a framework that has the C exchange API: an array of NumPy, borrowed by C."""

    def __init__(self, array):
        self.array = array
        self.extents = (ctypes.c_int64 * array.ndim)(*array.shape)
        self.steps = (ctypes.c_int64 * array.ndim)(*(step // array.itemsize for step in array.strides))

    def __dlpack__(self, **keywords):
        raise AssertionError("the C exchange API is there")


def exchange_api(calls):
    """The capsule of the API's functions in Python; `calls` counts which are called."""

    class Tensor(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("rank", ctypes.c_int32),
                    ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                    ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                    ("byte_offset", ctypes.c_uint64)]

    class Managed(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint32 * 2), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                    ("flags", ctypes.c_uint64), ("tensor", Tensor)]

    class Api(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint32 * 2), ("previous", ctypes.c_void_p), ("allocate", ctypes.c_void_p),
                    ("managed_of", ctypes.c_void_p), ("array_of", ctypes.c_void_p), ("borrow", ctypes.c_void_p),
                    ("current_stream", ctypes.c_void_p)]

    made = {}

    @ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(Tensor), ctypes.POINTER(ctypes.POINTER(Managed)),
                       ctypes.c_void_p, ctypes.c_void_p)
    def allocate(prototype, managed, context, set_error):
        calls.append("allocate")
        shape = tuple(prototype[0].shape[axis] for axis in range(prototype[0].rank))
        kept = Managed()
        made[ctypes.addressof(kept)] = (kept, ExchangedTensor(np.zeros(shape, np.float32)))
        managed[0] = ctypes.pointer(kept)
        return 0

    @ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
    def array_of(managed, array):
        calls.append("array_of")
        tensor = made.pop(managed)[1]
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(tensor))
        array[0] = id(tensor)
        return 0

    @ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Tensor))
    def borrow(given, tensor):
        calls.append("borrow")
        array = given.array
        tensor[0].data, tensor[0].rank, tensor[0].byte_offset = array.ctypes.data, array.ndim, 0
        tensor[0].device[:] = 1, 0
        tensor[0].code, tensor[0].bits, tensor[0].lanes = 2, 32, 1
        tensor[0].shape, tensor[0].strides = given.extents, given.steps
        return 0

    @ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
    def current_stream(device_type, device, stream):
        calls.append("current_stream")
        stream[0] = None
        return 0

    functions = (allocate, array_of, borrow, current_stream)
    api = Api(version=(1, 3))
    for name, function in zip(("allocate", "array_of", "borrow", "current_stream"), functions):
        setattr(api, name, ctypes.cast(function, ctypes.c_void_p))
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    exchange_api.name = b"dlpack_exchange_api"  # a capsule keeps the address
    exchange_api.kept = (api, functions)
    return make(ctypes.addressof(api), exchange_api.name, None)


class Exchange(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.calls = []
        ExchangedTensor.__dlpack_c_exchange_api__ = exchange_api(cls.calls)

    def setUp(self):
        self.calls.clear()

    def test_operands_are_borrowed(self):
        gate, up, out = ExchangedTensor(GATE.T), ExchangedTensor(UP.T), ExchangedTensor(np.zeros((6, 4), np.float32))
        count = sys.getrefcount(gate)
        self.assertIs(swiglu(gate, up=up, out=out), out)
        np.testing.assert_allclose(out.array, expected(GATE, UP).T, rtol=3e-7)
        self.assertEqual(self.calls, ["borrow"] * 3)
        self.assertEqual(sys.getrefcount(gate), count)

    def test_outputs_are_allocated(self):
        y = swiglu(ExchangedTensor(GATE), ExchangedTensor(UP[0]))
        self.assertIsInstance(y, ExchangedTensor)
        np.testing.assert_allclose(y.array, expected(GATE, UP[0]), rtol=3e-7)
        self.assertEqual(self.calls, ["borrow", "borrow", "allocate", "array_of", "borrow"])
        self.assertEqual(sys.getrefcount(y), 2)

    def test_put_updates_its_argument(self):
        cache = ExchangedTensor(np.zeros((4, 6), np.float32))
        store = kiln.fuse("put(cache, at, x)")
        self.assertIs(store(cache, np.array([3]), ExchangedTensor(UP[:1])), cache)
        np.testing.assert_array_equal(cache.array[3], UP[0])


if __name__ == "__main__":
    unittest.main()
