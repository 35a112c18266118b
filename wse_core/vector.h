/* Kernels of vector.pyx for x86 hosts with AVX2 or AVX-512: each of the sixteen bulk operations, for one vector's worth
   and for a whole vector with its tail.  What they promise and why it is exact stands in the head of vector.pyx.

   With WSE_VEC_EMULATED the intrinsics come from whoever includes this file, as portable C: so both
   forms can be run on a host that has neither. */
#ifndef WSE_VECTOR_H
#define WSE_VECTOR_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { WSE_VEC_PORTABLE = 0, WSE_VEC_AVX2 = 1, WSE_VEC_AVX512 = 2 };

/* Bits of a number of elements of which kernels leave something: AVX-512 has masks, AVX2 vectors of 8. */
static inline Py_ssize_t wse_vec_odd_bits(int level)
{
    return level == WSE_VEC_AVX512 ? 0 : level == WSE_VEC_AVX2 ? 7 : -1;
}

/* [elements] Below a full vector a kernel costs about 13 ns: four 16-bit or eight f32 scalar forms. */
enum { WSE_VEC_SHORT = 6 };

#if (defined(__GNUC__) && defined(__x86_64__)) || defined(WSE_VEC_EMULATED)
#ifdef WSE_VEC_EMULATED
#define WSE_TARGET(names)
#define WSE_APART
static int wse_vec_detect(void) { return WSE_VEC_AVX512; }
#else
#define WSE_TARGET(names) __attribute__((target(names)))
#define WSE_APART __attribute__((noinline))
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
#endif

/* Building blocks, once per instruction set. v is a vector of f32; m says which of its elements are in memory.
   ld/st      f32 bits; st makes NaNs canonical
   ldf/stf    f16; ldc/stc  cb16 with the given bias; stores round once and make NaNs canonical
   odd        p + c rounded to odd: toward zero, then the last bit is set if anything was lost. The subtraction
              below is the step toward zero when the host sum had been rounded away from it. For infinities and
              NaN the error is NaN, the ordered comparison fails and the host sum stands.
   cb16       as decode16 and encode16 in arithmetic.pxd, on f32 instead of double */

#define WSE_AVX2 WSE_TARGET("avx2,f16c,fma")
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

#define WSE_AVX512 WSE_TARGET("avx512f,avx512bw,avx512vl,avx2,f16c,fma")
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
   and touches nothing beyond n: under a mask, or, with WSE_VEC_SHORT elements or more, through buffers of N. Buffers
   stand apart: a kernel without a tail, the usual case, needs no frame (gain: a third, 32 elements). */
#define WSE_KERNEL(X, ATTR, N, NAME, h, TD, TA, TB, DO)                                                            \
    ATTR WSE_APART static void X##_##NAME##_tail(TD *d, const TA *a, const TB *b, float k, int bias, Py_ssize_t n) \
    {                                                                                                              \
        X##_v kk = X##_set(k);                                                                                     \
        TD d_tail[N];                                                                                              \
        TA a_tail[N] = {0};                                                                                        \
        TB b_tail[N] = {0};                                                                                        \
        (void)kk; (void)bias;                                                                                      \
        memcpy(a_tail, a, (size_t)n * sizeof(TA));                                                                 \
        memcpy(b_tail, b, (size_t)n * sizeof(TB));                                                                 \
        DO(X, h, X##_ALL, d_tail, a_tail, b_tail)                                                                  \
        memcpy(d, d_tail, (size_t)n * sizeof(TD));                                                                 \
    }                                                                                                              \
    ATTR static Py_ssize_t X##_##NAME(TD *d, const TA *a, const TB *b, float k, int bias, Py_ssize_t n)            \
    {                                                                                                              \
        X##_v kk = X##_set(k);                                                                                     \
        Py_ssize_t i;                                                                                              \
        (void)kk; (void)bias;                                                                                      \
        for (i = 0; i + N <= n; i += N) { DO(X, h, X##_ALL, d + i, a + i, b + i) }                                 \
        if (i < n && X##_MASKS) {                                                                                  \
            X##_m rest = X##_first(n - i);                                                                         \
            DO(X, h, rest, d + i, a + i, b + i)                                                                    \
            i = n;                                                                                                 \
        } else if (n - i >= WSE_VEC_SHORT) {                                                                       \
            X##_##NAME##_tail(d + i, a + i, b + i, k, bias, n - i);                                                \
            i = n;                                                                                                 \
        }                                                                                                          \
        return i;                                                                                                  \
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

#endif
