"""The Python package with PyTorch, CuPy and JAX; on a GPU where there is one. Each that is absent is
skipped."""

import importlib.util
import sys
import unittest

import kiln

GPU = next((device for device in kiln.devices() if device != "cpu"), None)


def have(module):
    return importlib.util.find_spec(module) is not None


if not any(have(module) for module in ("torch", "cupy", "jax")):
    print("python.gpu: Skipped\nnone of PyTorch, CuPy and JAX is installed")
    sys.exit(77)

swiglu = kiln.fuse("silu(gate) * up", name="swiglu")


@unittest.skipUnless(have("torch"), "PyTorch is not installed")
class PyTorch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import torch

        cls.torch = torch
        torch.manual_seed(1)
        cls.on_gpu = GPU is not None and torch.cuda.is_available()
        cls.device = "cuda" if cls.on_gpu else "cpu"

    def random(self, *shape, dtype=None):
        return self.torch.randn(*shape, device=self.device).to(dtype or self.torch.float32)

    def test_dtypes_broadcasts_and_strides(self):
        torch = self.torch
        for dtype, tolerance in ((torch.float32, 1e-6), (torch.bfloat16, 1e-2), (torch.float16, 2e-3)):
            gate, up = self.random(64, 48, dtype=dtype), self.random(48, dtype=dtype)
            for g in (gate, gate.t().contiguous().t(), gate[::2, :], gate[:, 3:4]):
                y = swiglu(g, up)
                self.assertEqual((y.dtype, y.device.type), (dtype, self.device))
                expected = torch.nn.functional.silu(g.float()) * up.float()
                torch.testing.assert_close(y.float(), expected, rtol=tolerance, atol=tolerance)

    def test_out_and_reductions(self):
        torch = self.torch
        x, w = self.random(32, 1000, dtype=torch.bfloat16), self.random(1000)
        norm = kiln.fuse("rms_norm(x, w, 1e-5)")
        out = torch.empty(32, 1000, device=self.device)
        self.assertIs(norm(x, w, out=out), out)
        f = x.float()
        torch.testing.assert_close(out, f * torch.rsqrt((f * f).mean(-1, keepdim=True) + 1e-5) * w, rtol=1e-5,
                                   atol=1e-5)

    def test_eight_bit_floats(self):
        if not hasattr(self.torch, "float8_e4m3fn"):
            self.skipTest("this PyTorch has no 8-bit floats")
        x = self.random(16, 16).to(self.torch.float8_e4m3fn)
        try:
            y = kiln.fuse("x * 2.0")(x)
        except BufferError as error:
            self.skipTest(f"this PyTorch does not export them: {error}")
        self.torch.testing.assert_close(y.float(), (x.float() * 2).to(y.dtype).float())

    def test_programs(self):
        torch = self.torch

        @kiln.program
        def block(x, w):
            def gemm(stream, inputs, outputs):
                a, b = (torch.from_dlpack(view) for view in inputs)
                c = torch.from_dlpack(outputs[0])
                if self.on_gpu:
                    with torch.cuda.stream(torch.cuda.ExternalStream(stream) if stream else
                                           torch.cuda.default_stream()):
                        torch.matmul(a, b, out=c)
                else:
                    torch.matmul(a, b, out=c)

            y = kiln.library_call(gemm, kiln.relu(x), w, shapes=lambda a, b: (a[0], b[1]))
            return kiln.softmax(y + 1, axis=-1)

        x, w = self.random(40, 64), self.random(64, 24)
        torch.testing.assert_close(block(x, w), torch.softmax(torch.relu(x) @ w + 1, -1), rtol=2e-3, atol=2e-4)

    def test_tensors_that_are_not_what_memory_holds(self):
        torch = self.torch
        x = torch.randn(8, dtype=torch.complex64, device=self.device)
        with self.assertRaisesRegex((kiln.Error, BufferError), "conj"):
            kiln.fuse("x * 2")(x.conj())
        weight = torch.nn.Parameter(self.random(8))
        torch.testing.assert_close(kiln.fuse("w * 2")(weight), weight.detach() * 2)

    def test_the_current_stream_orders_calls(self):
        torch = self.torch
        if not self.on_gpu:
            self.skipTest("no GPU")
        add = kiln.fuse("x + 1")
        x = torch.zeros(1 << 24, device="cuda")
        add(x, out=x)
        torch.cuda.synchronize()
        x.zero_()
        torch.cuda.synchronize()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            torch.cuda._sleep(50_000_000)  # whoever is on another stream overtakes
            x.fill_(41)
            y = add(x)
            add(x, out=x)
        side.synchronize()
        self.assertEqual((y == 42).all().item(), True)
        self.assertEqual((x == 42).all().item(), True)
        with self.assertRaisesRegex(kiln.Error, "stream: memory can be allocated only"):
            add(x, stream=side)
        torch.cuda.synchronize()
        add(x, out=x, stream=side)
        add(x, out=x, stream=side.cuda_stream)
        side.synchronize()
        self.assertEqual(x[0].item(), 44)

    def test_graphs(self):
        torch = self.torch
        if not self.on_gpu:
            self.skipTest("no GPU")
        x, y = torch.ones(4096, device="cuda"), torch.zeros(4096, device="cuda")
        double = kiln.fuse("x * 2")
        graph = kiln.record(x, lambda r: (r.call(double, x, out=y), r.call(double, y, out=x)))
        for _ in range(3):
            graph()
        self.assertEqual(x[7].item(), 64)
        self.assertTrue(graph.replayed)
        captured = torch.cuda.CUDAGraph()  # PyTorch's own
        double(x, out=y)
        torch.cuda.synchronize()
        with torch.cuda.graph(captured):
            double(x, out=y)
            z = double(y)
        x.fill_(3)
        captured.replay()
        torch.cuda.synchronize()
        self.assertEqual(z[9].item(), 12)

    def test_torch_allocates_and_frees_its_own_memory(self):
        torch = self.torch
        if not self.on_gpu:
            self.skipTest("no GPU")
        x = torch.ones(1 << 20, device="cuda")
        swiglu(x, x)
        before = torch.cuda.memory_allocated()
        for _ in range(20):
            y = swiglu(x, x)
            self.assertEqual(torch.cuda.memory_allocated() - before, x.nbytes)
            del y
        self.assertEqual(torch.cuda.memory_allocated(), before)


@unittest.skipUnless(have("cupy"), "CuPy is not installed")
class CuPy(unittest.TestCase):
    def setUp(self):
        if GPU is None:
            self.skipTest("no GPU")
        import cupy

        self.cupy = cupy

    def test_calls_and_streams(self):
        cupy = self.cupy
        gate, up = cupy.linspace(-2, 2, 4096, dtype=cupy.float32), cupy.arange(4096, dtype=cupy.float32)
        expected = gate / (1 + cupy.exp(-gate)) * up
        y = swiglu(gate[::-1], up[::-1])
        self.assertIsInstance(y, cupy.ndarray)
        cupy.testing.assert_allclose(y, expected[::-1], rtol=1e-5)
        with cupy.cuda.Stream(non_blocking=True) as stream:
            x = cupy.full(1 << 22, 41, cupy.float32)
            z = kiln.fuse("x + 1")(x)
            stream.synchronize()
            self.assertTrue(bool((z == 42).all()))
        for dtype in ("bool", "int8", "uint16", "int64", "float16", "float64", "complex64"):
            x = cupy.array([0, 1, 1]).astype(dtype)
            cupy.testing.assert_array_equal(kiln.fuse("x")(x), x)


@unittest.skipUnless(have("jax"), "JAX is not installed")
class Jax(unittest.TestCase):
    def test_arrays_on_the_host(self):
        import jax
        import numpy as np

        with jax.default_device(jax.devices("cpu")[0]):
            x = jax.numpy.linspace(-2.0, 2.0, 100).reshape(4, 25)
            y = swiglu(x, x)
            self.assertIsInstance(y, jax.Array)
            np.testing.assert_allclose(np.asarray(y), np.asarray(jax.nn.silu(x) * x), rtol=1e-5)

    def test_arrays_on_a_gpu_are_read(self):
        import jax

        if GPU is None or not have("torch") or jax.default_backend() == "cpu":
            self.skipTest("no GPU, or no PyTorch to write into")
        import torch

        x = jax.numpy.linspace(-2.0, 2.0, 4096)
        with self.assertRaisesRegex(kiln.Error, "give the output as an array of another framework"):
            swiglu(x, x)
        out = torch.empty(4096, device="cuda")
        swiglu(x, x, out=out)
        g = torch.linspace(-2, 2, 4096, device="cuda")
        torch.testing.assert_close(out, torch.nn.functional.silu(g) * g, rtol=1e-5, atol=1e-6)


if __name__ == "__main__":
    unittest.main(verbosity=2)
