cdef enum:
    OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_MAX, OP_MIN, OP_SQRT, OP_NEG, OP_ABS, OP_EQ, OP_LT, OP_LE

cdef binary(int op, a, b, fmt, bias, ftz)
cdef compare(int op, a, b, fmt, bias, ftz)
cdef unary(int op, a, fmt, bias, ftz)
