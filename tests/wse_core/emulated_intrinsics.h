/* The vector intrinsics that wse_core/vector.h uses, as plain C: what each does to every lane, after the pseudo-code of
   Intel's intrinsics guide.  With it both vector forms of the kernels run on any host (tests/wse_core/emulated.py).

   It is written for what the kernels must not get wrong, where portable replacements of intrinsics take liberties:
   lanes that a mask leaves out are neither read nor written in memory, and a fused multiply-add rounds once. */
#ifndef WSE_EMULATED_INTRINSICS_H
#define WSE_EMULATED_INTRINSICS_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef ptrdiff_t Py_ssize_t;

/* Integers are lanes of 32 bits or halves of 16; which half is the lower one is as on x86. */
typedef struct { float lane[16]; } __m512;
typedef struct { uint32_t lane[16]; } __m512i;
typedef struct { float lane[8]; } __m256;
typedef union { uint32_t lane[8]; uint16_t half[16]; } __m256i;
typedef struct { uint16_t half[8]; } __m128i;
typedef uint16_t __mmask16;

enum { _CMP_UNORD_Q = 3, _CMP_NEQ_OQ = 12 };
enum { _MM_FROUND_TO_NEAREST_INT = 0, _MM_FROUND_NO_EXC = 8 };

/* ---- one lane ---- */

static inline uint32_t bits_of(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }
static inline float of_bits(uint32_t u) { float x; memcpy(&x, &u, 4); return x; }

static inline int compared(float a, float b, int how)
{
    return how == _CMP_UNORD_Q ? isnan(a) || isnan(b) : !isnan(a) && !isnan(b) && a != b;
}

static inline float of_half(uint16_t code)
{
    uint32_t sign = (uint32_t)(code & 0x8000) << 16, fraction = code & 0x3FF;
    int exponent = code >> 10 & 31;
    if (exponent == 31) return of_bits(sign | 0x7F800000 | (fraction ? 0x400000 | fraction << 13 : 0));
    float size = exponent ? ldexpf((float)(1024 + fraction), exponent - 25) : ldexpf((float)fraction, -24);
    return of_bits(sign | bits_of(size));
}

/* To nearest, ties to even: the size in units of its last place, rounded by the host in double. */
static inline uint16_t to_half(float x)
{
    uint16_t sign = bits_of(x) >> 16 & 0x8000;
    int exponent;
    if (isnan(x)) return sign | 0x7E00 | (bits_of(x) >> 13 & 0x1FF);
    if (isinf(x)) return sign | 0x7C00;
    double size = fabs((double)x);
    frexp(size, &exponent);
    exponent = size == 0 || exponent - 1 < -14 ? -14 : exponent - 1;
    double code = (exponent + 14) * 1024.0 + nearbyint(ldexp(size, 10 - exponent));
    return sign | (code < 0x7C00 ? (uint16_t)code : 0x7C00);
}

static inline int32_t lower(int32_t a, int32_t b) { return a < b ? a : b; }
static inline uint32_t arithmetic_shift(uint32_t a, int n) { return a >> n | (a >> 31 ? ~(0xFFFFFFFFu >> n) : 0); }
static inline uint16_t saturated(uint32_t a) { return a >> 31 ? 0 : a > 0xFFFF ? 0xFFFF : (uint16_t)a; }

/* ---- the same over all lanes ---- */

#define EACH(n) for (int j = 0; j < n; j++)
#define FUNCTION(type, name, ...) static inline type name(__VA_ARGS__)
#define RETURN_LANES(type, n, value) { type r; EACH(n) r.lane[j] = (value); return r; }
#define RETURN_MASK(condition) { __mmask16 r = 0; EACH(16) r |= (__mmask16)((condition) ? 1u << j : 0); return r; }
#define A (a.lane[j])
#define B (b.lane[j])
#define C (c.lane[j])

#define BOTH(bits, n, ps, si)                                                                                        \
    FUNCTION(ps, _mm##bits##_set1_ps, float x) RETURN_LANES(ps, n, x)                                                \
    FUNCTION(ps, _mm##bits##_setzero_ps, void) RETURN_LANES(ps, n, 0.0f)                                             \
    FUNCTION(ps, _mm##bits##_add_ps, ps a, ps b) RETURN_LANES(ps, n, A + B)                                          \
    FUNCTION(ps, _mm##bits##_sub_ps, ps a, ps b) RETURN_LANES(ps, n, A - B)                                          \
    FUNCTION(ps, _mm##bits##_mul_ps, ps a, ps b) RETURN_LANES(ps, n, A * B)                                          \
    FUNCTION(ps, _mm##bits##_fmadd_ps, ps a, ps b, ps c) RETURN_LANES(ps, n, fmaf(A, B, C))                          \
    FUNCTION(si, _mm##bits##_castps_si##bits, ps a) RETURN_LANES(si, n, bits_of(A))                                  \
    FUNCTION(ps, _mm##bits##_castsi##bits##_ps, si a) RETURN_LANES(ps, n, of_bits(A))                                \
    FUNCTION(si, _mm##bits##_set1_epi32, int x) RETURN_LANES(si, n, (uint32_t)x)                                     \
    FUNCTION(si, _mm##bits##_add_epi32, si a, si b) RETURN_LANES(si, n, A + B)                                       \
    FUNCTION(si, _mm##bits##_sub_epi32, si a, si b) RETURN_LANES(si, n, A - B)                                       \
    FUNCTION(si, _mm##bits##_min_epi32, si a, si b) RETURN_LANES(si, n, (uint32_t)lower((int32_t)A, (int32_t)B))     \
    FUNCTION(si, _mm##bits##_and_si##bits, si a, si b) RETURN_LANES(si, n, A & B)                                    \
    FUNCTION(si, _mm##bits##_or_si##bits, si a, si b) RETURN_LANES(si, n, A | B)                                     \
    FUNCTION(si, _mm##bits##_slli_epi32, si a, unsigned count) RETURN_LANES(si, n, A << count)                       \
    FUNCTION(si, _mm##bits##_srli_epi32, si a, unsigned count) RETURN_LANES(si, n, A >> count)                       \
    FUNCTION(si, _mm##bits##_srai_epi32, si a, unsigned count) RETURN_LANES(si, n, arithmetic_shift(A, (int)count))
BOTH(256, 8, __m256, __m256i)
BOTH(512, 16, __m512, __m512i)

/* ---- 512 bits: masks ---- */

#define CHOSEN(yes, no) (k >> j & 1 ? (yes) : (no))
FUNCTION(__mmask16, _mm512_cmp_ps_mask, __m512 a, __m512 b, int how) RETURN_MASK(compared(A, B, how))
FUNCTION(__mmask16, _mm512_cmplt_epi32_mask, __m512i a, __m512i b) RETURN_MASK((int32_t)A < (int32_t)B)
FUNCTION(__mmask16, _mm512_cmpgt_epi32_mask, __m512i a, __m512i b) RETURN_MASK((int32_t)A > (int32_t)B)
FUNCTION(__mmask16, _mm512_cmpge_epi32_mask, __m512i a, __m512i b) RETURN_MASK((int32_t)A >= (int32_t)B)
FUNCTION(__m512i, _mm512_xor_si512, __m512i a, __m512i b) RETURN_LANES(__m512i, 16, A ^ B)
FUNCTION(__m512, _mm512_mask_mov_ps, __m512 src, __mmask16 k, __m512 a) RETURN_LANES(__m512, 16, CHOSEN(A, src.lane[j]))
FUNCTION(__m512i, _mm512_mask_mov_epi32, __m512i src, __mmask16 k, __m512i a)
    RETURN_LANES(__m512i, 16, CHOSEN(A, src.lane[j]))
FUNCTION(__m512i, _mm512_mask_add_epi32, __m512i src, __mmask16 k, __m512i a, __m512i b)
    RETURN_LANES(__m512i, 16, CHOSEN(A + B, src.lane[j]))
FUNCTION(__m512i, _mm512_mask_or_epi32, __m512i src, __mmask16 k, __m512i a, __m512i b)
    RETURN_LANES(__m512i, 16, CHOSEN(A | B, src.lane[j]))

FUNCTION(__m512, _mm512_maskz_loadu_ps, __mmask16 k, const void *p)
{
    __m512 r;
    EACH(16) {
        r.lane[j] = 0.0f;
        if (k >> j & 1) memcpy(&r.lane[j], (const char *)p + 4 * j, 4);
    }
    return r;
}
FUNCTION(void, _mm512_mask_storeu_ps, void *p, __mmask16 k, __m512 a)
{
    EACH(16) if (k >> j & 1) memcpy((char *)p + 4 * j, &a.lane[j], 4);
}

/* ---- 16 halves between memory and 16 lanes ---- */

FUNCTION(__m256i, _mm256_maskz_loadu_epi16, __mmask16 k, const void *p)
{
    __m256i r;
    EACH(16) {
        r.half[j] = 0;
        if (k >> j & 1) memcpy(&r.half[j], (const char *)p + 2 * j, 2);
    }
    return r;
}
FUNCTION(void, _mm256_mask_storeu_epi16, void *p, __mmask16 k, __m256i a)
{
    EACH(16) if (k >> j & 1) memcpy((char *)p + 2 * j, &a.half[j], 2);
}
FUNCTION(__m512, _mm512_cvtph_ps, __m256i a) RETURN_LANES(__m512, 16, of_half(a.half[j]))
FUNCTION(__m512i, _mm512_cvtepu16_epi32, __m256i a) RETURN_LANES(__m512i, 16, a.half[j])
FUNCTION(__m256i, _mm512_cvtps_ph, __m512 a, int rounding)
{
    __m256i r;
    (void)rounding;
    EACH(16) r.half[j] = to_half(A);
    return r;
}
FUNCTION(__m256i, _mm512_cvtepi32_epi16, __m512i a)
{
    __m256i r;
    EACH(16) r.half[j] = (uint16_t)A;
    return r;
}

/* ---- 256 bits: lanes of ones in place of masks ---- */

FUNCTION(__m256, _mm256_cmp_ps, __m256 a, __m256 b, int how)
    RETURN_LANES(__m256, 8, of_bits(compared(A, B, how) ? 0xFFFFFFFFu : 0))
FUNCTION(__m256i, _mm256_cmpgt_epi32, __m256i a, __m256i b)
    RETURN_LANES(__m256i, 8, (int32_t)A > (int32_t)B ? 0xFFFFFFFFu : 0)
FUNCTION(__m256, _mm256_xor_ps, __m256 a, __m256 b) RETURN_LANES(__m256, 8, of_bits(bits_of(A) ^ bits_of(B)))
FUNCTION(__m256, _mm256_blendv_ps, __m256 a, __m256 b, __m256 c) RETURN_LANES(__m256, 8, bits_of(C) >> 31 ? B : A)
FUNCTION(__m256i, _mm256_blendv_epi8, __m256i a, __m256i b, __m256i c)
{
    __m256i r;
    EACH(32) {
        int which = ((const unsigned char *)&c)[j] >> 7;
        ((unsigned char *)&r)[j] = ((const unsigned char *)(which ? &b : &a))[j];
    }
    return r;
}
FUNCTION(__m256, _mm256_loadu_ps, const float *p) { __m256 r; memcpy(&r, p, 32); return r; }
FUNCTION(void, _mm256_storeu_ps, float *p, __m256 a) { memcpy(p, &a, 32); }
FUNCTION(__m128i, _mm_loadu_si128, const __m128i *p) { __m128i r; memcpy(&r, p, 16); return r; }
FUNCTION(void, _mm_storeu_si128, __m128i *p, __m128i a) { memcpy(p, &a, 16); }
FUNCTION(__m256, _mm256_cvtph_ps, __m128i a) RETURN_LANES(__m256, 8, of_half(a.half[j]))
FUNCTION(__m256i, _mm256_cvtepu16_epi32, __m128i a) RETURN_LANES(__m256i, 8, a.half[j])
FUNCTION(__m128i, _mm256_castsi256_si128, __m256i a) { __m128i r; memcpy(&r, &a, 16); return r; }
FUNCTION(__m128i, _mm256_cvtps_ph, __m256 a, int rounding)
{
    __m128i r;
    (void)rounding;
    EACH(8) r.half[j] = to_half(A);
    return r;
}
/* Each half of 128 bits packs four lanes of a, then four of b. */
FUNCTION(__m256i, _mm256_packus_epi32, __m256i a, __m256i b)
{
    __m256i r;
    EACH(16) r.half[j] = saturated((j & 4 ? &b : &a)->lane[(j >> 3) * 4 + (j & 3)]);
    return r;
}
FUNCTION(__m256i, _mm256_permute4x64_epi64, __m256i a, int order)
{
    __m256i r;
    EACH(4) memcpy(&r.lane[2 * j], &a.lane[2 * (order >> 2 * j & 3)], 8);
    return r;
}

#undef A
#undef B
#undef C
#undef EACH
#undef BOTH
#undef CHOSEN
#undef FUNCTION
#undef RETURN_LANES
#undef RETURN_MASK
#endif
