"""CSL that another compiler prints: a program in the `csl` dialect of xDSL, printed, compiled and run."""

from __future__ import annotations

import io

import numpy as np
import pytest

from tests.fabric.csl.running import device_of

ROWS, COLUMNS = 4, 6
PROGRAM = """
"csl.module"() <{kind = #csl<module_kind program>}> ({
  "memref.global"() {sym_name = "a", type = memref<24xf32>, sym_visibility = "public",
                     initial_value = dense<0.5> : tensor<1xf32>} : () -> ()
  "memref.global"() {sym_name = "x", type = memref<6xf32>, sym_visibility = "public",
                     initial_value = dense<2.0> : tensor<1xf32>} : () -> ()
  "memref.global"() {sym_name = "y", type = memref<4xf32>, sym_visibility = "public",
                     initial_value = dense<0.0> : tensor<1xf32>} : () -> ()
  csl.func @weight(%j : i16, %xj : f32) -> f32 {
    %two = arith.constant 2 : i16
    %far = arith.cmpi sgt, %j, %two : i16
    %half = arith.constant 0.5 : f32
    %less = arith.mulf %xj, %half : f32
    %chosen = arith.select %far, %less, %xj : f32
    csl.return %chosen : f32
  }
  csl.task @multiply() attributes {kind = #csl<task_kind local>, id = 8 : ui5} {
    %a = memref.get_global @a : memref<24xf32>
    %x = memref.get_global @x : memref<6xf32>
    %y = memref.get_global @y : memref<4xf32>
    %rows = arith.constant 4 : i16
    %none = arith.constant 0 : i16
    %one = arith.constant 1 : i16
    %columns = arith.constant 6 : i16
    %ys = "csl.get_mem_dsd"(%y, %rows) : (memref<4xf32>, i16) -> !csl<dsd mem1d_dsd>
    %first = "csl.get_mem_dsd"(%a, %rows) <{tensor_access = affine_map<(d0) -> (d0 * 6)>}>
        : (memref<24xf32>, i16) -> !csl<dsd mem1d_dsd>
    scf.for %j = %none to %columns step %one : i16 {
      %at = arith.index_cast %j : i16 to index
      %xj = memref.load %x[%at] : memref<6xf32>
      %w = "csl.call"(%j, %xj) <{callee = @weight}> : (i16, f32) -> f32
      %column = "csl.increment_dsd_offset"(%first, %j) <{elem_type = f32}>
          : (!csl<dsd mem1d_dsd>, i16) -> !csl<dsd mem1d_dsd>
      "csl.fmacs"(%ys, %ys, %column, %w)
          : (!csl<dsd mem1d_dsd>, !csl<dsd mem1d_dsd>, !csl<dsd mem1d_dsd>, f32) -> ()
    }
    csl.return
  }
}) {sym_name = "program.csl"} : () -> ()
"csl.module"() <{kind = #csl<module_kind layout>}> ({
  csl.layout {
    %one = arith.constant 1 : i32
    %none = arith.constant 0 : i32
    "csl.set_rectangle"(%one, %one) : (i32, i32) -> ()
    "csl.set_tile_code"(%none, %none) <{file = "program.csl"}> : (i32, i32) -> ()
  }
}) {sym_name = "layout.csl"} : () -> ()
"""


def printed(text):
    """Return the files that xDSL prints for a program, by name."""
    reason = "xDSL is not installed: pip install 'wse-sim[test]'"
    core = pytest.importorskip("xdsl.context", reason=reason)
    from xdsl.backend.csl.print_csl import print_to_csl
    from xdsl.dialects import get_all_dialects
    from xdsl.parser import Parser

    context = core.Context()
    for name, dialect in get_all_dialects().items():
        context.register_dialect(name, dialect)
    module = Parser(context, text).parse_module()
    module.verify()
    out = io.StringIO()
    print_to_csl(module, out)
    parts = out.getvalue().split("// FILE: ")[1:]
    return {name.strip(): body for name, _, body in (part.partition("\n") for part in parts)}


def test_a_product_that_xdsl_prints(tmp_path):
    files = printed(PROGRAM)
    assert list(files) == ["program.csl", "layout.csl"]
    device = device_of(tmp_path, files, "layout.csl")
    device.engine.activate(8, 0, 0, 1, 1)
    device.settle()
    y = device.symbol(0, 0, "y").view(np.float32)
    weights = np.where(np.arange(COLUMNS) > 2, 1.0, 2.0)
    assert y.tolist() == [0.5 * weights.sum()] * ROWS
