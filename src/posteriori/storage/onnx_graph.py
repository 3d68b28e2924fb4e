"""ONNX graphs written as formulas: values with operators, of standard ONNX operators alone.

Every value is float64 unless it says otherwise. Arrays that meet a value become constants of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["Graph", "Value", "import_onnx", "log1p"]

_SMALL = 64
"""Bytes up to which equal constants are stored once."""


def import_onnx() -> Any:
    """The package `onnx`, or an error that says how to get it."""
    try:
        import onnx
    except ImportError as error:
        raise ImportError("Export to ONNX needs the package onnx: pip install 'posteriori[onnx]'.") from error
    return onnx


class Value:
    """The result of an operator of the graph, known by its name."""

    __array_ufunc__ = None  # array - value is ours to compute, not NumPy's

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name = graph, name

    def __add__(self, other: Any) -> Value:
        return self.graph.op("Add", self, other)

    def __radd__(self, other: Any) -> Value:
        return self.graph.op("Add", other, self)

    def __sub__(self, other: Any) -> Value:
        return self.graph.op("Sub", self, other)

    def __rsub__(self, other: Any) -> Value:
        return self.graph.op("Sub", other, self)

    def __mul__(self, other: Any) -> Value:
        return self.graph.op("Mul", self, other)

    def __rmul__(self, other: Any) -> Value:
        return self * other

    def __truediv__(self, other: Any) -> Value:
        return self.graph.op("Div", self, other)

    def __rtruediv__(self, other: Any) -> Value:
        return self.graph.op("Div", other, self)

    def __matmul__(self, other: Any) -> Value:
        return self.graph.op("MatMul", self, other)

    def __rmatmul__(self, other: Any) -> Value:
        return self.graph.op("MatMul", other, self)

    def __neg__(self) -> Value:
        return self.graph.op("Neg", self)

    def square(self) -> Value:
        """The square of each number."""
        return self.graph.op("Mul", self, self)

    def scaled(self, factors: np.ndarray) -> Value:
        """Each column of a matrix times its factor.

        A single factor becomes a matrix: onnxruntime merges products of matrices with a number before or after them,
        and rounds that number to float32 (MatMulScaleFusion, seen in 1.31). For the same reason no formula here
        multiplies the product of two matrices by a number.
        """
        return self @ np.reshape(factors, (1, 1)) if np.size(factors) == 1 else self * factors

    def columns(self, index: np.ndarray) -> Value:
        """Chosen columns of a matrix, in the order given."""
        return self.graph.op("Gather", self, np.asarray(index, dtype=np.int64), axis=1)

    def part(self, starts: list[int], stops: list[int], axes: list[int]) -> Value:
        """The part from start to stop along each of the axes; a stop beyond the end is the end."""
        return self.graph.op("Slice", self, *(np.array(which, dtype=np.int64) for which in (starts, stops, axes)))

    def padded(self, before: int, after: int, value: float = 0.0) -> Value:
        """The matrix with more columns, or many matrices with more rows each."""
        return self.graph.op("Pad", self, np.array([before, after], dtype=np.int64), value, np.array([1]))

    def reshaped(self, *shape: int) -> Value:
        """The numbers in another shape; 0 keeps the size of that axis."""
        return self.graph.op("Reshape", self, np.array(shape, dtype=np.int64))

    def transposed(self, *axes: int) -> Value:
        """The numbers with their axes in another order."""
        return self.graph.op("Transpose", self, perm=list(axes))

    def integers(self) -> Value:
        """The numbers as whole numbers (int64)."""
        return self.graph.op("Cast", self, to=self.graph.int64)

    def expanded(self, *axes: int) -> Value:
        """The numbers with new axes of size one at these places."""
        return self.graph.op("Unsqueeze", self, np.array(axes, dtype=np.int64))

    def sum(self, axis: int, keepdims: bool = False) -> Value:
        """The sum along an axis."""
        return self.graph.op("ReduceSum", self, np.array([axis]), keepdims=int(keepdims))

    def max(self, axis: int, keepdims: bool = False) -> Value:
        """The greatest along an axis."""
        return self.graph.op("ReduceMax", self, np.array([axis]), keepdims=int(keepdims))

    def where(self, truth: Value, other: Any) -> Value:
        """The value itself where the condition is true, the other elsewhere."""
        return self.graph.op("Where", truth, self, other)

    def is_nan(self) -> Value:
        """Whether each number is NaN."""
        return self.graph.op("IsNaN", self)

    def softmax(self, axis: int = -1) -> Value:
        """The softmax along an axis; runtimes subtract the greatest first."""
        return self.graph.op("Softmax", self, axis=axis)


class Graph:
    """A graph as it grows: operators, and the constants they use."""

    def __init__(self) -> None:
        self._onnx = import_onnx()
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._known: dict[Any, str] = {}
        self._count = 0
        self._names: set[str] = set()

    def op(self, kind: str, *inputs: Any, **attributes: Any) -> Value:
        """The value of one operator."""
        names = [x.name if isinstance(x, Value) else self._constant(x) for x in inputs]
        out = self._name(kind)
        self._nodes.append(self._onnx.helper.make_node(kind, names, [out], name=out, **attributes))
        return Value(self, out)

    def input(self, name: str) -> Value:
        """The input of this name."""
        self._names.add(name)
        return Value(self, name)

    @property
    def int64(self) -> int:
        """The type of whole numbers."""
        return int(self._onnx.TensorProto.INT64)

    def sorted(self, values: Value, size: int) -> tuple[Value, Value]:
        """Values in ascending order along their last axis, which has this size, and the places where they were."""
        names = [self._name("sorted"), self._name("order")]
        inputs = [values.name, self._constant(np.array([size], dtype=np.int64))]
        self._nodes.append(self._onnx.helper.make_node("TopK", inputs, names, name=names[0], axis=-1, largest=0))
        ordered, order = (Value(self, name) for name in names)
        return ordered, order

    def added_up(self, term: Callable[..., Value], like: Value, *sequences: np.ndarray) -> Value:
        """The sum of term(s_i, t_i, ...) over the first axis of sequences; all terms have the shape of `like`.

        One term is held in memory at a time.
        """
        helper, double = self._onnx.helper, self._onnx.TensorProto.DOUBLE
        zero = self._onnx.numpy_helper.from_array(np.zeros(1))
        start = self.op("ConstantOfShape", self.op("Shape", like), value=zero)
        outside, self._nodes = self._nodes, []
        total, *slices = [Value(self, self._name("of")) for _ in range(1 + len(sequences))]
        new = total + term(*slices)
        inputs = [helper.make_tensor_value_info(v.name, double, None) for v in (total, *slices)]
        outputs = [helper.make_tensor_value_info(new.name, double, None)]
        body = helper.make_graph(self._nodes, self._name("term"), inputs, outputs)
        self._nodes = outside
        return self.op("Scan", start, *sequences, body=body, num_scan_inputs=len(sequences))

    def output(self, value: Value, name: str) -> None:
        """Make a value an output of the graph, under this name."""
        self._nodes.append(self._onnx.helper.make_node("Identity", [value.name], [name], name=name + "_output"))

    def model(self, name: str, inputs: list[Any], outputs: list[Any], opset: int, **about: Any) -> Any:
        """The whole graph as a ModelProto."""
        helper = self._onnx.helper
        graph = helper.make_graph(self._nodes, name, inputs, outputs, initializer=self._constants)
        opsets = [helper.make_opsetid("", opset)]
        if any(node.domain == "ai.onnx.ml" for node in self._nodes):
            opsets.append(helper.make_opsetid("ai.onnx.ml", 3))
        # the oldest format that has these operators: more runtimes read it
        return helper.make_model(
            graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets), **about
        )

    def _constant(self, value: Any) -> str:
        array = np.asarray(value)
        if array.dtype == object or array.dtype.kind == "U":
            array = array.astype(object)
        elif array.dtype.kind not in "ib":
            array = array.astype(np.float64)
        key = None
        if array.dtype != object and array.nbytes <= _SMALL:
            key = (array.dtype.str, array.shape, array.tobytes())
            if key in self._known:
                return self._known[key]
        name = self._name("constant")
        self._constants.append(
            self._onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        )
        if key is not None:
            self._known[key] = name
        return name

    def _name(self, kind: str) -> str:
        self._count += 1
        name = f"{kind.lower()}_{self._count}"
        return self._name(kind) if name in self._names else name


def log1p(q: Value) -> Value:
    """log(1 + q) for finite q >= 0, to full accuracy: log u + (q - (u - 1)) / u with u = 1 + q as rounded."""
    u = 1.0 + q
    return q.graph.op("Log", u) + (q - (u - 1.0)) / u
