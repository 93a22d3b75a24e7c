/* All blocks of one of our own decoders on a CPU in one call, in C for gcc and clang. blocks.h describes structures and functions.

   Every result of a row is a sum in an order that depends on the shapes of the weights and on the place of a key in the cache, never on the
   number of rows, of threads, of runs in the pass, or on what other rows see. So a row has the same bits in a pass of one row and in a window.
   Vectors are those of the compiler's extension; the number of lanes is the only thing that is known of the processor, except for
   bfloat16, whose products need AVX-512's instruction. */

#if defined(__AVX__)
#include <immintrin.h>
#endif
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "blocks.h"

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

INLINE vec load(const float *at) { return *(const loose *)at; }
INLINE void store(float *at, vec x) { *(loose *)at = x; }
INLINE vec all(float x) { return x - (vec){0}; }
INLINE vec chosen(ints which, vec a, vec b) { return (vec)(((ints)a & which) | ((ints)b & ~which)); }

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


#define ROWS 6            /* rows of a tile: 6 x 4 sums, 4 weights and 1 number fit into 32 registers */
#define QUERIES 4         /* rows that read a key together */

/* --- threads -------------------------------------------------------------------------------------------------------- */

/* How many threads a parallel region gets: all, or fewer while other programs hold the cores.

   The threads of a pass wait for each other some fifty times. If another program has the core of one of them, each of these waits can last
   until the scheduler gives the core back: milliseconds, in a pass of half a millisecond. So a region's first thread tells how long it
   waited for the others: before its own share, because the runtime starts a region when all threads have left the last one, and after it.
   If it was long, regions get one thread fewer for a rest, then one more is tried; each failed
   try doubles the rest. What a region computes does not depend on it: shares are of whole rows, columns or heads. */

#define LATE 300000      /* a wait is long if it is this much longer than the work before it; a quiet machine's are some ten thousand */
#define FIRST 20000000   /* the first rest */
#define LONGEST 1000000000 /* the longest one: a try costs a few milliseconds */
#define READ(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define WRITE(x, value) __atomic_store_n(&(x), value, __ATOMIC_RELAXED)

int team_at(Team *team, int threads, int64_t now) {
    const int most = READ(team->most);
    if (threads <= 1 || !most || most >= threads) return threads;
    if (now < READ(team->until)) return most;
    WRITE(team->most, most + 1);
    WRITE(team->until, now + READ(team->rest));
    return most + 1;
}

/* threads : that the region had; work, waiting : nanoseconds that its first thread worked and waited; now : when it ended */
void waited_at(Team *team, int threads, int64_t work, int64_t waiting, int64_t now) {
    if (threads <= 1 || waiting <= LATE + work) return;
    const int64_t rest = READ(team->rest), longer = rest < LONGEST / 2 ? 2 * rest : LONGEST;
    const int64_t next = !rest || now > READ(team->until) + LONGEST ? FIRST : longer; /* after a quiet time it begins anew */
    WRITE(team->rest, next);
    WRITE(team->until, now + next);
    WRITE(team->most, threads - 1);
}

static int64_t moment(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static Team of_this_process; /* the cores are one thing that all runs of a process share */

static int team(int threads) { return threads <= 1 ? threads : team_at(&of_this_process, threads, moment()); }

typedef void Work(const void *of, long share, long shares);

/* Calls `work` once in each of the threads that a region gets. */
static void shared(int most, Work *work, const void *of) {
    const int threads = team(most);
    if (threads <= 1) {
        work(of, 0, 1);
        return;
    }
    const int64_t came = moment();
    int64_t began = came, done = came;
#pragma omp parallel num_threads(threads)
    {
        const int is_first = !omp_get_thread_num();
        if (is_first) began = moment();
        work(of, omp_get_thread_num(), omp_get_num_threads());
        if (is_first) done = moment();
    }
    const int64_t now = moment();
    waited_at(&of_this_process, threads, done - began, began - came + now - done, now);
}

INLINE vec gelu(vec x) { return x * normal_below(x); }

/* --- what a row is before it is multiplied ------------------------------------------------------------------------- */

static float squares(const float *x, long width, float mean) {
    vec total = {0};
    long i = 0;
    for (; i + LANES <= width; i += LANES) {
        const vec d = load(x + i) - mean;
        total += d * d;
    }
    float found = sum_of(total);
    for (; i < width; i++) found += (x[i] - mean) * (x[i] - mean);
    return found;
}

static float sum_row(const float *x, long width) {
    vec total = {0};
    long i = 0;
    for (; i + LANES <= width; i += LANES) total += load(x + i);
    float found = sum_of(total);
    for (; i < width; i++) found += x[i];
    return found;
}

/* gate and up lie side by side; which one is first depends on the network. The last lanes are computed in a padded vector. */
static void gated(float *out, const float *gate, const float *up, long width, int kind) {
    for (long i = 0; i < width; i += LANES) {
        const long here = width - i;
        if (here >= LANES) {
            store(out + i, (kind == SILU_GATE ? silu(load(gate + i)) : gelu(load(gate + i))) * load(up + i));
            continue;
        }
        float a[LANES] = {0}, b[LANES] = {0};
        memcpy(a, gate + i, 4 * here);
        memcpy(b, up + i, 4 * here);
        const vec y = (kind == SILU_GATE ? silu(load(a)) : gelu(load(a))) * load(b);
        memcpy(out + i, &y, 4 * here);
    }
}

static __attribute__((noinline)) void prepare_row(float *out, const float *x, long width, const Norm *norm) {
    const float *weight = norm->weight, *bias = norm->bias, constant = norm->constant;
    if (norm->kind == SILU_GATE) {
        gated(out, x, x + width, width, SILU_GATE);
    } else if (norm->kind == GELU_GATE) {
        gated(out, x + width, x, width, GELU_GATE);
    } else if (norm->kind == ROOT_MEAN_SQUARE) {
        const float factor = 1.0f / sqrtf(squares(x, width, 0.0f) + constant * constant);
        for (long i = 0; i < width; i++) out[i] = x[i] * factor * weight[i];
    } else if (norm->kind == LAYER_NORM) {
        const float mean = sum_row(x, width) / width;
        const float factor = 1.0f / sqrtf(squares(x, width, mean) / width + constant);
        for (long i = 0; i < width; i++) out[i] = (x[i] - mean) * factor * weight[i] + bias[i];
    } else {
        memcpy(out, x, 4 * width);
    }
}

/* --- products ------------------------------------------------------------------------------------------------------- */

typedef struct {
    const float *bias, *residual;
    float *out;
    long outer;
} Target;

/* Writes the sums of rows x vectors; columns behind the last one are dropped. */
static __attribute__((noinline)) void finish(int rows, int vectors, vec sums[][4], long row, long column, const Target *to) {
    for (int r = 0; r < rows; r++) {
        float *out = to->out + (row + r) * to->outer;
        const float *residual = to->residual ? to->residual + (row + r) * to->outer : 0, *found = (const float *)sums[r];
        for (int v = 0; v < vectors; v++) {
            const long at = column + v * LANES, here = to->outer - at < LANES ? to->outer - at : LANES;
            if (here == LANES) {
                vec y = sums[r][v];
                if (to->bias) y += load(to->bias + at);
                if (residual) y += load(residual + at);
                store(out + at, y);
                continue;
            }
            for (long i = 0; i < here; i++) {
                const float y = found[v * LANES + i] + (to->bias ? to->bias[at + i] : 0.0f);
                out[at + i] = y + (residual ? residual[at + i] : 0.0f);
            }
        }
    }
}

/* The sums are copied, so that they stay in registers before. */
#define FINISH                                                                                                                         \
    vec found[ROWS][4];                                                                                                                \
    memcpy(found, sums, sizeof found);                                                                                                 \
    finish(rows, 2 * panels, found, row, column, to)

INLINE void tile(const int rows, const int panels, const float *x, const float *w, long inner, long row, long column, const Target *to) {
    vec sums[ROWS][4] = {{{0}}};
    const float *second = w + inner * PANEL;
    x += row * inner;
    for (long k = 0; k < inner; k++) {
        vec b[4];
        b[0] = load(w + k * PANEL), b[1] = load(w + k * PANEL + LANES);
        if (panels == 2) b[2] = load(second + k * PANEL), b[3] = load(second + k * PANEL + LANES);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const float a = x[r * inner + k];
#pragma GCC unroll 4
            for (int v = 0; v < 2 * panels; v++) sums[r][v] += a * b[v];
        }
    }
    FINISH;
}

/* inner counts pairs of numbers: a pair of x is multiplied with a pair of weights and both products are added to the sum. */
INLINE void tile_half(const int rows, const int panels, const uint32_t *x, const uint32_t *w, long inner, long row, long column, const Target *to) {
#if defined(__AVX512BF16__)
    vec sums[ROWS][4] = {{{0}}};
    const uint32_t *second = w + inner * PANEL;
    x += row * inner;
    for (long k = 0; k < inner; k++) {
        __m512i b[4];
        b[0] = _mm512_loadu_si512(w + k * PANEL), b[1] = _mm512_loadu_si512(w + k * PANEL + LANES);
        if (panels == 2) b[2] = _mm512_loadu_si512(second + k * PANEL), b[3] = _mm512_loadu_si512(second + k * PANEL + LANES);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const __m512bh a = (__m512bh)_mm512_set1_epi32((int)x[r * inner + k]);
#pragma GCC unroll 4
            for (int v = 0; v < 2 * panels; v++) sums[r][v] = (vec)_mm512_dpbf16_ps((__m512)sums[r][v], a, (__m512bh)b[v]);
        }
    }
    FINISH;
#endif
}

/* --- matrix units: AMX --- */

#if defined(__AMX_BF16__) && defined(__AVX512BF16__) && defined(__linux__)
#include <sys/syscall.h>
long syscall(long number, ...); /* unistd.h has a `read` of its own */
#define UNITS 1
#else
#define UNITS 0
#endif
#define SIDE 16 /* rows of a register, and pairs or sums of its row */

static int units; /* whether the system has let this process use them */

/* Asks the system for the matrix units, once; returns whether products may use them. */
int ask_for_units(void) {
#if UNITS
    const long request_permission = 0x1023, tile_data = 18; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    units = !syscall(SYS_arch_prctl, request_permission, tile_data);
#endif
    return units;
}

#if UNITS
/* The registers: 0 to 3 are sums of 2 x 2 blocks, 4 and 5 rows of x, 6 and 7 pairs of weights. lower : rows of the second of two */
static void configure(int upper, int lower) {
    struct __attribute__((packed)) {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } wanted = {.palette = 1};
    const int rows[] = {upper, upper, lower, lower, upper, lower, SIDE, SIDE};
    for (int i = 0; i < 8; i++) wanted.rows[i] = rows[i], wanted.bytes[i] = rows[i] ? 4 * SIDE : 0;
    __asm__ volatile("" : : "r"(&wanted) : "memory"); /* gcc 12 does not know that the intrinsics read memory */
    _tile_loadconfig(&wanted);
}

/* As `finish`, for a panel; the last columns may be missing. */
INLINE void finish_panel(int rows, const float *found, long row, long column, const Target *to) {
    const int whole = column + PANEL <= to->outer;
    for (int r = 0; r < rows; r++, found += PANEL) {
        float *out = to->out + (row + r) * to->outer + column;
        const float *residual = to->residual ? to->residual + (row + r) * to->outer + column : 0;
        if (whole) {
            vec left = load(found), right = load(found + LANES);
            if (to->bias) left += load(to->bias + column), right += load(to->bias + column + LANES);
            if (residual) left += load(residual), right += load(residual + LANES);
            store(out, left);
            store(out + LANES, right);
            continue;
        }
        for (long i = 0; column + i < to->outer; i++) {
            const float y = found[i] + (to->bias ? to->bias[column + i] : 0.0f);
            out[i] = y + (residual ? residual[i] : 0.0f);
        }
    }
}

/* The sums of up to 32 rows with the pairs of one panel. */
INLINE void tile_units(int rows, const uint32_t *x, const uint32_t *w, long pairs, long row, long column, const Target *to) {
    const int lower = rows > SIDE;
    const long x_stride = 4 * pairs, w_stride = 4 * PANEL;
    float found[2 * SIDE * PANEL] __attribute__((aligned(64)));
    _tile_zero(0);
    _tile_zero(1);
    if (lower) {
        _tile_zero(2);
        _tile_zero(3);
    }
    for (long k = 0; k < pairs; k += SIDE) {
        _tile_loadd(6, w + k * PANEL, w_stride);
        _tile_loadd(7, w + k * PANEL + SIDE, w_stride);
        _tile_loadd(4, x + k, x_stride);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (lower) {
            _tile_loadd(5, x + SIDE * pairs + k, x_stride);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, found, w_stride);
    _tile_stored(1, found + SIDE, w_stride);
    if (lower) {
        _tile_stored(2, found + SIDE * PANEL, w_stride);
        _tile_stored(3, found + SIDE * PANEL + SIDE, w_stride);
    }
    finish_panel(rows, found, row, column, to);
}

/* Products of all rows with panels first..last, as by tile_half; pairs is a multiple of SIDE. The sums of a row do not depend on others.
   Whole blocks of rows come first, because another number of rows in a register takes long. */
static void product_of_panels(long rows, const uint32_t *x, const uint32_t *packed, long pairs, long first, long last, const Target *to) {
    const long whole = rows / (2 * SIDE) * (2 * SIDE), rest = rows - whole;
    __asm__ volatile("" : : : "memory"); /* gcc 12 does not know that the intrinsics read memory */
    if (whole) {
        configure(SIDE, SIDE);
        for (long p = first; p < last; p++)
            for (long r = 0; r < whole; r += 2 * SIDE) tile_units(2 * SIDE, x + r * pairs, packed + p * pairs * PANEL, pairs, r, p * PANEL, to);
    }
    if (rest) {
        configure(rest < SIDE ? (int)rest : SIDE, rest > SIDE ? (int)rest - SIDE : 0);
        for (long p = first; p < last; p++)
            tile_units((int)rest, x + whole * pairs, packed + p * pairs * PANEL, pairs, whole, p * PANEL, to);
    }
    _tile_release(); /* else the system saves 8 KiB at each switch */
}
#endif

#define TILES(name, type)                                                                                                              \
    static void name##s(int rows, int panels, const type *x, const type *w, long inner, long row, long column, const Target *to) {     \
        switch (2 * rows + panels) {                                                                                                   \
        case 3: name(1, 1, x, w, inner, row, column, to); break;                                                                       \
        case 4: name(1, 2, x, w, inner, row, column, to); break;                                                                       \
        case 5: name(2, 1, x, w, inner, row, column, to); break;                                                                       \
        case 6: name(2, 2, x, w, inner, row, column, to); break;                                                                       \
        case 7: name(3, 1, x, w, inner, row, column, to); break;                                                                       \
        case 8: name(3, 2, x, w, inner, row, column, to); break;                                                                       \
        case 9: name(4, 1, x, w, inner, row, column, to); break;                                                                       \
        case 10: name(4, 2, x, w, inner, row, column, to); break;                                                                      \
        case 11: name(5, 1, x, w, inner, row, column, to); break;                                                                      \
        case 12: name(5, 2, x, w, inner, row, column, to); break;                                                                      \
        case 13: name(6, 1, x, w, inner, row, column, to); break;                                                                      \
        case 14: name(6, 2, x, w, inner, row, column, to); break;                                                                      \
        }                                                                                                                              \
    }
TILES(tile, float)
TILES(tile_half, uint32_t)

int lanes(void) { return LANES; }

int multiplies_half(void) {
#if defined(__AVX512BF16__)
    return 1;
#else
    return 0;
#endif
}

/* Products of rows from..until with panels p and, if it is wide, p + 1. */
INLINE void product_of_rows(int wide, long from, long until, const void *x, const void *packed, int half, long inner, long p, const Target *to) {
    const long pairs = inner / 2;
    for (long r = from; r < until; r += ROWS) {
        const int here = until - r < ROWS ? (int)(until - r) : ROWS;
        if (half)
            tile_halfs(here, wide, (const uint32_t *)x, (const uint32_t *)packed + p * pairs * PANEL, pairs, r, p * PANEL, to);
        else
            tiles(here, wide, (const float *)x, (const float *)packed + p * inner * PANEL, inner, r, p * PANEL, to);
    }
}

/* A product of prepared rows: out = prepared(x) W^T + bias + residual. Rows from `first` on of each branch get an update, or with null none;
   other rows keep their bits. stride : between rows of x
   scratch : room for prepared rows, twice, and behind them [rows, rank] numbers between the factors of an update */
typedef struct {
    const float *x;
    long rows, stride;
    const Layer *layer;
    int half;
    const Norm *norm;
    float *scratch;
    const float *residual;
    float *out;
    const Update *update;
    long branches, count, first;
} Product;

static const float *prepared(const Product *p) {
    return p->norm->kind == AS_IT_IS && p->stride == p->layer->inner && !p->half ? p->x : p->scratch;
}

static uint16_t *rounded(const Product *p) { return (uint16_t *)(p->scratch + p->rows * p->layer->inner); }

static float *between(const Product *p) { return p->scratch + 2 * p->rows * p->layer->inner; }

static void prepare_share(const void *of, long share, long shares) {
    const Product *p = of;
    const long inner = p->layer->inner;
    for (long r = p->rows * share / shares; r < p->rows * (share + 1) / shares; r++) {
        const float *own = p->x + r * p->stride;
        if (!p->half || p->norm->kind != AS_IT_IS || p->update) { /* an update reads float32 */
            prepare_row(p->scratch + r * inner, own, inner, p->norm);
            own = p->scratch + r * inner;
        }
        if (p->half) round_all(rounded(p) + r * inner, own, inner);
    }
}

static void update_share(const void *of, long share, long shares) {
    const Product *p = of;
    const Target to = {0, 0, between(p), p->update->rank};
    const long tall = (p->count - p->first + ROWS - 1) / ROWS, flat = (p->update->rank + PANEL - 1) / PANEL, tiles = p->branches * tall * flat;
    for (long t = tiles * share / shares; t < tiles * (share + 1) / shares; t++) {
        const long branch = t / (tall * flat), end = (branch + 1) * p->count;
        const long r = branch * p->count + p->first + t / flat % tall * ROWS, until = r + ROWS < end ? r + ROWS : end;
        product_of_rows(1, r, until, prepared(p), p->update->down, 0, p->layer->inner, t % flat, &to);
    }
}

static void multiply_share(const void *of, long share, long shares) {
    const Product *p = of;
    const Layer *l = p->layer;
    const Target to = {l->bias, p->residual, p->out, l->outer}, added = {0, p->out, p->out, l->outer};
    const long panels = (l->outer + PANEL - 1) / PANEL, last = panels * (share + 1) / shares;
    const int by_units = p->half && units && l->inner % (2 * SIDE) == 0;
#if UNITS
    if (by_units) product_of_panels(p->rows, (const uint32_t *)rounded(p), l->panels, l->inner / 2, panels * share / shares, last, &to);
#endif
    for (long at = panels * share / shares; at < last;) {
        const int wide = LANES != 8 && at + 1 < last ? 2 : 1; /* AVX has registers for one panel only */
        if (!by_units) product_of_rows(wide, 0, p->rows, p->half ? (const void *)rounded(p) : prepared(p), l->panels, p->half, l->inner, at, &to);
        for (long branch = 0; p->update && branch < p->branches; branch++) {
            const long start = branch * p->count;
            product_of_rows(wide, start + p->first, start + p->count, between(p), p->update->up, 0, p->update->rank, at, &added);
        }
        at += wide;
    }
}

static void multiply(const Product *p, int threads) {
    if (prepared(p) != p->x) shared(threads, prepare_share, p);
    if (p->update) shared(threads, update_share, p);
    shared(threads, multiply_share, p);
}

static const Norm plain = {AS_IT_IS, 0, 0, 0.0f};

void product_of(const float *x, long rows, const Layer *layer, int half, float *scratch, float *out, int threads) {
    const Product p = {.x = x, .rows = rows, .stride = layer->inner, .layer = layer, .half = half, .norm = &plain, .scratch = scratch, .out = out};
    multiply(&p, threads);
}

/* --- attention ------------------------------------------------------------------------------------------------------ */

#define WIDEST 128 /* numbers of a head: 16, 32, 64 or 128 */

/* What the rows of a run look at. queries : rows [branches * count], `stride` numbers apart, heads side by side
   new_keys, new_values : of the same rows, or null: nothing is written. The others are as in blocks.h */
typedef struct {
    const float *queries, *new_keys, *new_values;
    long stride, branches, heads, count, width, kept;
    void *keys, *values;
    long branch_stride, head_stride;
    const float *norm_query, *norm_key, *cosines, *sines;
    const uint8_t *seen;
    float *out;
    float floor, scale;
    int half, chain;
} Attention;

static void turn(float *out, const float *x, const Attention *a, const float *weight, long row) {
    const long width = a->width, middle = width / 2;
    const float length = sqrtf(squares(x, width, 0.0f) + a->floor * a->floor), factor = 1.0f / (weight || length > 1e-12f ? length : 1e-12f);
    float own[width];
    for (long i = 0; i < width; i++) own[i] = x[i] * factor * (weight ? weight[i] : 1.0f);
    if (a->cosines) {
        const float *c = a->cosines + row * width, *s = a->sines + row * width;
        for (long i = 0; i < middle; i++) {
            const float first = own[i], second = own[i + middle];
            out[i] = first * c[i] - second * s[i];
            out[i + middle] = second * c[i] + first * s[i];
        }
    } else {
        memcpy(out, own, 4 * width);
    }
}

static void put(void *at, long place, const float *x, long width, int half) {
    if (!half) {
        memcpy((float *)at + place, x, 4 * width);
        return;
    }
    round_all((uint16_t *)at + place, x, width);
}

/* Hides what a row does not see, and all keys from `stop` on, and makes probabilities of its scores, not normalised; returns 1 / their sum. */
static float shares(float *scores, long end, long stop, const uint8_t *seen) {
    const long padded = (end + LANES - 1) / LANES * LANES;
    for (long j = stop; j < padded; j++) scores[j] = -INFINITY;
    if (seen)
        for (long j = 0; j < end; j++) scores[j] = seen[j] ? scores[j] : -INFINITY;
    vec best = load(scores), total = {0};
    for (long j = LANES; j < padded; j += LANES) best = larger(load(scores + j), best);
    const float top = largest_of(best);
    for (long j = 0; j < padded; j += LANES) {
        const vec e = exponential(load(scores + j) - top);
        total += e;
        store(scores + j, e);
    }
    return 1.0f / sum_of(total);
}

INLINE vec read(const void *at, long place, const int half) {
    return half ? load_half((const uint16_t *)at + place) : load((const float *)at + place);
}

/* `rows` queries [rows, width] over the first `end` keys. Row r sees none from `stop` + r on. */
INLINE void look(const int rows, const int vectors, const int half, const float *q, const void *keys, const void *values, long end, float *scores,
                 long room, long stop, const uint8_t *seen, long seen_stride, float *out, long out_stride) {
    const long width = vectors * LANES;
    const long blocks = end / LANES * LANES;
    for (long j = 0; j < blocks; j += LANES) {
        float copy[half ? WIDEST * LANES : 1];
        const float *k = (const float *)keys + j * width;
        if (half) {
            for (long i = 0; i < LANES * width; i += LANES) store(copy + i, read(keys, j * width + i, half));
            k = copy;
        }
        for (int r = 0; r < rows; r++) {
            vec dots[LANES] = {{0}}; /* not the first product: the compiler could round that one or the second, and not the same in every copy */
#pragma GCC unroll 8
            for (int v = 0; v < vectors; v++) {
                const vec own = load(q + r * width + v * LANES);
#pragma GCC unroll 16
                for (int i = 0; i < LANES; i++) dots[i] += own * load(k + i * width + v * LANES);
            }
            store(scores + r * room + j, sums_of(dots));
        }
    }
    for (long j = blocks; j < end; j++)
        for (int r = 0; r < rows; r++) {
            vec dot = {0};
#pragma GCC unroll 8
            for (int v = 0; v < vectors; v++) dot += load(q + r * width + v * LANES) * read(keys, j * width + v * LANES, half);
            scores[r * room + j] = sum_of(dot);
        }
    float parts[QUERIES];
    for (int r = 0; r < rows; r++) parts[r] = shares(scores + r * room, end, stop + r < end ? stop + r : end, seen ? seen + r * seen_stride : 0);
    vec sums[QUERIES][WIDEST / LANES] = {{{0}}};
    for (long j = 0; j < end; j++) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) {
            const vec value = read(values, j * width + v * LANES, half);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) sums[r][v] += scores[r * room + j] * value;
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) store(out + r * out_stride + v * LANES, sums[r][v] * parts[r]);
}

INLINE void look_all(const int vectors, const int half, const Attention *a, const float *q, const void *keys, const void *values, float *scores,
                     long room, long branch, long head) {
    const long all_keys = a->kept + (a->new_keys ? a->count : 0), row_of_out = a->heads * a->width;
    for (long r = 0; r < a->count;) {
        const int here = a->count - r < QUERIES ? 1 : QUERIES;
        const uint8_t *seen = a->seen ? a->seen + r * all_keys : 0;
        const long stop = a->chain ? a->kept + r + 1 : all_keys;
        long end = stop + here - 1 < all_keys ? stop + here - 1 : all_keys;
        if (seen)
            for (int visible = 0; end > 1; end--) {
                for (int i = 0; i < here; i++) visible |= seen[i * all_keys + end - 1];
                if (visible) break;
            }
        float *out = a->out + (branch * a->count + r) * row_of_out + head * a->width;
#define LOOK(n) look(n, vectors, half, q + r * a->width, keys, values, end, scores, room, stop, seen, all_keys, out, row_of_out)
        if (here == QUERIES) LOOK(QUERIES);
        else LOOK(1);
#undef LOOK
        r += here == QUERIES ? QUERIES : 1;
    }
}

/* One head of one branch: `scratch` is the thread's. */
static __attribute__((noinline)) void attend_pair(const Attention *a, long pair, float *scratch) {
    const long width = a->width, all_keys = a->kept + a->count, room = (all_keys + LANES - 1) / LANES * LANES, size = a->half ? 2 : 4;
    const long branch = pair / a->heads, head = pair % a->heads, start = branch * a->branch_stride + head * a->head_stride;
    float *q = scratch, *key = q + a->count * width, *scores = key + width;
    for (long r = 0; r < a->count; r++) {
        const long from = (branch * a->count + r) * a->stride + head * width, place = start + (a->kept + r) * width;
        turn(q + r * width, a->queries + from, a, a->norm_query, r);
        for (long i = 0; i < width; i++) q[r * width + i] *= a->scale;
        if (!a->new_keys) continue;
        turn(key, a->new_keys + from, a, a->norm_key, r);
        put(a->keys, place, key, width, a->half);
        put(a->values, place, a->new_values + from, width, a->half);
    }
    const char *keys = (const char *)a->keys + start * size, *values = (const char *)a->values + start * size;
    int half = a->half;
    if (half && a->count > QUERIES) { /* each group of rows would widen them again */
        const long numbers = (a->kept + (a->new_keys ? a->count : 0)) * width;
        float *wide = scores + QUERIES * room;
        for (long i = 0; i < numbers; i += LANES) {
            store(wide + i, read(keys, i, 1));
            store(wide + numbers + i, read(values, i, 1));
        }
        keys = (const char *)wide, values = (const char *)(wide + numbers), half = 0;
    }
#define WIDTH(vectors) \
    case 2 * (vectors): look_all(vectors, 0, a, q, keys, values, scores, room, branch, head); break; \
    case 2 * (vectors) + 1: look_all(vectors, 1, a, q, keys, values, scores, room, branch, head); break;
    switch (2 * (width / LANES) + half) {
        WIDTH(1)
        WIDTH(2)
        WIDTH(4)
        WIDTH(8)
#if LANES < 16
        WIDTH(16)
#endif
#if LANES < 8
        WIDTH(32)
#endif
    }
#undef WIDTH
}

/* About the time of a pair: products with the keys, and queries and keys that are turned. */
static long cost_of(const Attention *a) { return a->count * (a->kept + a->count + 16); }

/* Several of them, and room for each thread. */
typedef struct {
    const Attention *all;
    long many;
    float *scratch;
    long scratch_size;
} Looks;

/* Threads get shares of about equal cost. */
static void attend_share(const void *of, long share, long shares) {
    const Looks *l = of;
    long total = 0, before = 0;
    for (long i = 0; i < l->many; i++) total += l->all[i].branches * l->all[i].heads * cost_of(l->all + i);
    const long from = total * share / shares, to = total * (share + 1) / shares;
    for (long i = 0; i < l->many && before < to; i++) {
        const Attention *a = l->all + i;
        const long cost = cost_of(a), pairs = a->branches * a->heads;
        for (long pair = 0; pair < pairs; pair++, before += cost)
            if (before >= from && before < to) attend_pair(a, pair, l->scratch + share * l->scratch_size);
    }
}

/* The numbers that a thread needs: queries, a key, the scores of four rows, and for more rows keys and values that it widens. */
static long room_for(long count, long width, long kept) {
    return (count + 1) * width + QUERIES * (kept + count + LANES) + (count > QUERIES ? 2 * (kept + count) * width : 0);
}

/* --- all blocks of a network -------------------------------------------------------------------------------------------- */

static long attention_room(const Pass *p) {
    long most = 0;
    for (long i = 0; i < p->run_count; i++) {
        const Run *run = p->runs + i;
        const long kept = run->kept > run->cross_count ? run->kept : run->cross_count, room = room_for(run->count, p->width / p->heads, kept);
        most = room > most ? room : most;
    }
    return most;
}

/* Where numbers lie in `work`: queries, keys and values; what attention found; the feed-forward layer; and scratch. */
static float *found_of(const Pass *p) { return p->work + 3 * p->rows * p->width; }
static float *wide_of(const Pass *p) { return found_of(p) + p->rows * p->width; }
static float *scratch_of(const Block *b, const Pass *p) { return wide_of(p) + p->rows * b->layers[b->count - 2].outer; }

long work_of(const Block *blocks, long count, const Pass *p) {
    long inner = 0, rank = 0;
    for (long i = 0; i < count; i++)
        for (int j = 0; j < blocks[i].count; j++) {
            inner = blocks[i].layers[j].inner > inner ? blocks[i].layers[j].inner : inner;
            if (p->updates && p->updates[i * LAYERS + j].rank > rank) rank = p->updates[i * LAYERS + j].rank;
        }
    const long products = p->rows * (2 * inner + rank), attention = p->threads * attention_room(p);
    return p->rows * (4 * p->width + blocks->layers[blocks->count - 2].outer) + (products > attention ? products : attention);
}

/* A layer of block `number`. */
static void layer(const Block *b, const Pass *p, long number, int which, const Norm *norm, const float *x, const float *residual, float *out) {
    const Layer *l = &b->layers[which];
    const Update *update = p->updates ? p->updates + number * LAYERS + which : 0;
    const int gate = norm->kind == SILU_GATE || norm->kind == GELU_GATE;
    Product own = {.x = x, .rows = p->rows, .stride = gate ? 2 * l->inner : l->inner, .layer = l, .half = b->half, .norm = norm,
                   .scratch = scratch_of(b, p), .residual = residual, .out = out};
    if (update && update->down && p->first < p->runs->count)
        own.update = update, own.branches = p->runs->branches, own.count = p->runs->count, own.first = p->first;
    multiply(&own, p->threads);
}

/* The attention of every run, to its own rows or to its condition. */
static void attend(const Block *b, const Pass *p, long number, int to_condition) {
    const long width = p->width;
    const float *queries = p->work;
    float *out = found_of(p);
    Attention all[p->run_count];
    for (long i = 0; i < p->run_count; i++) {
        const Run *run = p->runs + i;
        Attention a = {.queries = queries, .stride = to_condition ? width : 3 * width, .branches = run->branches, .heads = p->heads,
                       .count = run->count, .width = width / p->heads, .norm_query = b->query, .norm_key = b->key, .out = out,
                       .floor = b->floor, .scale = b->scale};
        if (to_condition) {
            a.kept = run->cross_count, a.keys = (void *)run->crossed[2 * number], a.values = (void *)run->crossed[2 * number + 1];
            a.branch_stride = run->cross_branch_stride, a.head_stride = run->cross_head_stride;
        } else {
            a.new_keys = queries + width, a.new_values = queries + 2 * width, a.kept = run->kept;
            a.keys = (char *)run->keys + number * run->layer_stride, a.values = (char *)run->values + number * run->layer_stride;
            a.branch_stride = run->branch_stride, a.head_stride = run->head_stride, a.half = run->half;
            a.cosines = run->cosines, a.sines = run->sines, a.seen = run->seen, a.chain = run->chain;
        }
        all[i] = a;
        queries += run->branches * run->count * a.stride, out += run->branches * run->count * width;
    }
    const Looks looks = {all, p->run_count, scratch_of(b, p), attention_room(p)};
    shared(p->threads, attend_share, &looks);
}

static void norm_share(const void *of, long share, long shares) {
    const Pass *p = of;
    for (long r = p->rows * share / shares; r < p->rows * (share + 1) / shares; r++)
        prepare_row(p->x + r * p->width, p->x + r * p->width, p->width, p->last);
}

void all_blocks(const Block *blocks, long count, const Pass *p) {
    float *mixed = p->work, *found = found_of(p), *wide = wide_of(p);
    for (long i = 0; i < count; i++) {
        const Block *b = blocks + i;
        const int feed = b->count - 2, is_mesh = b->count == LAYERS;
        const Norm gate = {is_mesh ? GELU_GATE : SILU_GATE, 0, 0, 0.0f};
        layer(b, p, i, 0, &b->norms[0], p->x, 0, mixed);
        attend(b, p, i, 0);
        layer(b, p, i, 1, &plain, found, p->x, p->x);
        if (is_mesh) {
            layer(b, p, i, 2, &b->norms[1], p->x, 0, mixed);
            attend(b, p, i, 1);
            layer(b, p, i, 3, &plain, found, p->x, p->x);
        }
        layer(b, p, i, feed, &b->norms[2], p->x, 0, wide);
        layer(b, p, i, feed + 1, &gate, wide, p->x, p->x);
    }
    if (p->last) shared(p->threads, norm_share, p);
}
