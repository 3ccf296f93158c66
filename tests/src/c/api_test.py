"""libkiln through ctypes: structures laid out by hand, a call, an error, a visitor."""
import array
import ctypes as c
import sys


class Device(c.Structure):
    _fields_ = [("type", c.c_int32), ("index", c.c_int32)]


class Stream(c.Structure):
    _fields_ = [("device", Device), ("native", c.c_void_p)]


class Error(c.Structure):
    _fields_ = [("code", c.c_int32), ("has_driver_code", c.c_int32), ("driver_code", c.c_int32),
                ("reserved", c.c_int32), ("message", c.c_char_p)]


class Configuration(c.Structure):
    _fields_ = [("size", c.c_size_t), ("cache_directory", c.c_char_p)]  # those of an older caller


class View(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device", Device), ("dtype", c.c_int32), ("rank", c.c_int32),
                ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)), ("offset", c.c_int64)]


class Scalar(c.Structure):
    _fields_ = [("bits", c.c_uint64), ("dtype", c.c_int32), ("weak", c.c_int32)]


class Argument(c.Structure):
    _fields_ = [("is_scalar", c.c_int32), ("reserved", c.c_int32), ("scalar", Scalar), ("view", View)]


class Call(c.Structure):
    _fields_ = [("inputs", c.POINTER(Argument)), ("input_count", c.c_size_t),
                ("outputs", c.POINTER(View)), ("output_count", c.c_size_t)]


KILN_OK, KILN_INVALID_ARGUMENT, KILN_NOT_FOUND, KILN_F32 = 0, 1, 3, 11

kiln = c.CDLL(sys.argv[1])
kiln.kiln_last_error.restype = c.POINTER(Error)
kiln.kiln_version.restype = c.c_char_p
kiln.kiln_function_argument_name.restype = c.c_char_p
kiln.kiln_function_argument_name.argtypes = [c.c_void_p, c.c_size_t]
kiln.kiln_function_destroy.argtypes = [c.c_void_p]


def message():
    return kiln.kiln_last_error().contents.message.decode()


def check(status):
    assert status == KILN_OK, message()


def view(numbers):
    shape = (c.c_int64 * 1)(len(numbers))
    return View(numbers.buffer_info()[0], Device(), KILN_F32, 1, shape, None, 0)


configuration = Configuration(c.sizeof(Configuration), sys.argv[2].encode())
check(kiln.kiln_configure(c.byref(configuration), __file__.encode(), 1))
print("kiln", kiln.kiln_version().decode())

function = c.c_void_p()
check(kiln.kiln_parse(b"swiglu", b"silu(gate) * up", None, c.byref(function)))
assert kiln.kiln_function_argument_name(function, 1) == b"up"

gate, up, out = array.array("f", [-1, 0, 1, 2]), array.array("f", [1, 2, 3, 4]), array.array("f", [0] * 4)
inputs = (Argument * 2)(Argument(0, 0, Scalar(), view(gate)), Argument(0, 0, Scalar(), view(up)))
outputs = (View * 1)(view(out))
call = Call(inputs, 2, outputs, 1)
status = kiln.kiln_function_call(function, c.byref(Stream()), c.byref(call))
if status == KILN_NOT_FOUND:
    print(f"C API: Skipped\nno compiler for the CPU: {message()}")
    sys.exit(77)
check(status)
assert [round(number, 4) for number in out] == [-0.2689, 0, 2.1932, 7.0464], out

call.input_count = 1
assert kiln.kiln_function_call(function, c.byref(Stream()), c.byref(call)) == KILN_INVALID_ARGUMENT
assert "swiglu" in message(), message()
kiln.kiln_function_destroy(function)

seen = []


@c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_void_p)
def visit(_, entry):
    seen.append(c.cast(entry + 8, c.POINTER(c.c_char_p))[0].decode())  # after `size`, the key
    return KILN_OK


cache = c.c_void_p()
check(kiln.kiln_cache_open(None, c.byref(cache)))
check(kiln.kiln_cache_list(cache, None, visit, None))
assert len(seen) == 1 and len(seen[0]) == 32, seen
kiln.kiln_cache_destroy(cache)
