"""libkiln through ctypes: structures laid out by hand, a call, an error, a visitor, the remote tier."""
import array
import ctypes as c
import shutil
import socket
import subprocess
import sys
import tempfile
import time


class Device(c.Structure):
    _fields_ = [("type", c.c_int32), ("index", c.c_int32)]


class Stream(c.Structure):
    _fields_ = [("device", Device), ("native", c.c_void_p)]


class Error(c.Structure):
    _fields_ = [("code", c.c_int32), ("has_driver_code", c.c_int32), ("driver_code", c.c_int32),
                ("reserved", c.c_int32), ("message", c.c_char_p)]


class Configuration(c.Structure):
    _fields_ = [("size", c.c_size_t), ("cache_directory", c.c_char_p)]  # those of an older caller


class Transfer(c.Structure):
    _fields_ = [("size", c.c_size_t), ("entries", c.c_uint64), ("bytes", c.c_uint64), ("present", c.c_uint64),
                ("vanished", c.c_uint64), ("problems", c.c_uint64), ("signature", c.c_int32),
                ("reserved", c.c_int32)]


class Policy(c.Structure):
    _fields_ = [("size", c.c_size_t), ("max_size", c.c_void_p), ("unused_seconds", c.c_void_p),
                ("filter", c.c_void_p), ("dry_run", c.c_int32), ("reserved", c.c_int32)]


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


KILN_OK, KILN_INVALID_ARGUMENT, KILN_UNSUPPORTED, KILN_NOT_FOUND, KILN_IO, KILN_F32 = 0, 1, 2, 3, 7, 11

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


def opened():
    cache = c.c_void_p()
    check(kiln.kiln_cache_open(None, c.byref(cache)))
    return cache


def entries(cache):
    seen.clear()
    check(kiln.kiln_cache_list(cache, None, visit, None))
    return len(seen)


cache = opened()
assert entries(cache) == 1 and len(seen[0]) == 32, seen
kiln.kiln_cache_destroy(cache)


def serve(directory):
    """A server on a socket there; None without one. Its package of tools has it by another name."""
    programs = ("valkey-server", "redis-server", "valkey-check-rdb", "redis-check-rdb")
    program = next(filter(None, map(shutil.which, programs)), None)
    if program is None:
        return None
    server = subprocess.Popen(
        ["redis-server", "--port", "0", "--unixsocket", f"{directory}/socket", "--save", "", "--dir", directory],
        executable=program, stdout=subprocess.DEVNULL)
    limit = time.monotonic() + 60
    while True:
        try:
            socket.socket(socket.AF_UNIX).connect(f"{directory}/socket")
            return server
        except OSError:
            assert server.poll() is None and time.monotonic() < limit, "the server does not answer"


def use_remote_tier(directory):
    url, secret = f"redis+unix://{directory}/socket".encode(), b"0123456789abcdef0123456789abcdef"
    status = kiln.kiln_cache_use_remote(url, b"")
    if status == KILN_UNSUPPORTED:
        print("not tested: the remote tier, without hiredis")
        return
    assert status == KILN_INVALID_ARGUMENT and "KILN_CACHE_SECRET" in message(), message()
    check(kiln.kiln_cache_use_remote(url, secret))
    cache = opened()
    assert kiln.kiln_cache_push(cache, None, None) == KILN_IO, message()
    kiln.kiln_cache_destroy(cache)
    server = serve(directory)
    if server is None:
        print("not tested: the remote tier with a server (Debian: redis-tools)")
        return
    try:
        cache = opened()
        transfer = Transfer(c.sizeof(Transfer))
        check(kiln.kiln_cache_push(cache, None, c.byref(transfer)))
        assert (transfer.entries, transfer.present) == (1, 0), (transfer.entries, transfer.present)
        check(kiln.kiln_cache_trim(cache, c.byref(Policy(c.sizeof(Policy))), None))
        assert entries(cache) == 0
        check(kiln.kiln_cache_pull(cache, None, c.byref(transfer)))
        assert transfer.entries == 1 and entries(cache) == 1
        kiln.kiln_cache_destroy(cache)
    finally:
        server.kill()
        server.wait()


with tempfile.TemporaryDirectory() as place:
    use_remote_tier(place)
