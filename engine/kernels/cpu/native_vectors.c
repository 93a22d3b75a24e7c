/* Vectors of the compiler's extension, and what more than one of native.c, native_heads.c and native_spatial.c does with
   them. Those files include this one. */

#if defined(__AVX__)
#include <immintrin.h>
#endif
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif
#define PANEL (2 * LANES) /* output columns whose weights lie together */
#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
typedef uint16_t halves __attribute__((vector_size(2 * LANES), aligned(2)));
typedef uint32_t words __attribute__((vector_size(4 * LANES)));
typedef uint8_t bytes __attribute__((vector_size(LANES), aligned(1)));

/* of native.c, which says what it does */
void linear(const float *x, long rows, long stride, long inner, int kind, const float *weight, const float *bias_of_norm, float constant,
            float *scratch, const void *packed, int half, const float *bias, const float *residual, float *out, long outer, int most);

INLINE vec load(const float *at) { return *(const loose *)at; }
INLINE void store(float *at, vec x) { *(loose *)at = x; }
INLINE vec all(float x) { return x - (vec){0}; }
INLINE vec chosen(ints which, vec a, vec b) { return (vec)(((ints)a & which) | ((ints)b & ~which)); }

/* A bit for each lane that is all ones. */
INLINE uint32_t lanes_of(ints which) {
#if defined(__AVX512F__)
    return _mm512_test_epi32_mask((__m512i)which, (__m512i)which);
#elif defined(__AVX__)
    return (uint32_t)_mm256_movemask_ps((__m256)which);
#else
    uint32_t found = 0;
    for (int i = 0; i < LANES; i++) found |= (uint32_t)(which[i] != 0) << i;
    return found;
#endif
}

/* a where it is greater, else b. The instructions do just this, also for zeros of either sign and for what is no number. */
INLINE vec larger(vec a, vec b) {
#if defined(__AVX512F__)
    return (vec)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX__)
    return (vec)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return chosen(a > b, a, b);
#endif
}

/* All ones for each of LANES bytes that is not 0. In two steps, because gcc 12 reads byte by byte if it is one. */
INLINE ints permitted(const uint8_t *at) {
    return (ints)__builtin_convertvector(__builtin_convertvector(*(const bytes *)at, halves), words) != 0;
}

INLINE vec load_half(const uint16_t *at) { return (vec)(__builtin_convertvector(*(const halves *)at, words) << 16); }

INLINE uint16_t half_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* `half_of` of every lane. */
INLINE halves narrowed(vec x) {
    const words bits = (words)x;
    return __builtin_convertvector((bits + 0x7fff + (bits >> 16 & 1)) >> 16, halves);
}

/* Rounds numbers to bfloat16. */
INLINE void round_all(uint16_t *out, const float *x, long count) {
    long i = 0;
    for (; i + LANES <= count; i += LANES) *(halves *)(out + i) = narrowed(load(x + i));
    for (; i < count; i++) out[i] = half_of(x[i]);
}

/* Half a step of a sum over lanes: lane i of the result is lane i of segment i / s of both vectors, each of whose segments has 2 s lanes. */
#define LANE(i, s, n) ((i) / (s) * 2 * (s) + (i) % (s) + (n))
#if LANES == 16
#define PICK(x, y, s, n) \
    __builtin_shufflevector(x, y, LANE(0, s, n), LANE(1, s, n), LANE(2, s, n), LANE(3, s, n), LANE(4, s, n), LANE(5, s, n), LANE(6, s, n), \
        LANE(7, s, n), LANE(8, s, n), LANE(9, s, n), LANE(10, s, n), LANE(11, s, n), LANE(12, s, n), LANE(13, s, n), LANE(14, s, n), LANE(15, s, n))
#elif LANES == 8
#define PICK(x, y, s, n) \
    __builtin_shufflevector(x, y, LANE(0, s, n), LANE(1, s, n), LANE(2, s, n), LANE(3, s, n), LANE(4, s, n), LANE(5, s, n), LANE(6, s, n), \
        LANE(7, s, n))
#else
#define PICK(x, y, s, n) __builtin_shufflevector(x, y, LANE(0, s, n), LANE(1, s, n), LANE(2, s, n), LANE(3, s, n))
#endif
#define MERGE(x, y, s) (PICK(x, y, s, 0) + PICK(x, y, s, s))

/* The sum of a vector's lanes, folded in halves. */
INLINE float sum_of(vec x) {
#if LANES == 16
    x = MERGE(x, x, 8);
#endif
#if LANES >= 8
    x = MERGE(x, x, 4);
#endif
    x = MERGE(x, x, 2);
    x = MERGE(x, x, 1);
    return x[0];
}

/* Lane i is the sum of vector i, with the bits of `sum_of`. */
INLINE vec sums_of(vec *x) {
#if LANES == 16
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) x[i] = MERGE(x[2 * i], x[2 * i + 1], 8);
#endif
#if LANES >= 8
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) x[i] = MERGE(x[2 * i], x[2 * i + 1], 4);
#endif
    const vec first = MERGE(x[0], x[1], 2), second = MERGE(x[2], x[3], 2);
    return MERGE(first, second, 1);
}

INLINE float largest_of(vec x) {
#if LANES == 16
    x = larger(PICK(x, x, 8, 0), PICK(x, x, 8, 8));
#endif
#if LANES >= 8
    x = larger(PICK(x, x, 4, 0), PICK(x, x, 4, 4));
#endif
    x = larger(PICK(x, x, 2, 0), PICK(x, x, 2, 2));
    x = larger(PICK(x, x, 1, 0), PICK(x, x, 1, 1));
    return x[0];
}

/* Lane i is the largest lane of vector i. */
INLINE vec largest_of_each(vec *x) {
#define MORE(x, y, s) larger(PICK(x, y, s, 0), PICK(x, y, s, s))
#if LANES == 16
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) x[i] = MORE(x[2 * i], x[2 * i + 1], 8);
#endif
#if LANES >= 8
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) x[i] = MORE(x[2 * i], x[2 * i + 1], 4);
#endif
    const vec first = MORE(x[0], x[1], 2), second = MORE(x[2], x[3], 2);
    return MORE(first, second, 1);
}

/* e^x to 2 units in the last place; 0 below -87. */
INLINE vec exponential(vec x) {
    const vec bounded = larger(x, all(-87.0f)), top = chosen(bounded > 88.0f, all(88.0f), bounded);
    const vec shifted = top * 1.44269504f + 12582912.0f; /* rounds to whole numbers, in the lowest bits */
    const vec count = shifted - 12582912.0f;
    const vec rest = (top - count * 0.693359375f) + count * 2.12194440e-4f;
    vec y = all(1.9875691500e-4f);
    y = y * rest + 1.3981999507e-3f;
    y = y * rest + 8.3334519073e-3f;
    y = y * rest + 4.1665795894e-2f;
    y = y * rest + 1.6666665459e-1f;
    y = y * rest + 5.0000001201e-1f;
    y = (y * rest) * rest + rest + 1.0f;
    y = (vec)((ints)y + (((ints)shifted - 0x4b400000) << 23));
    return (vec)((ints)y & (x >= -87.0f));
}

/* The normal distribution function; the error function by Abramowitz and Stegun 7.1.26, to 1.5e-7. */
INLINE vec normal_below(vec x) {
    const vec z = x * 0.70710678f, size = (vec)((ints)z & 0x7fffffff);
    const vec t = 1.0f / (1.0f + 0.3275911f * size);
    vec y = 1.061405429f * t - 1.453152027f;
    y = y * t + 1.421413741f;
    y = y * t - 0.284496736f;
    y = y * t + 0.254829592f;
    const vec left = y * t * exponential(-size * size); /* 1 - erf(|z|) */
    return chosen(z < 0.0f, 0.5f * left, 1.0f - 0.5f * left);
}

INLINE vec silu(vec x) { return x / (1.0f + exponential(-x)); }
