"""
Scalar arithmetic of the processing element, on bit patterns.

What      add, multiply, fused multiply-add, compare, convert: in f32, in the chosen 16-bit format (f16 or cb16),
          and mixed. Every function takes and returns bits, never host floats, so a caller cannot round by accident.
Contract  one rounding per operation, to nearest, ties to even, gradual underflow, overflow to infinity. NaN results
          are the one canonical quiet NaN of their format; moves, neg and abs keep the bits. With ftz set, subnormal
          operands count as zeros of their sign and a result that is subnormal after rounding becomes such a zero.
          No state, no exceptions, no allocation. May be called from any phase and any thread.
Host      needs IEEE binary32/binary64 without excess precision, round-to-nearest, host flushing off: the caller, from
          Python inwards the array forms or a run, sets that mode (float_mode.pxd). Contraction may be on or off:
          wherever a*b + c is written below, the product is exact, so fusing changes nothing.
Known     CB16's encodings of infinity and NaN, the fusing of FMACH/FMACS and the rounding mode are assumptions;
differences docs/numerics.md lists them with their grounds. No stochastic rounding, no exception flags.
Sources   IEEE 754-2019; CSL language guide (types, builtins); docs/numerics.md.
Twins     wse_core/reference/numerics.py (exact rationals), tests/wse_core/exact.py (second oracle).
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t

cdef extern from *:
    """
    #ifndef WSE_NUMERICS_BITS
    #define WSE_NUMERICS_BITS
    #include <float.h>
    #include <math.h>
    #include <stdint.h>
    #include <string.h>
    #if defined(__FAST_MATH__)
    #error "arithmetic.pxd: build without -ffast-math / -Ofast, they break NaN, signed zero and rounding"
    #endif
    #if FLT_EVAL_METHOD != 0
    #error "arithmetic.pxd: float expressions must not carry excess precision (on 32-bit x86 use -msse2 -mfpmath=sse)"
    #endif
    static inline float wse_f32_of_bits(uint32_t u) { float x; memcpy(&x, &u, sizeof x); return x; }
    static inline uint32_t wse_bits_of_f32(float x) { uint32_t u; memcpy(&u, &x, sizeof u); return u; }
    static inline double wse_f64_of_bits(uint64_t u) { double x; memcpy(&x, &u, sizeof x); return x; }
    static inline uint64_t wse_bits_of_f64(double x) { uint64_t u; memcpy(&u, &x, sizeof u); return u; }
    #endif
    """
    float f32_of_bits "wse_f32_of_bits"(uint32_t u) noexcept nogil
    uint32_t bits_of_f32 "wse_bits_of_f32"(float x) noexcept nogil
    double f64_of_bits "wse_f64_of_bits"(uint64_t u) noexcept nogil
    uint64_t bits_of_f64 "wse_bits_of_f64"(double x) noexcept nogil
    float c_fmaf "fmaf"(float a, float b, float c) noexcept nogil
    float c_sqrtf "sqrtf"(float a) noexcept nogil
    double c_sqrt "sqrt"(double a) noexcept nogil


cdef enum:
    FMT_F16 = 0
    FMT_CB16 = 1
    FMT_BF16 = 2        # storage and conversion only: no PE arithmetic in it
    FMT_F32 = 3

cdef enum:
    CB16_BIAS_DEFAULT = 42      # source: CSL type page, 6.0 = 0x5900; confidence: published for CSL, else inferred
    CB16_BIAS_MIN = 1
    CB16_BIAS_MAX = 62
    F16_BIAS = 15               # source: IEEE 754 binary16
    NAN_F16 = 0x7E00
    NAN_CB16 = 0x7F00           # confidence: assumed (IEEE-like top exponent field)
    NAN_BF16 = 0x7FC0
    NAN_F32 = 0x7FC00000

cdef struct num_t:
    int half            # FMT_F16 or FMT_CB16: the one 16-bit format of a program
    int bias            # exponent bias of cb16, CB16_BIAS_MIN..CB16_BIAS_MAX; unused for f16
    int separate        # 1: multiply-adds round the product too
    int ftz             # 0 gradual underflow (default), 1 subnormal operands and results become signed zeros


# 1 if the settings are legal. Nothing below checks them again.
cdef inline int num_is_valid(const num_t* s) noexcept nogil:
    return ((s.half == FMT_F16 or s.half == FMT_CB16)
            and CB16_BIAS_MIN <= s.bias <= CB16_BIAS_MAX and (s.ftz == 0 or s.ftz == 1))


# ---- building blocks; those with an underscore are private to this file -----------------------------------------

# Operand of f32 arithmetic as a host float.
cdef inline float in_f32(uint32_t a, int ftz) noexcept nogil:
    if ftz and (a & 0x7F800000) == 0:
        a &= 0x80000000U
    return f32_of_bits(a)


# Result of f32 arithmetic: canonical NaN, flush if asked.
cdef inline uint32_t out_f32(float x, int ftz) noexcept nogil:
    cdef uint32_t u
    if x != x:
        return NAN_F32
    u = bits_of_f32(x)
    if ftz and (u & 0x7F800000) == 0:
        u &= 0x80000000U
    return u


# 16-bit code with fields 1 / 15-m / m to host float, exactly. shift = 23-m, rebias = 127-bias, so both formats and
# every legal bias land in f32's normal range. A subnormal code is set on the exponent of the smallest normal and that
# leading one is subtracted again: exact, and no host subnormal is ever touched (those are slow on some processors).
cdef inline float decode16(uint16_t a, int shift, uint32_t rebias, int ftz) noexcept nogil:
    cdef uint32_t mag = (<uint32_t>a & 0x7FFF) << shift
    cdef uint32_t exponent_mask = (<uint32_t>0x7FFF << shift) & 0x7F800000
    cdef uint32_t exponent = mag & exponent_mask
    cdef uint32_t sign = (<uint32_t>a & 0x8000) << 16
    if exponent == 0:
        if ftz:
            return f32_of_bits(sign)
        mag = bits_of_f32(f32_of_bits(mag + ((rebias + 1) << 23)) - f32_of_bits((rebias + 1) << 23))
    elif exponent == exponent_mask:
        mag |= 0x7F800000
    else:
        mag += rebias << 23
    return f32_of_bits(sign | mag)


# Host double to a 16-bit code with m fraction bits, rounded once. Normal results round in integers: adding half an
# ulp less one, plus the last kept bit, carries exactly when nearest-even says so, also across a binade and into
# infinity. Subnormal results let the host adder round: the magic constant's ulp is the smallest subnormal.
cdef inline uint16_t encode16(double x, int m, int bias, int ftz) noexcept nogil:
    cdef uint64_t u = bits_of_f64(x)
    cdef uint64_t sign = (u >> 63) << 15
    cdef uint64_t mag = u & <uint64_t>0x7FFFFFFFFFFFFFFF
    cdef uint64_t infinity = <uint64_t>0x8000 - (<uint64_t>1 << m)
    cdef uint64_t magic, code
    cdef int drop = 52 - m
    if mag >= (<uint64_t>(1024 - bias) << 52):
        if x != x:
            return <uint16_t>(infinity | (<uint64_t>1 << (m - 1)))
        mag += (<uint64_t>1 << (drop - 1)) - 1 + ((mag >> drop) & 1)
        code = (mag >> drop) - (<uint64_t>(1023 - bias) << m)
        if code > infinity:
            code = infinity
    else:
        magic = <uint64_t>(1023 + 53 - bias - m) << 52
        code = bits_of_f64(f64_of_bits(mag) + f64_of_bits(magic)) - magic
        if ftz and code < (<uint64_t>1 << m):
            code = 0
    return <uint16_t>(sign | code)


# Value of a code of the chosen half format. The branch on the format is the same all run long, and lets the compiler
# fold the constants of each side.
cdef inline float in_h(const num_t* s, uint16_t a) noexcept nogil:
    if s.half == FMT_F16:
        return decode16(a, 13, 127 - F16_BIAS, s.ftz)
    return decode16(a, 14, <uint32_t>(127 - s.bias), s.ftz)


cdef inline uint16_t out_h(const num_t* s, double x) noexcept nogil:
    if s.half == FMT_F16:
        return encode16(x, 10, F16_BIAS, s.ftz)
    return encode16(x, 9, s.bias, s.ftz)


cdef inline uint16_t _h_nan(const num_t* s) noexcept nogil:
    return NAN_F16 if s.half == FMT_F16 else NAN_CB16


# The code itself, or a zero of its sign if it is subnormal and those are flushed.
cdef inline uint16_t _h_flushed(const num_t* s, uint16_t a) noexcept nogil:
    if s.ftz and (a & (0x7C00 if s.half == FMT_F16 else 0x7E00)) == 0:
        return a & <uint16_t>0x8000
    return a


# p + c in double, rounded to odd: toward zero, and the last bit set if anything was lost. A later rounding to a format
# of at most 51 bits is then the only one that counts (Boldo and Melquiond). The plain host sum misleads when it falls
# on a midpoint of the narrow format and the real sum does not: cb16 0x3100 * 0xFDAA + 0x0001. Without branches, since
# short fractions make "nothing lost" as likely as not: 5 ns per multiply-add whatever the data, up to 10 with a branch.
cdef inline double _add_to_odd(double p, double c) noexcept nogil:
    cdef double total = p + c
    cdef double part = total - p
    cdef double error = (p - (total - part)) + (c - part)       # exact (two-sum); NaN if the sum is not finite
    cdef uint64_t lost = (error < 0.0) | (error > 0.0)
    cdef uint64_t u = bits_of_f64(total)
    cdef uint64_t away = (u ^ bits_of_f64(error)) >> 63         # 1 if the host rounded away from zero
    return f64_of_bits((u - (lost & away)) | lost)


# 2**n as a double; beyond +-400 no format here can tell the difference.
cdef inline double _power_of_two(int n) noexcept nogil:
    if n > 400:
        n = 400
    elif n < -400:
        n = -400
    return f64_of_bits(<uint64_t>(1023 + n) << 52)


# Integer part of x clamped to lo..hi, NaN to 0. rne 0 truncates, 1 rounds to nearest even.
cdef inline double _to_integer(double x, double lo, double hi, int rne) noexcept nogil:
    if x != x:
        return 0.0
    if x <= lo:
        return lo
    if x >= hi:
        return hi
    if rne:
        # 1.5 * 2**52: the host adder drops the fraction, ties to even. Also right under any -O level that keeps IEEE.
        return (x + 6755399441055744.0) - 6755399441055744.0
    return <double><int64_t>x


# ---- f32 --------------------------------------------------------------------------------------------------------

cdef inline uint32_t f32_add(uint32_t a, uint32_t b, int ftz) noexcept nogil:
    return out_f32(in_f32(a, ftz) + in_f32(b, ftz), ftz)


cdef inline uint32_t f32_sub(uint32_t a, uint32_t b, int ftz) noexcept nogil:
    return out_f32(in_f32(a, ftz) - in_f32(b, ftz), ftz)


cdef inline uint32_t f32_mul(uint32_t a, uint32_t b, int ftz) noexcept nogil:
    return out_f32(in_f32(a, ftz) * in_f32(b, ftz), ftz)


cdef inline uint32_t f32_div(uint32_t a, uint32_t b, int ftz) noexcept nogil:
    return out_f32(in_f32(a, ftz) / in_f32(b, ftz), ftz)


# a*b + c, one rounding. fmaf and not double arithmetic: a double sum rounds twice (4097*4097 + 2**-30).
cdef inline uint32_t f32_fma(uint32_t a, uint32_t b, uint32_t c, int ftz) noexcept nogil:
    return out_f32(c_fmaf(in_f32(a, ftz), in_f32(b, ftz), in_f32(c, ftz)), ftz)


cdef inline uint32_t f32_sqrt(uint32_t a, int ftz) noexcept nogil:
    cdef float x = in_f32(a, ftz)
    if not x >= 0.0:                # negative or NaN; -0 passes and stays -0
        return NAN_F32
    return out_f32(c_sqrtf(x), ftz)


# IEEE 754-2019 maximum: NaN wins, +0 > -0 (equal values differ at most in a zero's sign, so and-ing the codes does it).
cdef inline uint32_t f32_max(uint32_t a, uint32_t b, int ftz) noexcept nogil:
    cdef float x = in_f32(a, ftz)
    cdef float y = in_f32(b, ftz)
    if x > y:
        return bits_of_f32(x)
    if x < y:
        return bits_of_f32(y)
    if x == y:
        return bits_of_f32(x) & bits_of_f32(y)
    return NAN_F32


# IEEE 754-2019 minimum: NaN wins, -0 < +0.
cdef inline uint32_t f32_min(uint32_t a, uint32_t b, int ftz) noexcept nogil:
    cdef float x = in_f32(a, ftz)
    cdef float y = in_f32(b, ftz)
    if x < y:
        return bits_of_f32(x)
    if x > y:
        return bits_of_f32(y)
    if x == y:
        return bits_of_f32(x) | bits_of_f32(y)
    return NAN_F32


# Bit operations: no flush, payloads stay.
cdef inline uint32_t f32_neg(uint32_t a) noexcept nogil:
    return a ^ 0x80000000U


cdef inline uint32_t f32_abs(uint32_t a) noexcept nogil:
    return a & 0x7FFFFFFF


# a * 2**n, one rounding: the double product is exact for every n that matters.
cdef inline uint32_t f32_scale(uint32_t a, int n, int ftz) noexcept nogil:
    return out_f32(<float>(<double>in_f32(a, ftz) * _power_of_two(n)), ftz)


# Quiet comparisons: false with NaN, -0 == +0.
cdef inline int f32_eq(uint32_t a, uint32_t b, int ftz) noexcept nogil:
    return in_f32(a, ftz) == in_f32(b, ftz)


cdef inline int f32_lt(uint32_t a, uint32_t b, int ftz) noexcept nogil:
    return in_f32(a, ftz) < in_f32(b, ftz)


cdef inline int f32_le(uint32_t a, uint32_t b, int ftz) noexcept nogil:
    return in_f32(a, ftz) <= in_f32(b, ftz)


# ---- the chosen 16-bit format -----------------------------------------------------------------------------------

# Double has 53 >= 2*11 + 2 bits, so rounding a double sum, quotient or root again to 16 bits changes nothing
# (Figueroa); a product is exact in double.
cdef inline uint16_t h_add(const num_t* s, uint16_t a, uint16_t b) noexcept nogil:
    return out_h(s, <double>in_h(s, a) + <double>in_h(s, b))


cdef inline uint16_t h_sub(const num_t* s, uint16_t a, uint16_t b) noexcept nogil:
    return out_h(s, <double>in_h(s, a) - <double>in_h(s, b))


cdef inline uint16_t h_mul(const num_t* s, uint16_t a, uint16_t b) noexcept nogil:
    return out_h(s, <double>in_h(s, a) * <double>in_h(s, b))


cdef inline uint16_t h_div(const num_t* s, uint16_t a, uint16_t b) noexcept nogil:
    return out_h(s, <double>in_h(s, a) / <double>in_h(s, b))


# a*b + c, one rounding. f16 may take the plain host sum (gain 1 ns): where that loses anything, either the result
# overflows anyway or the real sum is nearer to c than any midpoint of f16 (proof in docs/numerics.md).
cdef inline uint16_t h_fma(const num_t* s, uint16_t a, uint16_t b, uint16_t c) noexcept nogil:
    cdef double p = <double>in_h(s, a) * <double>in_h(s, b)
    cdef double z = in_h(s, c)
    return out_h(s, p + z if s.half == FMT_F16 else _add_to_odd(p, z))


cdef inline uint16_t h_sqrt(const num_t* s, uint16_t a) noexcept nogil:
    cdef double x = in_h(s, a)
    if not x >= 0.0:
        return _h_nan(s)
    return out_h(s, c_sqrt(x))


cdef inline uint16_t h_max(const num_t* s, uint16_t a, uint16_t b) noexcept nogil:
    cdef float x = in_h(s, a)
    cdef float y = in_h(s, b)
    if x > y:
        return _h_flushed(s, a)
    if x < y:
        return _h_flushed(s, b)
    if x == y:
        return _h_flushed(s, a) & _h_flushed(s, b)
    return _h_nan(s)


cdef inline uint16_t h_min(const num_t* s, uint16_t a, uint16_t b) noexcept nogil:
    cdef float x = in_h(s, a)
    cdef float y = in_h(s, b)
    if x < y:
        return _h_flushed(s, a)
    if x > y:
        return _h_flushed(s, b)
    if x == y:
        return _h_flushed(s, a) | _h_flushed(s, b)
    return _h_nan(s)


cdef inline uint16_t h_neg(uint16_t a) noexcept nogil:
    return a ^ <uint16_t>0x8000


cdef inline uint16_t h_abs(uint16_t a) noexcept nogil:
    return a & <uint16_t>0x7FFF


cdef inline uint16_t h_scale(const num_t* s, uint16_t a, int n) noexcept nogil:
    return out_h(s, <double>in_h(s, a) * _power_of_two(n))


cdef inline int h_eq(const num_t* s, uint16_t a, uint16_t b) noexcept nogil:
    return in_h(s, a) == in_h(s, b)


cdef inline int h_lt(const num_t* s, uint16_t a, uint16_t b) noexcept nogil:
    return in_h(s, a) < in_h(s, b)


cdef inline int h_le(const num_t* s, uint16_t a, uint16_t b) noexcept nogil:
    return in_h(s, a) <= in_h(s, b)


# ---- mixed: 16-bit operands, f32 result -------------------------------------------------------------------------

# f32(a)*f32(b) + c, one f32 rounding: a product of two halves is exact in f32 (at most 22 bits).
cdef inline uint32_t hs_fma(const num_t* s, uint16_t a, uint16_t b, uint32_t c) noexcept nogil:
    return out_f32(in_h(s, a) * in_h(s, b) + in_f32(c, s.ftz), s.ftz)


cdef inline uint32_t hs_add(const num_t* s, uint16_t a, uint32_t b) noexcept nogil:
    return out_f32(in_h(s, a) + in_f32(b, s.ftz), s.ftz)


# ---- conversions between float formats --------------------------------------------------------------------------

cdef inline uint32_t h_to_f32(const num_t* s, uint16_t a) noexcept nogil:
    return out_f32(in_h(s, a), 0)


cdef inline uint16_t f32_to_h(const num_t* s, uint32_t a) noexcept nogil:
    return out_h(s, <double>in_f32(a, s.ftz))


cdef inline uint16_t f32_to_bf16(uint32_t a, int ftz) noexcept nogil:
    return encode16(<double>in_f32(a, ftz), 7, 127, ftz)


# Exact; bf16 subnormals are f32 subnormals and stay.
cdef inline uint32_t bf16_to_f32(uint16_t a) noexcept nogil:
    return out_f32(f32_of_bits(<uint32_t>a << 16), 0)


# Any of the four formats to any other, one rounding, never through a third one (f32 to cb16 through f16 would lose a
# bit and most of the range). bits above the width of a 16-bit format are ignored.
cdef inline uint32_t convert(int from_fmt, int to_fmt, uint32_t bits, int bias, int ftz) noexcept nogil:
    cdef double x
    if from_fmt == FMT_F32:
        x = in_f32(bits, ftz)
    elif from_fmt == FMT_BF16:
        x = in_f32((bits & 0xFFFF) << 16, ftz)
    elif from_fmt == FMT_CB16:
        x = decode16(<uint16_t>(bits & 0xFFFF), 14, <uint32_t>(127 - bias), ftz)
    else:
        x = decode16(<uint16_t>(bits & 0xFFFF), 13, 127 - F16_BIAS, ftz)
    if to_fmt == FMT_F32:
        return out_f32(<float>x, ftz)
    if to_fmt == FMT_BF16:
        return encode16(x, 7, 127, ftz)
    if to_fmt == FMT_CB16:
        return encode16(x, 9, bias, ftz)
    return encode16(x, 10, F16_BIAS, ftz)


# ---- conversions between floats and integers --------------------------------------------------------------------
# Out of range saturates, NaN gives 0: a choice of this model (C and IEEE 754 leave it open), not a claim about the
# hardware. rne 0 truncates towards zero, 1 rounds to nearest even.

cdef inline int16_t h_to_i16(const num_t* s, uint16_t a, int rne) noexcept nogil:
    return <int16_t>_to_integer(in_h(s, a), -32768.0, 32767.0, rne)


cdef inline uint16_t h_to_u16(const num_t* s, uint16_t a, int rne) noexcept nogil:
    return <uint16_t>_to_integer(in_h(s, a), 0.0, 65535.0, rne)


cdef inline int32_t h_to_i32(const num_t* s, uint16_t a, int rne) noexcept nogil:
    return <int32_t>_to_integer(in_h(s, a), -2147483648.0, 2147483647.0, rne)


cdef inline int16_t f32_to_i16(uint32_t a, int rne) noexcept nogil:
    return <int16_t>_to_integer(f32_of_bits(a), -32768.0, 32767.0, rne)


cdef inline uint16_t f32_to_u16(uint32_t a, int rne) noexcept nogil:
    return <uint16_t>_to_integer(f32_of_bits(a), 0.0, 65535.0, rne)


cdef inline int32_t f32_to_i32(uint32_t a, int rne) noexcept nogil:
    return <int32_t>_to_integer(f32_of_bits(a), -2147483648.0, 2147483647.0, rne)


cdef inline uint16_t i16_to_h(const num_t* s, int16_t v) noexcept nogil:
    return out_h(s, <double>v)


cdef inline uint16_t u16_to_h(const num_t* s, uint16_t v) noexcept nogil:
    return out_h(s, <double>v)


cdef inline uint16_t i32_to_h(const num_t* s, int32_t v) noexcept nogil:
    return out_h(s, <double>v)


cdef inline uint32_t i16_to_f32(int16_t v) noexcept nogil:
    return bits_of_f32(<float>v)


cdef inline uint32_t u16_to_f32(uint16_t v) noexcept nogil:
    return bits_of_f32(<float>v)


cdef inline uint32_t i32_to_f32(int32_t v) noexcept nogil:
    return bits_of_f32(<float>v)
