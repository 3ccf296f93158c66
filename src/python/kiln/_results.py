"""What kiln answers with: its exception and plain records. The module _kiln makes them."""

from __future__ import annotations

import html
from dataclasses import dataclass


class Error(Exception):
    """What every function of kiln raises that fails.

    ``code`` is one of "invalid_argument", "unsupported", "not_found", "compile_failed",
    "would_compile", "device", "io" and "internal"; ``driver_code`` is what a driver's call gave, a
    hipError_t or a CUresult, or None.
    """

    def __init__(self, message: str, code: str = "invalid_argument", driver_code: int | None = None):
        super().__init__(message)
        self.code = code
        self.driver_code = driver_code


@dataclass(frozen=True)
class KernelInfo:
    """The kernel of a call. ``cache`` says where it came from: "memory", "disk", "remote" or
    "compiled"; ``bytes`` is what a call reads and writes; ``fallback``, of ``look_up``, whether it is
    missing."""

    function: str
    expression: str
    entry: str
    key: str
    target: str
    variant: str
    source: str
    cache: str
    compile_ms: float
    bytes: int
    kernels: int
    fallback: bool


@dataclass(frozen=True)
class DeviceInfo:
    name: str
    target: str
    compute_units: int
    wave_size: int


@dataclass(frozen=True)
class Statistics:
    """What is kept in memory of a device: ``memory_limit`` bytes of plans, and as many of kernels."""

    memory_limit: int
    plans: int
    plan_bytes: int
    plans_dropped: int
    kernels: int
    kernel_bytes: int
    kernels_unloaded: int
    fallbacks: int


@dataclass(frozen=True)
class CacheEntry:
    """One kernel of the cache; times are seconds since 1970, ``problem`` says why it is not usable."""

    key: str
    function: str
    expression: str
    signature: str
    target: str
    toolchain: str
    compile_ms: float
    created: int
    last_used: int
    file_bytes: int
    code_bytes: int
    path: str
    problem: str


@dataclass(frozen=True)
class ExplainedKernel:
    """One kernel of an explanation, or with ``call`` a call of the user's own; ``after`` are the
    numbers of those that run before it."""

    name: str
    call: bool
    expression: str
    reason: str
    after: tuple[int, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    operations: int
    bytes: int
    unfused_bytes: int


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _clip(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


@dataclass(frozen=True, repr=False)
class Explanation:
    """Which kernels a call takes, why each begins, and what they move; a picture in a notebook."""

    name: str
    kernels: tuple[ExplainedKernel, ...]
    bytes: int
    unfused_bytes: int
    least_bytes: int
    workspace_bytes: int

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {len(self.kernels)} kernel{'s' if len(self.kernels) != 1 else ''}",
            f"moves {_bytes(self.bytes)}; unfused {_bytes(self.unfused_bytes)}; "
            f"at least {_bytes(self.least_bytes)}",
        ]
        if self.workspace_bytes:
            lines.append(f"workspace {_bytes(self.workspace_bytes)}")
        for number, kernel in enumerate(self.kernels):
            lines += [
                "",
                f"{'call' if kernel.call else 'kernel'} {number}  {kernel.name}",
                f"  because   {kernel.reason}",
                f"  computes  {kernel.expression}",
                f"  reads     {', '.join(kernel.reads)}",
                f"  writes    {', '.join(kernel.writes)}",
                f"  moves     {_bytes(kernel.bytes)}; unfused {_bytes(kernel.unfused_bytes)}",
            ]
        return "\n".join(lines)

    __repr__ = __str__  # what a prompt shows

    def _repr_svg_(self) -> str:
        """Kernels as boxes, one below the other, with arrows from those that they wait for."""
        width, height, gap, margin = 560, 84, 34, 70
        parts, passing = [], 0
        for number, kernel in enumerate(self.kernels):
            top = 10 + number * (height + gap)
            dash = ' stroke-dasharray="5 3"' if kernel.call else ""
            parts.append(
                f'<rect x="{margin}" y="{top}" width="{width}" height="{height}" rx="6" '
                f'fill="#fff" stroke="#333"{dash}/>'
            )
            moves = f"moves {_bytes(kernel.bytes)}, unfused {_bytes(kernel.unfused_bytes)}"
            lines = (kernel.name, _clip(kernel.expression, 76), _clip(kernel.reason, 76), moves)
            for row, line in enumerate(lines):
                weight = ' font-weight="bold"' if row == 0 else ""
                parts.append(
                    f'<text x="{margin + 10}" y="{top + 20 + row * 18}"{weight}>{html.escape(line)}</text>'
                )
            for before in kernel.after:
                bottom = 10 + before * (height + gap) + height
                if before == number - 1:
                    x = margin + width // 2
                    parts.append(f'<path d="M{x} {bottom}V{top - 2}" class="kiln-edge"/>')
                else:  # past the kernels in between, beside the others that do
                    x = margin - 12 - 8 * passing % (margin - 20)
                    passing += 1
                    y = bottom - height // 2
                    parts.append(
                        f'<path d="M{margin} {y}H{x}V{top + height // 2}H{margin - 2}" class="kiln-edge"/>'
                    )
        total = 20 + len(self.kernels) * (height + gap) - gap
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 2 * margin}" height="{total}" '
            'font-family="monospace" font-size="12"><defs><marker id="kiln-arrow" orient="auto" '
            'markerWidth="8" markerHeight="8" refX="7" refY="4"><path d="M0 0L8 4L0 8z"/></marker>'
            "</defs><style>.kiln-edge{fill:none;stroke:#333;marker-end:url(#kiln-arrow)}</style>"
            + "".join(parts)
            + "</svg>"
        )
