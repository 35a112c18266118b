# Semantics of every ALU op of the table, element by element; what the scalar pipeline and the vector unit both execute.
# cython: overflowcheck=False
from libc.stdint cimport uint16_t, int16_t, uint32_t, int32_t

from wse_core.constants cimport *
from wse_core.arithmetic cimport *
from wse_core.opcodes cimport *

cdef extern from *:
    """
    static inline uint32_t wse_clz16(uint32_t x) { return x ? (uint32_t)__builtin_clz(x) - 16u : 16u; }
    static inline uint32_t wse_ctz16(uint32_t x) { return x ? (uint32_t)__builtin_ctz(x) : 16u; }
    static inline uint32_t wse_pop16(uint32_t x) { return (uint32_t)__builtin_popcount(x); }
    """
    uint32_t wse_clz16(uint32_t x) noexcept nogil
    uint32_t wse_ctz16(uint32_t x) noexcept nogil
    uint32_t wse_pop16(uint32_t x) noexcept nogil

cdef inline uint32_t alu(int op, const num_t* s, uint32_t b, uint32_t c, uint32_t d) noexcept nogil:
    # b, c, d: operand bits, 16-bit operands zero-extended. Returns the result, 16-bit results zero-extended.
    if op == OP_FMACS:
        return f32_add(b, f32_mul(c, d, s.ftz), s.ftz) if s.separate else f32_fma(c, d, b, s.ftz)
    elif op == OP_FADDS:
        return f32_add(b, c, s.ftz)
    elif op == OP_FMULS:
        return f32_mul(b, c, s.ftz)
    elif op == OP_FSUBS:
        return f32_sub(b, c, s.ftz)
    elif op == OP_FMACHS:
        return hs_fma(s, <uint16_t>c, <uint16_t>d, b)
    elif op == OP_FMACH:
        if s.separate:
            return h_add(s, <uint16_t>b, h_mul(s, <uint16_t>c, <uint16_t>d))
        return h_fma(s, <uint16_t>c, <uint16_t>d, <uint16_t>b)
    elif op == OP_FADDH:
        return h_add(s, <uint16_t>b, <uint16_t>c)
    elif op == OP_FSUBH:
        return h_sub(s, <uint16_t>b, <uint16_t>c)
    elif op == OP_FMULH:
        return h_mul(s, <uint16_t>b, <uint16_t>c)
    elif op == OP_FADDHS:
        return hs_add(s, <uint16_t>b, c)
    elif op == OP_MOV16 or op == OP_MOV32 or op == OP_FMOVH or op == OP_FMOVS or op == OP_ZX32:
        return b
    elif op == OP_ADD16:
        return (b + c) & 0xFFFF
    elif op == OP_SUB16:
        return (b - c) & 0xFFFF
    elif op == OP_MUL16:
        return (b * c) & 0xFFFF
    elif op == OP_AND16 or op == OP_AND32:
        return b & c
    elif op == OP_OR16 or op == OP_OR32:
        return b | c
    elif op == OP_XOR16 or op == OP_XOR32:
        return b ^ c
    elif op == OP_SLL16:
        return (b << (c & 15)) & 0xFFFF
    elif op == OP_SLR16:
        return b >> (c & 15)
    elif op == OP_SAR16:
        return <uint16_t>(<int16_t>b >> (c & 15))
    elif op == OP_CLZ:
        return wse_clz16(b)
    elif op == OP_CTZ:
        return wse_ctz16(b)
    elif op == OP_POPCNT:
        return wse_pop16(b)
    elif op == OP_ADD32:
        return b + c
    elif op == OP_SUB32:
        return b - c
    elif op == OP_MUL32:
        return b * c
    elif op == OP_SLL32:
        return b << (c & 31)
    elif op == OP_SLR32:
        return b >> (c & 31)
    elif op == OP_SAR32:
        return <uint32_t>(<int32_t>b >> (c & 31))
    elif op == OP_SX32:
        return <uint32_t><int32_t><int16_t>b
    elif op == OP_FMAXH:
        return h_max(s, <uint16_t>b, <uint16_t>c)
    elif op == OP_FMINH:
        return h_min(s, <uint16_t>b, <uint16_t>c)
    elif op == OP_FABSH:
        return h_abs(<uint16_t>b)
    elif op == OP_FNEGH:
        return h_neg(<uint16_t>b)
    elif op == OP_FSCALEH:
        return h_scale(s, <uint16_t>b, <int16_t>c)
    elif op == OP_FDIVH:
        return h_div(s, <uint16_t>b, <uint16_t>c)
    elif op == OP_FSQRTH:
        return h_sqrt(s, <uint16_t>b)
    elif op == OP_FMAXS:
        return f32_max(b, c, s.ftz)
    elif op == OP_FMINS:
        return f32_min(b, c, s.ftz)
    elif op == OP_FABSS:
        return f32_abs(b)
    elif op == OP_FNEGS:
        return f32_neg(b)
    elif op == OP_FSCALES:
        return f32_scale(b, <int16_t>c, s.ftz)
    elif op == OP_FDIVS:
        return f32_div(b, c, s.ftz)
    elif op == OP_FSQRTS:
        return f32_sqrt(b, s.ftz)
    elif op == OP_FH2S:
        return h_to_f32(s, <uint16_t>b)
    elif op == OP_FS2H:
        return f32_to_h(s, b)
    elif op == OP_FH2XP16:
        return <uint16_t>h_to_i16(s, <uint16_t>b, 0)
    elif op == OP_FS2XP16:
        return <uint16_t>f32_to_i16(b, 0)
    elif op == OP_XP162FH:
        return i16_to_h(s, <int16_t>b)
    elif op == OP_XP162FS:
        return i16_to_f32(<int16_t>b)
    elif op == OP_FS2XP32:
        return <uint32_t>f32_to_i32(b, 0)
    elif op == OP_XP322FS:
        return i32_to_f32(<int32_t>b)
    return 0            # not reached: setup.py checks that every op of this form has a branch

cdef inline bint condition(int op, int code, const num_t* s, uint32_t a, uint32_t b) noexcept nogil:
    # Condition `code` (COND_*) of a branch; floating point: quiet, false with NaN except
    # ne.
    if op == OP_BR16:
        if code == COND_EQ:
            return a == b
        elif code == COND_NE:
            return a != b
        elif code == COND_LT:
            return <int16_t>a < <int16_t>b
        elif code == COND_LE:
            return <int16_t>a <= <int16_t>b
        elif code == COND_LTU:
            return a < b
        return a <= b
    elif op == OP_BR32:
        if code == COND_EQ:
            return a == b
        elif code == COND_NE:
            return a != b
        elif code == COND_LT:
            return <int32_t>a < <int32_t>b
        elif code == COND_LE:
            return <int32_t>a <= <int32_t>b
        elif code == COND_LTU:
            return a < b
        return a <= b
    elif op == OP_BRH:
        if code == COND_EQ:
            return h_eq(s, <uint16_t>a, <uint16_t>b)
        elif code == COND_NE:
            return not h_eq(s, <uint16_t>a, <uint16_t>b)
        elif code == COND_LT:
            return h_lt(s, <uint16_t>a, <uint16_t>b)
        return h_le(s, <uint16_t>a, <uint16_t>b)
    elif op == OP_BRS:
        if code == COND_EQ:
            return f32_eq(a, b, s.ftz)
        elif code == COND_NE:
            return not f32_eq(a, b, s.ftz)
        elif code == COND_LT:
            return f32_lt(a, b, s.ftz)
        return f32_le(a, b, s.ftz)
    return False        # not reached, as above
