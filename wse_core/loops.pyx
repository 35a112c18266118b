"""Loops of the array forms: an operation of two operands, a comparison or an operation of one, over flat arrays.

Called by numerics.pyx, which documents the operations; each computes in the default float mode.
"""
import numpy as np

from libc.stdint cimport uint8_t, uint16_t, uint32_t

from wse_core.arguments cimport DefaultMode, settings
from wse_core.arithmetic cimport *

from wse_core.arguments import itemsize_of, operand, shaped, spread


cdef void _binary_h(int op, const num_t* s, const uint16_t[::1] a, const uint16_t[::1] b,
                    uint16_t[::1] d) noexcept nogil:
    cdef Py_ssize_t i, n = d.shape[0]
    if op == OP_ADD:
        for i in range(n):
            d[i] = h_add(s, a[i], b[i])
    elif op == OP_SUB:
        for i in range(n):
            d[i] = h_sub(s, a[i], b[i])
    elif op == OP_MUL:
        for i in range(n):
            d[i] = h_mul(s, a[i], b[i])
    elif op == OP_DIV:
        for i in range(n):
            d[i] = h_div(s, a[i], b[i])
    elif op == OP_MAX:
        for i in range(n):
            d[i] = h_max(s, a[i], b[i])
    else:
        for i in range(n):
            d[i] = h_min(s, a[i], b[i])


cdef void _binary_s(int op, int ftz, const uint32_t[::1] a, const uint32_t[::1] b, uint32_t[::1] d) noexcept nogil:
    cdef Py_ssize_t i, n = d.shape[0]
    if op == OP_ADD:
        for i in range(n):
            d[i] = f32_add(a[i], b[i], ftz)
    elif op == OP_SUB:
        for i in range(n):
            d[i] = f32_sub(a[i], b[i], ftz)
    elif op == OP_MUL:
        for i in range(n):
            d[i] = f32_mul(a[i], b[i], ftz)
    elif op == OP_DIV:
        for i in range(n):
            d[i] = f32_div(a[i], b[i], ftz)
    elif op == OP_MAX:
        for i in range(n):
            d[i] = f32_max(a[i], b[i], ftz)
    else:
        for i in range(n):
            d[i] = f32_min(a[i], b[i], ftz)


cdef void _compare_h(int op, const num_t* s, const uint16_t[::1] a, const uint16_t[::1] b,
                     uint8_t[::1] d) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(d.shape[0]):
        if op == OP_EQ:
            d[i] = h_eq(s, a[i], b[i])
        elif op == OP_LT:
            d[i] = h_lt(s, a[i], b[i])
        else:
            d[i] = h_le(s, a[i], b[i])


cdef void _compare_s(int op, int ftz, const uint32_t[::1] a, const uint32_t[::1] b, uint8_t[::1] d) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(d.shape[0]):
        if op == OP_EQ:
            d[i] = f32_eq(a[i], b[i], ftz)
        elif op == OP_LT:
            d[i] = f32_lt(a[i], b[i], ftz)
        else:
            d[i] = f32_le(a[i], b[i], ftz)


cdef void _unary_h(int op, const num_t* s, const uint16_t[::1] a, uint16_t[::1] d) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(d.shape[0]):
        if op == OP_SQRT:
            d[i] = h_sqrt(s, a[i])
        elif op == OP_NEG:
            d[i] = h_neg(a[i])
        else:
            d[i] = h_abs(a[i])


cdef void _unary_s(int op, int ftz, const uint32_t[::1] a, uint32_t[::1] d) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(d.shape[0]):
        if op == OP_SQRT:
            d[i] = f32_sqrt(a[i], ftz)
        elif op == OP_NEG:
            d[i] = f32_neg(a[i])
        else:
            d[i] = f32_abs(a[i])


cdef binary(int op, a, b, fmt, bias, ftz):
    cdef num_t s
    cdef int code = settings(&s, fmt, bias, ftz)
    itemsize = itemsize_of(code)
    shape, a, b = spread(operand(a, "a", itemsize), operand(b, "b", itemsize))
    out = np.empty(len(a), f"u{itemsize}")
    with DefaultMode():
        if code == FMT_F32:
            _binary_s(op, s.ftz, a, b, out)
        else:
            _binary_h(op, &s, a, b, out)
    return shaped(out, shape)


cdef compare(int op, a, b, fmt, bias, ftz):
    cdef num_t s
    cdef int code = settings(&s, fmt, bias, ftz)
    itemsize = itemsize_of(code)
    shape, a, b = spread(operand(a, "a", itemsize), operand(b, "b", itemsize))
    out = np.empty(len(a), np.uint8)
    with DefaultMode():
        if code == FMT_F32:
            _compare_s(op, s.ftz, a, b, out)
        else:
            _compare_h(op, &s, a, b, out)
    return shaped(out.view(np.bool_), shape)


cdef unary(int op, a, fmt, bias, ftz):
    cdef num_t s
    cdef int code = settings(&s, fmt, bias, ftz)
    itemsize = itemsize_of(code)
    shape, a = spread(operand(a, "a", itemsize))
    out = np.empty(len(a), f"u{itemsize}")
    with DefaultMode():
        if code == FMT_F32:
            _unary_s(op, s.ftz, a, out)
        else:
            _unary_h(op, &s, a, out)
    return shaped(out, shape)
