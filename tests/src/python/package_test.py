"""The Python package on the CPU, with NumPy: what the README of src/python promises."""

import ast
import gc
import pathlib
import random
import subprocess
import sys
import threading
import unittest
import weakref

import numpy as np

import kiln

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None


def silu(x):
    return x / (1 + np.exp(-x))


GATE = np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6)
UP = np.arange(24, dtype=np.float32).reshape(4, 6)
SWIGLU = (silu(GATE.astype(np.float64)) * UP).astype(np.float32)

swiglu = kiln.fuse("silu(gate) * up", name="swiglu")


@kiln.fuse
def traced(gate, up):
    return kiln.silu(gate) * up


class Calls(unittest.TestCase):
    def assert_error(self, code, words, call, *arguments, **keywords):
        with self.assertRaises(kiln.Error) as raised:
            call(*arguments, **keywords)
        self.assertEqual(raised.exception.code, code)
        self.assertRegex(str(raised.exception), words)

    def test_text_and_callable_compute_the_same(self):
        for function in (swiglu, traced):
            y = function(GATE, UP)
            self.assertIsInstance(y, np.ndarray)
            self.assertEqual(y.dtype, np.float32)
            np.testing.assert_allclose(y, SWIGLU, rtol=3e-7)
            self.assertEqual(function.arguments, ("gate", "up"))
        self.assertEqual(traced.name, "traced")
        self.assertEqual(traced.expression, swiglu.expression)
        self.assertIn("traced(gate, up): gate * sigmoid(gate) * up", repr(traced))

    def test_arguments_by_keyword_and_position(self):
        expected = swiglu(GATE, UP)
        np.testing.assert_array_equal(swiglu(GATE, up=UP), expected)
        np.testing.assert_array_equal(swiglu(up=UP, gate=GATE), expected)

    def test_wrong_arguments_name_the_argument(self):
        self.assert_error("invalid_argument", "swiglu: the argument 'up' is missing", swiglu, GATE)
        self.assert_error("invalid_argument", "no argument 'down'", swiglu, GATE, down=UP)
        self.assert_error("invalid_argument", "'gate' is given twice", swiglu, GATE, gate=UP)
        self.assert_error("invalid_argument", "expected 2 arguments, got 3", swiglu, GATE, UP, UP)
        self.assert_error("invalid_argument", "'up': expected an array .* got list", swiglu, GATE, [1.0])
        self.assert_error("invalid_argument", "which says where to compute", swiglu, 1.0, 2.0)
        self.assert_error("invalid_argument", "broadcast", swiglu, GATE, UP[:, :5])
        self.assert_error("invalid_argument", "did you mean 'silu'", kiln.fuse, "silo(x)")
        self.assert_error("invalid_argument", "rounding: expected one of once, each", kiln.fuse, "x", rounding="up")

    def test_broadcasts_and_strides(self):
        np.testing.assert_allclose(swiglu(GATE.T[::-1, ::2], UP.T[::-1, ::2]), SWIGLU.T[::-1, ::2], rtol=3e-7)
        row = UP[0]
        np.testing.assert_allclose(swiglu(GATE, row), silu(GATE) * row, rtol=1e-6)
        self.assertEqual(swiglu(GATE[:0], UP[:0]).shape, (0, 6))
        self.assertEqual(kiln.fuse("x + 1")(np.array(1, np.float32)).shape, ())

    def test_numbers_of_python_are_weak_and_of_numpy_typed(self):
        scale = kiln.fuse("x * a")
        half = np.ones(3, np.float16)
        self.assertEqual(scale(half, 2.5).dtype, np.float16)
        self.assertEqual(scale(half, np.float32(2.5)).dtype, np.float32)
        self.assertEqual(scale(half, np.float64(2.5)).dtype, np.float64)
        self.assertEqual(scale(np.ones(3, np.int32), True).dtype, np.int32)
        self.assertEqual(scale(np.ones(3, np.uint64), 2**64 - 1)[0], 2**64 - 1)
        self.assert_error("invalid_argument", "at most 64 bits", scale, half, 2**64)

    def test_dtypes_survive(self):
        same = kiln.fuse("x")
        for name in ("bool", "uint8", "uint32", "int16", "int64", "float16", "float64", "complex64"):
            x = np.array([0, 1, 1, 0]).astype(name)
            y = same(x)
            self.assertEqual(y.dtype, x.dtype)
            np.testing.assert_array_equal(y, x)
        self.assert_error("unsupported", "with 128 bits", same, np.ones(3, np.complex128))
        self.assert_error("unsupported", "no kiln dtype", same, np.ones(3, ">f4"))

    @unittest.skipIf(ml_dtypes is None, "ml_dtypes is not installed")
    def test_dtypes_of_ml_dtypes(self):
        for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2fnuz"):
            x = np.array([[0.5, 1, 2], [-1, 4, 0]], np.float32).astype(name)
            y = kiln.fuse("x * 2")(x.T)
            np.testing.assert_array_equal(y.astype(np.float32), x.T.astype(np.float32) * 2)
        y = kiln.fuse("x * 2")(np.ones(4, "bfloat16"))
        self.assertEqual(y.dtype, np.dtype("bfloat16"))

    def test_out_is_written_and_returned(self):
        out = np.zeros((4, 6), np.float64)
        self.assertIs(swiglu(GATE, UP, out=out), out)
        np.testing.assert_allclose(out, SWIGLU, rtol=3e-7)
        x = GATE.copy()
        swiglu(x, UP, out=x)  # in place
        np.testing.assert_allclose(x, SWIGLU, rtol=3e-7)
        locked = np.zeros((4, 6), np.float32)
        locked.flags.writeable = False
        self.assert_error("invalid_argument", "'out': the array is read-only", swiglu, GATE, UP, out=locked)
        np.testing.assert_array_equal(locked, 0)
        self.assert_error("invalid_argument", "overlap", swiglu, x[:3], UP[:3], out=x[1:])

    def test_read_only_inputs_are_read(self):
        locked = GATE.copy()
        locked.flags.writeable = False
        np.testing.assert_allclose(swiglu(locked, UP), SWIGLU, rtol=3e-7)

    def test_several_outputs(self):
        @kiln.fuse
        def both(x):
            return kiln.max(x, axis=-1), x * 2

        top, twice = both(UP)
        np.testing.assert_array_equal(top, UP.max(-1, keepdims=True))
        np.testing.assert_array_equal(twice, UP * 2)
        mine = np.zeros_like(UP)
        top, twice = both(UP, out=(None, mine))
        self.assertIs(twice, mine)
        self.assert_error("invalid_argument", "expected a tuple of 2", both, UP, out=mine)
        self.assert_error("invalid_argument", "out: expected 2 arrays, got 1", both, UP, out=(mine,))

    def test_put_updates_its_argument(self):
        for make in (kiln.fuse, kiln.program):
            store = make("put(cache, at, x)", name="store")
            cache, at, x = np.zeros((4, 6), np.float32), np.array([2, 0]), UP[:2]
            self.assertIs(store(cache, at=at, x=x), cache)
            expected = np.zeros_like(cache)
            expected[at] = x
            np.testing.assert_array_equal(cache, expected)
            self.assertIs(store(cache, at=at, x=x, out=cache), cache)
            other = np.zeros_like(cache)
            self.assert_error("invalid_argument", "which put updates", store, cache, at=at, x=x, out=other)
            cache.flags.writeable = False
            self.assert_error("invalid_argument", "'cache': the array is read-only", store, cache, at=at, x=x)

    def test_only_numbers_take_an_output(self):
        fill = kiln.fuse("uniform(seed, 0)")
        out = np.zeros(1000, np.float32)
        fill(7, out=out)
        self.assertTrue(0.45 < out.mean() < 0.55)

    def test_an_exception_leaves_no_reference(self):
        array = np.ones((4, 6), np.float32)
        gone = weakref.ref(array)
        for _ in range(3):
            with self.assertRaises(kiln.Error):
                swiglu(array, UP[:, :5])
        swiglu(array, UP)
        del array
        gc.collect()
        self.assertIsNone(gone())
        count = sys.getrefcount(GATE)
        out = np.zeros((4, 6), np.float32)
        for _ in range(100):
            swiglu(GATE, UP, out=out)
        self.assertEqual(sys.getrefcount(GATE), count)

    def test_threads_call_while_one_compiles(self):
        ticks, done = [], threading.Event()

        def count():
            while not done.is_set():
                ticks.append(1)

        thread = threading.Thread(target=count)
        thread.start()
        fresh = kiln.fuse("x * 3.25 + erf(x) * lgamma(y)", name="only_here")
        compiled = fresh.info(GATE, UP).cache
        done.set()
        thread.join()
        if compiled == "compiled":  # the GIL was free meanwhile
            self.assertGreater(len(ticks), 1000)


class Tracing(unittest.TestCase):
    def test_operators_are_pythons(self):
        @kiln.fuse
        def every(x, y, i):
            a = (x + 1) * (2 - y) / (x * x + 1) // 0.5 % 3 - -x ** 2
            b = (i << 1 | 1 & ~i) ^ (i >> 1)
            c = kiln.where((x < y) & (x != 0) | (y >= 1), a, abs(x))
            return c + b.astype("f32") + (1 << i)

        x = np.linspace(-2, 2, 9, dtype=np.float32)
        y = np.linspace(0, 3, 9, dtype=np.float32)
        i = np.arange(9, dtype=np.int32)
        a = (x + 1) * (2 - y) / (x * x + 1) // 0.5 % 3 - -(x**2)
        b = (i << 1 | 1 & ~i) ^ (i >> 1)
        c = np.where((x < y) & (x != 0) | (y >= 1), a, abs(x))
        np.testing.assert_allclose(every(x, y, i), c + b.astype(np.float32) + (1 << i), rtol=1e-6)

    def test_reductions_take_axis(self):
        def norm(x, w):
            return x * kiln.rsqrt(kiln.mean(x * x, axis=-1) + 1e-5) * w

        y = kiln.fuse(norm)(UP, UP[0] + 1)
        np.testing.assert_allclose(
            y, UP / np.sqrt((UP * UP).mean(-1, keepdims=True) + 1e-5) * (UP[0] + 1), rtol=1e-5)
        total = kiln.fuse(lambda x: kiln.sum(x, axis=(0, 1)))
        self.assertEqual(total(UP).shape, (1, 1))
        self.assertEqual(total(UP)[0, 0], UP.sum())

    def test_a_value_refuses_what_is_not_known(self):
        def branches(x):
            return x if x > 0 else -x

        def leaves(x, kept=[]):
            kept.append(x)
            return kept[0]

        for body, words in ((branches, "kiln.where"), (lambda x: len(x), "length"),
                            (lambda x: x + UP, "argument of the function"), (lambda x: "x", "expected a value")):
            with self.assertRaisesRegex(kiln.Error, words):
                kiln.fuse(body)
        with self.assertRaisesRegex(kiln.Error, "given by position"):
            kiln.fuse(lambda *x: x[0])
        with self.assertRaisesRegex(kiln.Error, "cannot name an argument"):
            kiln.fuse(lambda x: x, arguments=["1x"])
        with self.assertRaisesRegex(kiln.Error, "two arguments are called"):
            kiln.fuse(lambda x, y: x, arguments=["x", "x"])
        with self.assertRaises(ZeroDivisionError):
            kiln.fuse(lambda x: x * (1 // 0))

    def test_subscripts_are_numpys(self):
        x = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
        for subscript in ("..., 0::2", "1", "-1, ..., 2", "::-1, 1:3", "None, 0", "..., None", ":, -2, None, ...",
                          "2:0:-1, ..., 4:1:-2"):
            shown = eval(f"kiln.program(lambda x: x[{subscript}] * 1)")
            np.testing.assert_array_equal(shown(x), eval(f"x[{subscript}]"), subscript)

    def test_shape_functions(self):
        x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

        @kiln.program
        def rotary(x):
            a, b = x[..., 0::2], x[..., 1::2]
            return kiln.reshape(kiln.stack([-b, a], axis=-1), 0, 0, -1)

        expected = np.stack([-x[..., 1::2], x[..., 0::2]], -1).reshape(2, 3, 4)
        np.testing.assert_array_equal(rotary(x), expected)
        both = kiln.program(lambda x, y: kiln.concat([x, y], axis=1) + 1)
        np.testing.assert_array_equal(both(x, x[:, :1]), np.concatenate([x, x[:, :1]], 1) + 1)
        turned = kiln.program(lambda x: kiln.transpose(x, 2, 0, 1) * 2)
        np.testing.assert_array_equal(turned(x), x.transpose(2, 0, 1) * 2)

    def test_every_function_of_the_text_form_has_a_name(self):
        for name in kiln._kiln.function_names():
            self.assertTrue(callable(getattr(kiln, name)), name)
        counted = kiln.fuse(lambda x: x * 0 + kiln.iota(0, "f32"))
        np.testing.assert_array_equal(counted(np.ones(4, np.float32)), np.arange(4))
        bits = kiln.fuse(lambda x: kiln.bitcast(x, np.uint32))
        np.testing.assert_array_equal(bits(np.ones(2, np.float32)), np.ones(2, np.float32).view(np.uint32))


class Programs(unittest.TestCase):
    def test_a_program_takes_several_kernels(self):
        @kiln.program
        def two_norms(x, w):
            y = x * kiln.rsqrt(kiln.mean(x * x, axis=-1) + 1e-5)
            return kiln.softmax(kiln.sum(y * w, axis=0), axis=-1)

        x, w = UP / 24, GATE
        y = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
        total = (y * w).sum(0, keepdims=True)
        expected = np.exp(total - total.max()) / np.exp(total - total.max()).sum()
        np.testing.assert_allclose(two_norms(x, w), expected, rtol=1e-5)
        explained = two_norms.explain(x, w)
        self.assertGreater(len(explained.kernels), 1)
        self.assertIn("because", str(explained))
        self.assertEqual(repr(explained), str(explained))
        self.assertIn("</svg>", explained._repr_svg_())
        self.assertEqual(explained._repr_svg_().count("<rect"), len(explained.kernels))
        self.assertGreater(explained.unfused_bytes, explained.bytes)
        needed = two_norms.workspace_bytes(x, w)
        self.assertEqual(needed, explained.workspace_bytes)
        np.testing.assert_allclose(two_norms(x, w, workspace=np.zeros(needed, np.uint8)), expected, rtol=1e-5)
        with self.assertRaisesRegex(kiln.Error, "workspace"):
            two_norms(x, w, workspace=np.zeros(needed - 1, np.uint8))

    def test_a_program_is_prepared_and_bound(self):
        factor = 1 + random.random()  # that no cache has
        centred = kiln.program(f"d = x - mean(x, 0); d + {factor} * sum(d, 1)", name="centred", on_miss="fail")
        x = UP / 24
        d = x - x.mean(0)
        expected = d + np.float32(factor) * d.sum(1, keepdims=True)
        self.assertTrue(centred.look_up(x).fallback)
        with self.assertRaises(kiln.Error) as raised:
            centred(x)
        self.assertEqual(raised.exception.code, "would_compile")
        centred.prepare("f32[4,6]", device="cpu").wait()
        self.assertFalse(centred.look_up(x).fallback)
        np.testing.assert_allclose(centred(x), expected, rtol=1e-5, atol=1e-6)
        self.assertEqual(centred.info(x).function, "centred")
        out = np.zeros_like(x)
        workspace = np.zeros(centred.workspace_bytes(x, out=out), np.uint8)
        launch = centred.bind(x, out=out, workspace=workspace)
        gone = weakref.ref(workspace)
        del workspace
        gc.collect()
        launch()
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
        other = np.zeros_like(x)
        launch.set_output(other)
        launch()
        np.testing.assert_array_equal(other, out)
        self.assertEqual(launch.info.function, "centred")
        self.assertIsNotNone(gone())
        del launch
        gc.collect()
        self.assertIsNone(gone())

    def test_a_library_call_runs_between_kernels(self):
        seen = []

        def gemm(stream, inputs, outputs):
            seen.append((stream, [view.shape for view in inputs], outputs[0].dtype))
            a, b = (np.from_dlpack(view) for view in inputs)
            # Older NumPy gives read-only arrays: written through the address instead.
            import ctypes

            size = outputs[0].shape[0] * outputs[0].shape[1]
            memory = (ctypes.c_float * size).from_address(outputs[0].data_ptr)
            np.frombuffer(memory, np.float32).reshape(outputs[0].shape)[:] = a @ b

        @kiln.program
        def block(x, w):
            y = kiln.library_call(gemm, kiln.relu(x), w, shapes=lambda a, b: (a[0], b[1]))
            return y * 2 + 1

        w = np.arange(18, dtype=np.float32).reshape(6, 3)
        np.testing.assert_allclose(block(GATE, w), np.maximum(GATE, 0) @ w * 2 + 1, rtol=1e-5)
        self.assertEqual(seen[-1], (0, [(4, 6), (6, 3)], "f32"))

        def broken(stream, inputs, outputs):
            raise KeyError("mine")

        failing = kiln.program(lambda x: kiln.library_call(broken, x, shapes=lambda a: a) + 1)
        with self.assertRaisesRegex(KeyError, "mine"):
            failing(GATE)


    def test_a_program_that_its_calls_refer_to_ends_in_silence(self):
        program = """
import kiln
def run(stream, inputs, outputs):
    return twice
twice = kiln.program(lambda x: kiln.library_call(run, x, shapes=lambda a: a) * 2)
"""
        ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
        self.assertEqual(ended.stderr, "")


class BoundAndRecorded(unittest.TestCase):
    def test_a_bound_call_takes_other_memory(self):
        scale = kiln.fuse("x * a")
        out = np.zeros(8, np.float32)
        launch = scale.bind(np.ones(8, np.float32), 2.0, out=out)
        launch()
        np.testing.assert_array_equal(out, 2)
        launch.set_input("a", 3.0)
        launch.set_input(0, np.full(8, 5, np.float32))  # kept by the launch
        gc.collect()
        launch()
        np.testing.assert_array_equal(out, 15)
        with self.assertRaisesRegex(kiln.Error, "dtype, shape, strides"):
            launch.set_input("x", np.ones(9, np.float32))
        other = np.zeros(8, np.float32)
        launch.set_output(other)
        launch()
        np.testing.assert_array_equal(other, 15)

    def test_a_graph_replays_calls(self):
        x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
        copied = np.zeros(8, np.float32)
        double = kiln.fuse("x * a")
        steps = []

        @kiln.record("cpu")
        def graph(recorder):
            y = recorder.call(double, x, 2.0)  # its memory is the graph's
            recorder.call(kiln.program("sum(y, -1) + y"), y, out=out)
            recorder.copy(out, copied)
            recorder.sequence("mine", lambda stream: steps.append(stream), reads=[copied])
            self.recorder = recorder

        gc.collect()
        for _ in range(2):
            graph()
        np.testing.assert_array_equal(copied, 18)
        self.assertEqual(steps, [0, 0])
        self.assertEqual(graph.operations[-2:], ["copy", "mine"])
        self.assertTrue(any(reason == "read after write" for _, _, reason in graph.edges))
        graph.set_scalar(0, 1, 3.0)
        other = np.full(8, 2, np.float32)
        self.assertEqual(graph.rebind(x, other), 1)
        graph()
        np.testing.assert_array_equal(out, 54)
        with self.assertRaisesRegex(kiln.Error, "after the body"):
            self.recorder.fill(out)

    def test_a_graph_lets_go_of_what_it_is_bound_to_no_more(self):
        x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
        first = kiln.fuse("x * 3")
        graph = kiln.record("cpu", lambda recorder: recorder.call(first, out=out, x=x))
        arrays = []
        for number in range(3):
            other = np.full(8, number, np.float32)
            self.assertEqual(graph.rebind(x, other), 1)
            arrays.append(weakref.ref(other))
            x = other
            graph()
            np.testing.assert_array_equal(out, 3 * number)
        del other, x
        gc.collect()
        self.assertEqual([array() is None for array in arrays], [True, True, False])
        graph()
        np.testing.assert_array_equal(out, 6)

    def test_a_kernel_of_ones_own(self):
        scale = kiln.kernel("scale", '''
            extern "C" __global__ void scale(const float* x, float* y, float a, unsigned n) {
              unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
              if (i < n) y[i] = a * x[i];
            }''', ["reads f32", "writes f32", "f32", "u32"])
        x, y = np.arange(1000, dtype=np.float32), np.zeros(1000, np.float32)
        self.assertEqual(scale.prepare("cpu").function, "scale")
        scale(x, y, 2.0, 1000, grid=1000)
        np.testing.assert_array_equal(y, 2 * x)
        scale(x, y, 3.0, 1000, grid=((4,), (256, 1, 1)))
        np.testing.assert_array_equal(y, 3 * x)
        graph = kiln.record(x, lambda recorder: recorder.call(scale, x, y, 4.0, 1000, grid=(4, 256)))
        graph()
        np.testing.assert_array_equal(y, 4 * x)
        with self.assertRaisesRegex(kiln.Error, "parameters"):
            kiln.kernel("scale", "", ["takes f32"])
        with self.assertRaisesRegex(kiln.Error, "grid"):
            scale(x, y, 2.0, 1000, grid=(1, 2, 3, 4))

    def test_copy(self):
        to = np.zeros((6, 4), np.float64)
        kiln.copy(UP.T, to)
        np.testing.assert_array_equal(to, UP.T)


class Process(unittest.TestCase):
    def test_prepare_compiles_ahead(self):
        factor = 1 + random.random()  # that no cache has
        function = kiln.fuse(f"x * {factor} + y", name="prepared", on_miss="fail")
        with self.assertRaises(kiln.Error) as raised:
            function(GATE, UP)
        self.assertEqual(raised.exception.code, "would_compile")
        preparation = function.prepare("f32[4,6]", UP, device="cpu")
        preparation.wait()
        self.assertTrue(preparation.ready)
        np.testing.assert_allclose(function(GATE, UP), GATE * np.float32(factor) + UP, rtol=1e-5)

    def test_many_calls_are_prepared_side_by_side(self):
        first = kiln.fuse(f"x * {1 + random.random()} + y", on_miss="fail")
        second = kiln.fuse(f"exp(x * {1 + random.random()})", on_miss="fail")
        seen = []
        done = kiln.prepare_all([(first, "f32[4,6]", UP), (second, UP), (first, "f32[4,6]", "f32[7]")],
                                device="cpu", progress=lambda *numbers: seen.append(numbers))
        self.assertEqual([numbers[1:] for numbers in seen], [(1, 3), (2, 3), (3, 3)])
        self.assertEqual(sorted(numbers[0] for numbers in seen), [0, 1, 2])
        done[0].wait()
        done[1].wait()
        with self.assertRaisesRegex(kiln.Error, "broadcast"):
            done[2].wait()
        first(GATE, UP)
        second(UP)

        def broken(index, done, total):
            raise KeyError(done)

        with self.assertRaises(KeyError):
            kiln.prepare_all([(second, UP)], progress=broken)
        with self.assertRaisesRegex(kiln.Error, "expected a Function"):
            kiln.prepare_all([("x + 1", UP)])
        self.assertEqual(kiln.prepare_all([]), [])

    def test_fallback_serves_the_call_meanwhile(self):
        program = """
import random, numpy as np, kiln
kiln.configure(memory_limit=1 << 28)
assert kiln.statistics("cpu").memory_limit == 1 << 28
kiln.lend_fallback_memory(np.zeros(1 << 17, np.float64))
x = np.arange(24, dtype=np.float32)
function = kiln.fuse(f"x * {1 + random.random()} + x", name="served", on_miss="fallback")
first = function(x)
assert function.look_up(x).entry or function.look_up(x).fallback
info = function.info(x)
assert not function.look_up(x).fallback and function.look_up(x).cache == "memory"
kiln.lend_fallback_memory(None, "cpu")
np.testing.assert_array_equal(function(x), first)
"""
        subprocess.run([sys.executable, "-c", program], check=True)

    def test_prepare_refuses_what_is_no_type(self):
        function = kiln.fuse("x + y")
        for wrong in ("f33[4]", "f32[4", "f32[a]", "f32[-1]"):
            with self.assertRaisesRegex(kiln.Error, "expected a type"):
                function.prepare(wrong, "f32[4]")

    def test_info_and_cache(self):
        info = swiglu.info(GATE, UP)
        self.assertIn("sigmoid", info.expression)
        self.assertEqual(info.kernels, 1)
        cache = kiln.cache.open()
        entries = cache.list(function="swiglu")
        self.assertIn(info.key, [entry.key for entry in entries])
        source, code = cache.read(info.key)
        self.assertIn("sigmoid", source)
        self.assertTrue(code.startswith(b"\x7fELF"))
        self.assertEqual(cache.verify(), [])
        self.assertGreater(cache.stats()["published"], 0)
        self.assertEqual(cache.trim(unused_seconds=10**9, dry_run=True), 0)
        with self.assertRaises(kiln.Error) as raised:
            cache.read("0" * 32)
        self.assertEqual(raised.exception.code, "not_found")

    def test_bundles_and_the_remote_tier(self):
        import os
        import tempfile

        swiglu.info(GATE, UP)
        cache = kiln.cache.open()
        count = len(cache.list(function="swiglu"))
        self.assertGreater(count, 0)
        with tempfile.TemporaryDirectory() as directory:
            bundle = os.path.join(directory, "bundle")
            self.assertEqual(cache.export(bundle, function="swiglu"), count)
            os.mkdir(os.path.join(directory, "other"), 0o700)
            other = kiln.cache.open(os.path.join(directory, "other"))
            self.assertEqual(other.import_(bundle), count)
            self.assertEqual(other.import_(bundle), 0)
            self.assertEqual(other.clear(), count)
            for call in (cache.push, cache.pull):
                with self.assertRaises(kiln.Error) as raised:
                    call()
                self.assertEqual(raised.exception.code, "not_found")
            with self.assertRaises(kiln.Error) as raised:
                kiln.cache.use_remote(f"redis+unix://{directory}/nobody")
            if raised.exception.code == "unsupported":
                self.skipTest("the remote tier: this build has no hiredis")
            self.assertIn("KILN_CACHE_SECRET", str(raised.exception))
            kiln.cache.use_remote(f"redis+unix://{directory}/nobody", "0123456789abcdef0123456789abcdef")
            with self.assertRaises(kiln.Error) as raised:
                kiln.cache.open().push(function="swiglu")
            self.assertEqual(raised.exception.code, "io")
            kiln.cache.use_remote("")

    def test_devices_and_log(self):
        self.assertEqual(kiln.devices()[-1], "cpu")
        self.assertGreater(kiln.device_info("cpu").compute_units, 0)
        lines = []
        kiln.set_log(lambda level, line: lines.append((level, line)))
        with self.assertRaises(kiln.Error):
            kiln.device_info("cuda:99")
        kiln.set_log(None)
        with self.assertRaisesRegex(kiln.Error, "in use|configure"):
            kiln.configure(jobs=3)

    def test_a_compiler_error_says_what_it_says(self):
        with self.assertRaises(kiln.Error) as raised:
            kernel = kiln.kernel("wrong", 'extern "C" __global__ void wrong(float* x) { oops; }', ["writes f32"])
            kernel(np.zeros(1, np.float32), grid=1)
        self.assertEqual(raised.exception.code, "compile_failed")
        self.assertIn("oops", str(raised.exception))
        self.assertIsNone(raised.exception.driver_code)


class Readme(unittest.TestCase):
    def test_its_examples_print_what_they_say(self):
        import contextlib
        import io
        import os

        text = pathlib.Path(os.environ["SOURCE"], "src/python/README.md").read_text()
        blocks = [block.split("```")[0] for block in text.split("```python\n")[1:]]
        example = "\n".join(blocks)
        said = [line.split("# ")[-1] for line in example.splitlines() if line.strip().startswith("print(")]
        self.assertTrue(said)
        printed = io.StringIO()
        source = pathlib.Path(os.environ["SCRATCH"], "readme_example.py")  # tracing reads no source, people do
        source.write_text(example)
        with contextlib.redirect_stdout(printed):
            exec(compile(example, str(source), "exec"), {})
        self.assertEqual(printed.getvalue().split(), " ".join(said).split())


class Stubs(unittest.TestCase):
    """The stubs, which are kept by hand, name what there is."""

    def names_of(self, module):
        path = pathlib.Path(module.__file__).with_suffix(".pyi")
        names = {}
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                names[node.name] = {
                    getattr(item, "name", None) or item.target.id for item in node.body
                    if isinstance(item, (ast.FunctionDef, ast.AnnAssign))}
            elif isinstance(node, ast.FunctionDef):
                names[node.name] = [a.arg for a in node.args.posonlyargs + node.args.args + node.args.kwonlyargs]
            elif isinstance(node, ast.AnnAssign):
                names[node.target.id] = None
        return names

    def test_stubs_have_what_the_modules_have(self):
        import inspect

        for module in (kiln, kiln.cache):
            stubbed = {name: what for name, what in self.names_of(module).items() if not name.startswith("_")}
            self.assertEqual(sorted(stubbed), sorted(set(module.__all__) - {"cache"}), module.__name__)
            for name, what in stubbed.items():
                there = getattr(module, name)
                if isinstance(there, type):
                    public = {item for item in vars(there) if not item.startswith("_")}
                    public |= set(getattr(there, "__dataclass_fields__", ()))
                    listed = {item for item in what if not item.startswith("_")}
                    if name == "Error":
                        public |= {"code", "driver_code"}
                    self.assertEqual(listed, public, name)
                elif inspect.isfunction(there) and isinstance(what, list):
                    given = list(inspect.signature(there).parameters)
                    self.assertEqual(what, [p for p in given if p not in ("operands", "inputs")], name)


if __name__ == "__main__":
    unittest.main()
