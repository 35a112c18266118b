"""Bulk forms of the element's arithmetic: long vectors at host vector speed, scalar bits.

What      the ten vector operations that a data structure descriptor can run over (see vector.pxd), each as a loop over
          the scalar form, plus kernels for x86 hosts with AVX2 or AVX-512, chosen when the module is imported.
Contract  every path gives the bits of the scalar form in numerics.pxd, canonical NaNs included. With `num_t.ftz` set
          the scalar loop runs. The kernels need the host float mode that numerics.pxd describes.
Rounding  16-bit fused multiply-add: the product is exact in f32; the f32 sum is rounded to odd with the error of a
          two-sum; the last conversion is then the only rounding (Boldo and Melquiond: two spare bits suffice, f32 has
          13). A plain f32 sum in its place is wrong for a few operands in a million. 16-bit sums and differences go
          through one f32 rounding, which is harmless (24 >= 2*11 + 2, Figueroa). CB16 is decoded and encoded with
          integers, f16 by the host's conversion instructions.
Gain      256 elements in cache, scalar loop / AVX2 / AVX-512, ns per element: fmach f16 3.8 / 0.27 / 0.14, cb16
          5.5 / 0.95 / 0.45; fmachs f16 1.7 / 0.05 / 0.04; fmacs 1.6 / 0.05 / 0.05. docs/numerics.md has all of
          them. Naive twin: set_backend("portable").
Sources   docs/numerics.md; Boldo and Melquiond, Emulation of FMA and correctly rounded sums: proved algorithms
          using rounding to odd.
"""
import numpy as np

from libc.stdint cimport uint16_t, uint32_t

from wse_core.numerics cimport (
    CB16_BIAS_DEFAULT, FMT_CB16, FMT_F16, _h_in, f32_add, f32_fma, f32_mul, f32_of_bits, f32_sub, h_add, h_fma, h_mul,
    h_sub, hs_add, hs_fma, num_is_valid, num_t,
)

from wse_core.errors import ConfigError, UnsupportedError

__all__ = ["backend", "backends", "run", "set_backend"]

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    enum { WSE_VEC_PORTABLE = 0, WSE_VEC_AVX2 = 1, WSE_VEC_AVX512 = 2 };

    /* [elements] Below a full vector a kernel costs about 13 ns: four 16-bit or eight f32 scalar forms. */
    enum { WSE_VEC_SHORT = 6 };

    #if defined(__GNUC__) && defined(__x86_64__)
    #define WSE_VEC_X86 1
    #include <cpuid.h>
    #include <immintrin.h>

    static int wse_vec_detect(void)
    {
        unsigned a, b, c, d;
        __builtin_cpu_init();
        /* the builtin also asks whether the system saves the wide registers; f16c has no name in older compilers */
        if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return WSE_VEC_PORTABLE;
        if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_F16C)) return WSE_VEC_PORTABLE;
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
            && __builtin_cpu_supports("avx512vl")) return WSE_VEC_AVX512;
        return WSE_VEC_AVX2;
    }

    /* Building blocks, once per instruction set. v is a vector of f32; m says which of its elements are in memory.
       ld/st      f32 bits; st makes NaNs canonical
       ldf/stf    f16; ldc/stc  cb16 with the given bias; stores round once and make NaNs canonical
       odd        p + c rounded to odd: toward zero, then the last bit is set if anything was lost. The subtraction
                  below is the step toward zero when the host sum had been rounded away from it. For infinities and
                  NaN the error is NaN, the ordered comparison fails and the host sum stands.
       cb16       as _decode16 and _encode16 in numerics.pxd, on f32 instead of double */

    #define WSE_AVX2 __attribute__((target("avx2,f16c,fma")))
    #define WSE_AVX2_INLINE static inline WSE_AVX2 __attribute__((always_inline))
    typedef __m256 avx2_v;
    typedef int avx2_m;         /* no masks here: kernels take a tail through buffers */
    enum { avx2_ALL = 0, avx2_MASKS = 0 };
    WSE_AVX2_INLINE avx2_m avx2_first(Py_ssize_t n) { (void)n; return avx2_ALL; }

    WSE_AVX2_INLINE avx2_v avx2_set(float x) { return _mm256_set1_ps(x); }
    WSE_AVX2_INLINE avx2_v avx2_add(avx2_v a, avx2_v b) { return _mm256_add_ps(a, b); }
    WSE_AVX2_INLINE avx2_v avx2_sub(avx2_v a, avx2_v b) { return _mm256_sub_ps(a, b); }
    WSE_AVX2_INLINE avx2_v avx2_mul(avx2_v a, avx2_v b) { return _mm256_mul_ps(a, b); }
    WSE_AVX2_INLINE avx2_v avx2_fma(avx2_v a, avx2_v b, avx2_v c) { return _mm256_fmadd_ps(a, b, c); }
    WSE_AVX2_INLINE avx2_v avx2_ld(avx2_m m, const uint32_t *p) { (void)m; return _mm256_loadu_ps((const float *)p); }
    WSE_AVX2_INLINE avx2_v avx2_quiet(avx2_v x)
    {
        avx2_v nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000));
        return _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    }
    WSE_AVX2_INLINE void avx2_st(avx2_m m, uint32_t *p, avx2_v x)
    {
        (void)m;
        _mm256_storeu_ps((float *)p, avx2_quiet(x));
    }
    WSE_AVX2_INLINE avx2_v avx2_ldf(avx2_m m, const uint16_t *p, int bias)
    {
        (void)m;
        (void)bias;
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
    }
    WSE_AVX2_INLINE void avx2_stf(avx2_m m, uint16_t *p, avx2_v x, int bias)
    {
        (void)m;
        (void)bias;
        _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(avx2_quiet(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    WSE_AVX2_INLINE avx2_v avx2_ldc(avx2_m m, const uint16_t *p, int bias)
    {
        (void)m;
        __m256i code = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
        __m256i sign = _mm256_slli_epi32(_mm256_and_si256(code, _mm256_set1_epi32(0x8000)), 16);
        __m256i mag = _mm256_slli_epi32(_mm256_and_si256(code, _mm256_set1_epi32(0x7FFF)), 14);
        __m256i least = _mm256_set1_epi32((128 - bias) << 23);
        __m256i normal = _mm256_add_epi32(mag, _mm256_set1_epi32((127 - bias) << 23));
        __m256i small = _mm256_castps_si256(_mm256_sub_ps(_mm256_castsi256_ps(_mm256_add_epi32(mag, least)),
                                                          _mm256_castsi256_ps(least)));
        __m256i top = _mm256_or_si256(mag, _mm256_set1_epi32(0x7F800000));
        __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x0200 << 14), mag);
        __m256i is_top = _mm256_cmpgt_epi32(mag, _mm256_set1_epi32((0x7E00 << 14) - 1));
        mag = _mm256_blendv_epi8(_mm256_blendv_epi8(normal, top, is_top), small, is_small);
        return _mm256_castsi256_ps(_mm256_or_si256(sign, mag));
    }
    WSE_AVX2_INLINE void avx2_stc(avx2_m m, uint16_t *p, avx2_v x, int bias)
    {
        (void)m;
        __m256i u = _mm256_castps_si256(avx2_quiet(x));
        __m256i sign = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x8000));
        __m256i mag = _mm256_and_si256(u, _mm256_set1_epi32(0x7FFFFFFF));
        __m256i magic = _mm256_set1_epi32((127 + 24 - bias - 9) << 23);
        __m256i last = _mm256_and_si256(_mm256_srli_epi32(mag, 14), _mm256_set1_epi32(1));
        __m256i half = _mm256_add_epi32(_mm256_set1_epi32(0x1FFF), last);
        __m256i normal = _mm256_srli_epi32(_mm256_add_epi32(mag, half), 14);
        __m256i small = _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(mag),
                                                                           _mm256_castsi256_ps(magic))), magic);
        __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32((128 - bias) << 23), mag);
        __m256i is_nan = _mm256_cmpgt_epi32(mag, _mm256_set1_epi32(0x7F800000));
        normal = _mm256_min_epi32(_mm256_sub_epi32(normal, _mm256_set1_epi32((127 - bias) << 9)),
                                  _mm256_set1_epi32(0x7E00));
        u = _mm256_blendv_epi8(normal, small, is_small);
        u = _mm256_blendv_epi8(u, _mm256_set1_epi32(0x7F00), is_nan);
        u = _mm256_or_si256(u, sign);
        u = _mm256_permute4x64_epi64(_mm256_packus_epi32(u, u), 0x08);
        _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(u));
    }
    WSE_AVX2_INLINE avx2_v avx2_odd(avx2_v p, avx2_v c)
    {
        avx2_v s = _mm256_add_ps(p, c);
        avx2_v t = _mm256_sub_ps(s, p);
        avx2_v e = _mm256_add_ps(_mm256_sub_ps(p, _mm256_sub_ps(s, t)), _mm256_sub_ps(c, t));
        __m256i lost = _mm256_castps_si256(_mm256_cmp_ps(e, _mm256_setzero_ps(), _CMP_NEQ_OQ));
        __m256i away = _mm256_srai_epi32(_mm256_castps_si256(_mm256_xor_ps(s, e)), 31);
        __m256i u = _mm256_add_epi32(_mm256_castps_si256(s), _mm256_and_si256(lost, away));
        return _mm256_castsi256_ps(_mm256_or_si256(u, _mm256_srli_epi32(lost, 31)));
    }

    #define WSE_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx2,f16c,fma")))
    #define WSE_AVX512_INLINE static inline WSE_AVX512 __attribute__((always_inline))
    typedef __m512 avx512_v;
    typedef __mmask16 avx512_m;
    enum { avx512_ALL = 0xFFFF, avx512_MASKS = 1 };
    WSE_AVX512_INLINE avx512_m avx512_first(Py_ssize_t n) { return (avx512_m)((1u << n) - 1); }

    WSE_AVX512_INLINE avx512_v avx512_set(float x) { return _mm512_set1_ps(x); }
    WSE_AVX512_INLINE avx512_v avx512_add(avx512_v a, avx512_v b) { return _mm512_add_ps(a, b); }
    WSE_AVX512_INLINE avx512_v avx512_sub(avx512_v a, avx512_v b) { return _mm512_sub_ps(a, b); }
    WSE_AVX512_INLINE avx512_v avx512_mul(avx512_v a, avx512_v b) { return _mm512_mul_ps(a, b); }
    WSE_AVX512_INLINE avx512_v avx512_fma(avx512_v a, avx512_v b, avx512_v c) { return _mm512_fmadd_ps(a, b, c); }
    WSE_AVX512_INLINE avx512_v avx512_ld(avx512_m m, const uint32_t *p) { return _mm512_maskz_loadu_ps(m, p); }
    WSE_AVX512_INLINE avx512_v avx512_quiet(avx512_v x)
    {
        avx512_v nan = _mm512_castsi512_ps(_mm512_set1_epi32(0x7FC00000));
        return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), nan);
    }
    WSE_AVX512_INLINE void avx512_st(avx512_m m, uint32_t *p, avx512_v x)
    {
        _mm512_mask_storeu_ps(p, m, avx512_quiet(x));
    }
    WSE_AVX512_INLINE avx512_v avx512_ldf(avx512_m m, const uint16_t *p, int bias)
    {
        (void)bias;
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, p));
    }
    WSE_AVX512_INLINE void avx512_stf(avx512_m m, uint16_t *p, avx512_v x, int bias)
    {
        (void)bias;
        _mm256_mask_storeu_epi16(
            p, m, _mm512_cvtps_ph(avx512_quiet(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    WSE_AVX512_INLINE avx512_v avx512_ldc(avx512_m m, const uint16_t *p, int bias)
    {
        __m512i code = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, p));
        __m512i sign = _mm512_slli_epi32(_mm512_and_si512(code, _mm512_set1_epi32(0x8000)), 16);
        __m512i mag = _mm512_slli_epi32(_mm512_and_si512(code, _mm512_set1_epi32(0x7FFF)), 14);
        __m512i least = _mm512_set1_epi32((128 - bias) << 23);
        __m512i normal = _mm512_add_epi32(mag, _mm512_set1_epi32((127 - bias) << 23));
        __mmask16 is_small = _mm512_cmplt_epi32_mask(mag, _mm512_set1_epi32(0x0200 << 14));
        __mmask16 is_top = _mm512_cmpge_epi32_mask(mag, _mm512_set1_epi32(0x7E00 << 14));
        __m512i small = _mm512_castps_si512(_mm512_sub_ps(_mm512_castsi512_ps(_mm512_add_epi32(mag, least)),
                                                          _mm512_castsi512_ps(least)));
        normal = _mm512_mask_or_epi32(normal, is_top, mag, _mm512_set1_epi32(0x7F800000));
        normal = _mm512_mask_mov_epi32(normal, is_small, small);
        return _mm512_castsi512_ps(_mm512_or_si512(sign, normal));
    }
    WSE_AVX512_INLINE void avx512_stc(avx512_m m, uint16_t *p, avx512_v x, int bias)
    {
        __m512i u = _mm512_castps_si512(avx512_quiet(x));
        __m512i sign = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x8000));
        __m512i mag = _mm512_and_si512(u, _mm512_set1_epi32(0x7FFFFFFF));
        __m512i magic = _mm512_set1_epi32((127 + 24 - bias - 9) << 23);
        __m512i last = _mm512_and_si512(_mm512_srli_epi32(mag, 14), _mm512_set1_epi32(1));
        __m512i half = _mm512_add_epi32(_mm512_set1_epi32(0x1FFF), last);
        __m512i normal = _mm512_srli_epi32(_mm512_add_epi32(mag, half), 14);
        __m512i small = _mm512_sub_epi32(_mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(mag),
                                                                           _mm512_castsi512_ps(magic))), magic);
        __mmask16 is_small = _mm512_cmplt_epi32_mask(mag, _mm512_set1_epi32((128 - bias) << 23));
        __mmask16 is_nan = _mm512_cmpgt_epi32_mask(mag, _mm512_set1_epi32(0x7F800000));
        normal = _mm512_min_epi32(_mm512_sub_epi32(normal, _mm512_set1_epi32((127 - bias) << 9)),
                                  _mm512_set1_epi32(0x7E00));
        u = _mm512_mask_mov_epi32(normal, is_small, small);
        u = _mm512_mask_mov_epi32(u, is_nan, _mm512_set1_epi32(0x7F00));
        _mm256_mask_storeu_epi16(p, m, _mm512_cvtepi32_epi16(_mm512_or_si512(u, sign)));
    }
    WSE_AVX512_INLINE avx512_v avx512_odd(avx512_v p, avx512_v c)
    {
        avx512_v s = _mm512_add_ps(p, c);
        avx512_v t = _mm512_sub_ps(s, p);
        avx512_v e = _mm512_add_ps(_mm512_sub_ps(p, _mm512_sub_ps(s, t)), _mm512_sub_ps(c, t));
        __mmask16 lost = _mm512_cmp_ps_mask(e, _mm512_setzero_ps(), _CMP_NEQ_OQ);
        __m512i u = _mm512_castps_si512(s);
        __m512i away = _mm512_srai_epi32(_mm512_xor_si512(u, _mm512_castps_si512(e)), 31);
        u = _mm512_mask_add_epi32(u, lost, u, away);
        return _mm512_castsi512_ps(_mm512_mask_or_epi32(u, lost, u, _mm512_set1_epi32(1)));
    }

    /* The operations on one vector's worth; h is f or c, the 16-bit format;
       m says which elements are there. */
    #define WSE_DO_FMACS(X, h, m, d, a, b) X##_st(m, d, X##_fma(X##_ld(m, b), kk, X##_ld(m, a)));
    #define WSE_DO_FADDS(X, h, m, d, a, b) X##_st(m, d, X##_add(X##_ld(m, a), X##_ld(m, b)));
    #define WSE_DO_FSUBS(X, h, m, d, a, b) X##_st(m, d, X##_sub(X##_ld(m, a), X##_ld(m, b)));
    #define WSE_DO_FMULS(X, h, m, d, a, b) X##_st(m, d, X##_mul(X##_ld(m, a), X##_ld(m, b)));
    #define WSE_DO_FMACH(X, h, m, d, a, b) \
        X##_st##h(m, d, X##_odd(X##_mul(X##_ld##h(m, b, bias), kk), X##_ld##h(m, a, bias)), bias);
    #define WSE_DO_FADDH(X, h, m, d, a, b) X##_st##h(m, d, X##_add(X##_ld##h(m, a, bias), X##_ld##h(m, b, bias)), bias);
    #define WSE_DO_FSUBH(X, h, m, d, a, b) X##_st##h(m, d, X##_sub(X##_ld##h(m, a, bias), X##_ld##h(m, b, bias)), bias);
    #define WSE_DO_FMULH(X, h, m, d, a, b) X##_st##h(m, d, X##_mul(X##_ld##h(m, a, bias), X##_ld##h(m, b, bias)), bias);
    #define WSE_DO_FMACHS(X, h, m, d, a, b) X##_st(m, d, X##_add(X##_mul(X##_ld##h(m, b, bias), kk), X##_ld(m, a)));
    #define WSE_DO_FADDHS(X, h, m, d, a, b) X##_st(m, d, X##_add(X##_ld##h(m, a, bias), X##_ld(m, b)));

    /* A kernel for instruction set X with N lanes; returns how many elements it did. A tail takes the same instructions
       and touches nothing beyond n: under a mask, or, with WSE_VEC_SHORT elements or more, through buffers of N. */
    #define WSE_KERNEL(X, ATTR, N, NAME, h, TD, TA, TB, DO)                                                   \
        ATTR static Py_ssize_t X##_##NAME(TD *d, const TA *a, const TB *b, float k, int bias, Py_ssize_t n)   \
        {                                                                                                     \
            X##_v kk = X##_set(k);                                                                            \
            Py_ssize_t i;                                                                                     \
            (void)kk; (void)bias;                                                                             \
            for (i = 0; i + N <= n; i += N) { DO(X, h, X##_ALL, d + i, a + i, b + i) }                        \
            if (i < n && X##_MASKS) {                                                                         \
                X##_m rest = X##_first(n - i);                                                                \
                DO(X, h, rest, d + i, a + i, b + i)                                                           \
                i = n;                                                                                        \
            } else if (n - i >= WSE_VEC_SHORT) {                                                              \
                TD d_tail[N];                                                                                 \
                TA a_tail[N] = {0};                                                                           \
                TB b_tail[N] = {0};                                                                           \
                memcpy(a_tail, a + i, (size_t)(n - i) * sizeof(TA));                                          \
                memcpy(b_tail, b + i, (size_t)(n - i) * sizeof(TB));                                          \
                DO(X, h, X##_ALL, d_tail, a_tail, b_tail)                                                     \
                memcpy(d + i, d_tail, (size_t)(n - i) * sizeof(TD));                                          \
                i = n;                                                                                        \
            }                                                                                                 \
            return i;                                                                                         \
        }

    #define WSE_EACH(M)                                                    \
        M(fmacs, f, uint32_t, uint32_t, uint32_t, WSE_DO_FMACS)            \
        M(fadds, f, uint32_t, uint32_t, uint32_t, WSE_DO_FADDS)            \
        M(fsubs, f, uint32_t, uint32_t, uint32_t, WSE_DO_FSUBS)            \
        M(fmuls, f, uint32_t, uint32_t, uint32_t, WSE_DO_FMULS)            \
        M(fmach_f16, f, uint16_t, uint16_t, uint16_t, WSE_DO_FMACH)        \
        M(faddh_f16, f, uint16_t, uint16_t, uint16_t, WSE_DO_FADDH)        \
        M(fsubh_f16, f, uint16_t, uint16_t, uint16_t, WSE_DO_FSUBH)        \
        M(fmulh_f16, f, uint16_t, uint16_t, uint16_t, WSE_DO_FMULH)        \
        M(fmachs_f16, f, uint32_t, uint32_t, uint16_t, WSE_DO_FMACHS)      \
        M(faddhs_f16, f, uint32_t, uint16_t, uint32_t, WSE_DO_FADDHS)      \
        M(fmach_cb16, c, uint16_t, uint16_t, uint16_t, WSE_DO_FMACH)       \
        M(faddh_cb16, c, uint16_t, uint16_t, uint16_t, WSE_DO_FADDH)       \
        M(fsubh_cb16, c, uint16_t, uint16_t, uint16_t, WSE_DO_FSUBH)       \
        M(fmulh_cb16, c, uint16_t, uint16_t, uint16_t, WSE_DO_FMULH)       \
        M(fmachs_cb16, c, uint32_t, uint32_t, uint16_t, WSE_DO_FMACHS)     \
        M(faddhs_cb16, c, uint32_t, uint16_t, uint32_t, WSE_DO_FADDHS)

    #define WSE_AVX2_KERNEL(NAME, h, TD, TA, TB, DO) WSE_KERNEL(avx2, WSE_AVX2, 8, NAME, h, TD, TA, TB, DO)
    #define WSE_AVX512_KERNEL(NAME, h, TD, TA, TB, DO) WSE_KERNEL(avx512, WSE_AVX512, 16, NAME, h, TD, TA, TB, DO)
    WSE_EACH(WSE_AVX2_KERNEL)
    WSE_EACH(WSE_AVX512_KERNEL)

    /* kernel_<name> returns how many elements it did; the caller does the rest with the scalar form. */
    #define WSE_CHOICE(NAME, h, TD, TA, TB, DO)                                                                       \
        static Py_ssize_t kernel_##NAME(int level, TD *d, const TA *a, const TB *b, float k, int bias, Py_ssize_t n)  \
        {                                                                                                             \
            if (level == WSE_VEC_PORTABLE || n <= 0) return 0;                                                        \
            if (level == WSE_VEC_AVX512) return avx512_##NAME(d, a, b, k, bias, n);                                   \
            return avx2_##NAME(d, a, b, k, bias, n);                                                                  \
        }
    WSE_EACH(WSE_CHOICE)

    #else
    static int wse_vec_detect(void) { return WSE_VEC_PORTABLE; }
    #define WSE_NO_KERNEL(level, d, a, b, k, bias, n) ((void)(level), (void)(k), 0)
    #define kernel_fmacs WSE_NO_KERNEL
    #define kernel_fadds WSE_NO_KERNEL
    #define kernel_fsubs WSE_NO_KERNEL
    #define kernel_fmuls WSE_NO_KERNEL
    #define kernel_fmach_f16 WSE_NO_KERNEL
    #define kernel_faddh_f16 WSE_NO_KERNEL
    #define kernel_fsubh_f16 WSE_NO_KERNEL
    #define kernel_fmulh_f16 WSE_NO_KERNEL
    #define kernel_fmachs_f16 WSE_NO_KERNEL
    #define kernel_faddhs_f16 WSE_NO_KERNEL
    #define kernel_fmach_cb16 WSE_NO_KERNEL
    #define kernel_faddh_cb16 WSE_NO_KERNEL
    #define kernel_fsubh_cb16 WSE_NO_KERNEL
    #define kernel_fmulh_cb16 WSE_NO_KERNEL
    #define kernel_fmachs_cb16 WSE_NO_KERNEL
    #define kernel_faddhs_cb16 WSE_NO_KERNEL
    #endif
    """
    int LEVEL_PORTABLE "WSE_VEC_PORTABLE"
    int LEVEL_AVX2 "WSE_VEC_AVX2"
    int LEVEL_AVX512 "WSE_VEC_AVX512"
    int detect "wse_vec_detect"() noexcept nogil
    Py_ssize_t kernel_fmacs(int level, uint32_t* d, const uint32_t* a, const uint32_t* b, float k, int bias,
                            Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_fadds(int level, uint32_t* d, const uint32_t* a, const uint32_t* b, float k, int bias,
                            Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_fsubs(int level, uint32_t* d, const uint32_t* a, const uint32_t* b, float k, int bias,
                            Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_fmuls(int level, uint32_t* d, const uint32_t* a, const uint32_t* b, float k, int bias,
                            Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_fmach_f16(int level, uint16_t* d, const uint16_t* a, const uint16_t* b, float k, int bias,
                                Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_faddh_f16(int level, uint16_t* d, const uint16_t* a, const uint16_t* b, float k, int bias,
                                Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_fsubh_f16(int level, uint16_t* d, const uint16_t* a, const uint16_t* b, float k, int bias,
                                Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_fmulh_f16(int level, uint16_t* d, const uint16_t* a, const uint16_t* b, float k, int bias,
                                Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_fmachs_f16(int level, uint32_t* d, const uint32_t* a, const uint16_t* b, float k, int bias,
                                 Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_faddhs_f16(int level, uint32_t* d, const uint16_t* a, const uint32_t* b, float k, int bias,
                                 Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_fmach_cb16(int level, uint16_t* d, const uint16_t* a, const uint16_t* b, float k, int bias,
                                 Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_faddh_cb16(int level, uint16_t* d, const uint16_t* a, const uint16_t* b, float k, int bias,
                                 Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_fsubh_cb16(int level, uint16_t* d, const uint16_t* a, const uint16_t* b, float k, int bias,
                                 Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_fmulh_cb16(int level, uint16_t* d, const uint16_t* a, const uint16_t* b, float k, int bias,
                                 Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_fmachs_cb16(int level, uint32_t* d, const uint32_t* a, const uint16_t* b, float k, int bias,
                                  Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_faddhs_cb16(int level, uint32_t* d, const uint16_t* a, const uint32_t* b, float k, int bias,
                                  Py_ssize_t n) noexcept nogil

# What the host can do, and what is in use. Written only by set_backend.
cdef int _host_level = detect()
cdef int _level = _host_level


# ---- the operations ---------------------------------------------------------------------------------------------
# Each: the kernel if there is one for this host and nothing is flushed; then the scalar form for what is left.

cdef void vec_fmacs(const num_t* s, uint32_t* d, const uint32_t* a, const uint32_t* b, uint32_t k,
                    Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i, done = 0
    if s.ftz == 0:
        done = kernel_fmacs(_level, d, a, b, f32_of_bits(k), 0, n)
    for i in range(done, n):
        d[i] = f32_fma(b[i], k, a[i], s.ftz)


cdef void vec_fmach(const num_t* s, uint16_t* d, const uint16_t* a, const uint16_t* b, uint16_t k,
                    Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i, done = 0
    if s.ftz == 0:
        if s.half == FMT_F16:
            done = kernel_fmach_f16(_level, d, a, b, _h_in(s, k), 0, n)
        else:
            done = kernel_fmach_cb16(_level, d, a, b, _h_in(s, k), s.bias, n)
    for i in range(done, n):
        d[i] = h_fma(s, b[i], k, a[i])


cdef void vec_fmachs(const num_t* s, uint32_t* d, const uint32_t* a, const uint16_t* b, uint16_t k,
                     Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i, done = 0
    if s.ftz == 0:
        if s.half == FMT_F16:
            done = kernel_fmachs_f16(_level, d, a, b, _h_in(s, k), 0, n)
        else:
            done = kernel_fmachs_cb16(_level, d, a, b, _h_in(s, k), s.bias, n)
    for i in range(done, n):
        d[i] = hs_fma(s, b[i], k, a[i])


cdef void vec_fadds(const num_t* s, uint32_t* d, const uint32_t* a, const uint32_t* b, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i, done = 0
    if s.ftz == 0:
        done = kernel_fadds(_level, d, a, b, 0.0, 0, n)
    for i in range(done, n):
        d[i] = f32_add(a[i], b[i], s.ftz)


cdef void vec_fsubs(const num_t* s, uint32_t* d, const uint32_t* a, const uint32_t* b, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i, done = 0
    if s.ftz == 0:
        done = kernel_fsubs(_level, d, a, b, 0.0, 0, n)
    for i in range(done, n):
        d[i] = f32_sub(a[i], b[i], s.ftz)


cdef void vec_fmuls(const num_t* s, uint32_t* d, const uint32_t* a, const uint32_t* b, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i, done = 0
    if s.ftz == 0:
        done = kernel_fmuls(_level, d, a, b, 0.0, 0, n)
    for i in range(done, n):
        d[i] = f32_mul(a[i], b[i], s.ftz)


cdef void vec_faddh(const num_t* s, uint16_t* d, const uint16_t* a, const uint16_t* b, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i, done = 0
    if s.ftz == 0:
        if s.half == FMT_F16:
            done = kernel_faddh_f16(_level, d, a, b, 0.0, 0, n)
        else:
            done = kernel_faddh_cb16(_level, d, a, b, 0.0, s.bias, n)
    for i in range(done, n):
        d[i] = h_add(s, a[i], b[i])


cdef void vec_fsubh(const num_t* s, uint16_t* d, const uint16_t* a, const uint16_t* b, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i, done = 0
    if s.ftz == 0:
        if s.half == FMT_F16:
            done = kernel_fsubh_f16(_level, d, a, b, 0.0, 0, n)
        else:
            done = kernel_fsubh_cb16(_level, d, a, b, 0.0, s.bias, n)
    for i in range(done, n):
        d[i] = h_sub(s, a[i], b[i])


cdef void vec_fmulh(const num_t* s, uint16_t* d, const uint16_t* a, const uint16_t* b, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i, done = 0
    if s.ftz == 0:
        if s.half == FMT_F16:
            done = kernel_fmulh_f16(_level, d, a, b, 0.0, 0, n)
        else:
            done = kernel_fmulh_cb16(_level, d, a, b, 0.0, s.bias, n)
    for i in range(done, n):
        d[i] = h_mul(s, a[i], b[i])


cdef void vec_faddhs(const num_t* s, uint32_t* d, const uint16_t* a, const uint32_t* b, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i, done = 0
    if s.ftz == 0:
        if s.half == FMT_F16:
            done = kernel_faddhs_f16(_level, d, a, b, 0.0, 0, n)
        else:
            done = kernel_faddhs_cb16(_level, d, a, b, 0.0, s.bias, n)
    for i in range(done, n):
        d[i] = hs_add(s, a[i], b[i])


# ---- Python side: choice of the kernels, and one door to the operations for tests and measurements ---------------

_LEVELS = {"portable": LEVEL_PORTABLE, "avx2": LEVEL_AVX2, "avx512": LEVEL_AVX512}


def backend():
    """Return the kernels in use.

    Returns
    -------
    str
        "avx512", "avx2" or "portable". Results do not depend on it.
    """
    return next(name for name, level in _LEVELS.items() if level == _level)


def backends():
    """Return the names that `set_backend` accepts on this host, slowest first, as a list of str."""
    return [name for name, level in _LEVELS.items() if level <= _host_level]


def set_backend(name="best"):
    """Choose the kernels, for tests and measurements. Not while a run is in progress.

    Parameters
    ----------
    name : str
        "portable", "avx2", "avx512", or "best" for the fastest that this host has.

    Returns
    -------
    str
        The choice that was in force before, ready to be set again.

    Raises
    ------
    ConfigError
        No such name.
    UnsupportedError
        The host's processor lacks the instructions.
    """
    global _level
    before = backend()
    if name == "best":
        _level = _host_level
        return before
    if name not in _LEVELS:
        raise ConfigError(f"no vector backend {name!r}", hint=f"one of best, {', '.join(_LEVELS)}")
    if _LEVELS[name] > _host_level:
        raise UnsupportedError(f"vector backend {name!r} needs instructions that this processor does not have",
                               feature="vector-backend", hint=f"one of best, {', '.join(backends())}")
    _level = _LEVELS[name]
    return before


# name: itemsize of d, a, b, k (0 if there is none)
_OPERATIONS = {
    "fmacs": (4, 4, 4, 4), "fmach": (2, 2, 2, 2), "fmachs": (4, 4, 2, 2),
    "fadds": (4, 4, 4, 0), "fsubs": (4, 4, 4, 0), "fmuls": (4, 4, 4, 0),
    "faddh": (2, 2, 2, 0), "fsubh": (2, 2, 2, 0), "fmulh": (2, 2, 2, 0),
    "faddhs": (4, 2, 4, 0),
}


cdef void* _address(array, int itemsize, str name, bint writable) except? NULL:
    if (not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype != f"u{itemsize}"
            or not array.flags.c_contiguous or (writable and not array.flags.writeable)):
        raise ConfigError(f"{name} must be a contiguous one-dimensional uint{8 * itemsize} array"
                          + (" that may be written" if writable else ""))
    return <void*><size_t>array.ctypes.data


def run(operation, a, b, k=0, *, out=None, fmt="f16", bias=CB16_BIAS_DEFAULT, ftz=False, repeat=1):
    """Run one bulk operation on bit patterns.

    Parameters
    ----------
    operation : str
        "fmacs", "fmach", "fmachs", "fadds", "fsubs", "fmuls", "faddh", "fsubh", "fmulh" or "faddhs".
    a, b : numpy.ndarray
        Contiguous vectors of equal length; uint16 or uint32 as the operation says (last letter h or s; for fmachs b,
        for faddhs a is uint16).
    k : int
        Bits of the scalar factor of the three multiply-adds, d = a + b*k.
    out : numpy.ndarray, optional
        Result vector; may be `a` or `b` itself.
    fmt : {"f16", "cb16"}
        The 16-bit format.
    bias : int
        Exponent bias of cb16.
    ftz : bool
        Flush subnormal operands and results.
    repeat : int
        How often to run, for measurements.

    Returns
    -------
    numpy.ndarray
        `out`, or a new array.

    Raises
    ------
    ConfigError
        Unknown operation or format, wrong dtype or length.
    """
    cdef num_t s
    cdef void* d_at
    cdef void* a_at
    cdef void* b_at
    cdef Py_ssize_t n
    cdef int _i, code, times = repeat
    cdef uint32_t factor
    if operation not in _OPERATIONS:
        raise ConfigError(f"no bulk operation {operation!r}", hint=f"one of {', '.join(_OPERATIONS)}")
    if fmt not in ("f16", "cb16"):
        raise ConfigError(f"fmt is {fmt!r}", hint="f16 or cb16")
    size_d, size_a, size_b, size_k = _OPERATIONS[operation]
    if out is None:
        out = np.empty(len(a), f"u{size_d}")
    d_at = _address(out, size_d, "out", True)
    a_at = _address(a, size_a, "a", False)
    b_at = _address(b, size_b, "b", False)
    if not len(out) == len(a) == len(b):
        raise ConfigError(f"lengths differ: out {len(out)}, a {len(a)}, b {len(b)}")
    for name, other in (("a", a), ("b", b)):
        if np.may_share_memory(out, other) and (out.ctypes.data != other.ctypes.data
                                                or out.itemsize != other.itemsize):
            raise ConfigError(f"out overlaps {name} without being the same vector")
    if not 0 <= k < (1 << 8 * size_k if size_k else 1):
        raise ConfigError(f"k is {k}", hint=f"bits of {8 * size_k} width" if size_k else "0, this operation has none")
    s.half = FMT_F16 if fmt == "f16" else FMT_CB16
    s.bias = bias
    s.ftz = 1 if ftz else 0
    if not num_is_valid(&s):
        raise ConfigError(f"bias is {bias}", hint="1 to 62")
    n = len(a)
    factor = k
    code = list(_OPERATIONS).index(operation)
    with nogil:
        for _i in range(times):
            if code == 0:
                vec_fmacs(&s, <uint32_t*>d_at, <uint32_t*>a_at, <uint32_t*>b_at, factor, n)
            elif code == 1:
                vec_fmach(&s, <uint16_t*>d_at, <uint16_t*>a_at, <uint16_t*>b_at, <uint16_t>factor, n)
            elif code == 2:
                vec_fmachs(&s, <uint32_t*>d_at, <uint32_t*>a_at, <uint16_t*>b_at, <uint16_t>factor, n)
            elif code == 3:
                vec_fadds(&s, <uint32_t*>d_at, <uint32_t*>a_at, <uint32_t*>b_at, n)
            elif code == 4:
                vec_fsubs(&s, <uint32_t*>d_at, <uint32_t*>a_at, <uint32_t*>b_at, n)
            elif code == 5:
                vec_fmuls(&s, <uint32_t*>d_at, <uint32_t*>a_at, <uint32_t*>b_at, n)
            elif code == 6:
                vec_faddh(&s, <uint16_t*>d_at, <uint16_t*>a_at, <uint16_t*>b_at, n)
            elif code == 7:
                vec_fsubh(&s, <uint16_t*>d_at, <uint16_t*>a_at, <uint16_t*>b_at, n)
            elif code == 8:
                vec_fmulh(&s, <uint16_t*>d_at, <uint16_t*>a_at, <uint16_t*>b_at, n)
            else:
                vec_faddhs(&s, <uint32_t*>d_at, <uint16_t*>a_at, <uint32_t*>b_at, n)
    return out
