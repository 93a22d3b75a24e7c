/* The hot operations of our own networks on a CPU, in C for gcc and clang. native.py compiles this file and describes the functions.

   Every result of a row is a sum in an order that depends on the shapes of the weights and on the place of a key in the slab, never on the
   number of rows, of threads, or on what other rows see. So a row has the same bits in a pass of one row and in a window.
   Vectors are those of the compiler's extension; the number of lanes is the only thing that is known of the processor, except for
   bfloat16, whose products need AVX-512's instruction. */

#include "native_team.h"
#include "native_vectors.c"

#include <omp.h>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#define ROWS 6            /* rows of a tile: 6 x 4 sums, 4 weights and 1 number fit into 32 registers */
#define QUERIES 4         /* rows that read a key together */
#define LAYERS 6          /* the most that a block has */

INLINE vec gelu(vec x) { return x * normal_below(x); }

/* --- what a row is before it is multiplied ------------------------------------------------------------------------- */

enum { AS_IT_IS, ROOT_MEAN_SQUARE, LAYER_NORM, SILU_GATE, GELU_GATE };

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

static __attribute__((noinline)) void prepare_row(
    float *out, const float *x, long width, int kind, const float *weight, const float *bias, float constant) {
    if (kind == SILU_GATE) {
        gated(out, x, x + width, width, kind);
    } else if (kind == GELU_GATE) {
        gated(out, x + width, x, width, kind);
    } else if (kind == ROOT_MEAN_SQUARE) {
        const float factor = 1.0f / sqrtf(squares(x, width, 0.0f) + constant * constant);
        for (long i = 0; i < width; i++) out[i] = x[i] * factor * weight[i];
    } else if (kind == LAYER_NORM) {
        const float mean = sum_row(x, width) / width;
        const float factor = 1.0f / sqrtf(squares(x, width, mean) / width + constant);
        for (long i = 0; i < width; i++) out[i] = (x[i] - mean) * factor * weight[i] + bias[i];
    } else {
        memcpy(out, x, 4 * width);
    }
}

void prepare(const float *x, long rows, long stride, long width, int kind, const float *weight, const float *bias, float constant, float *out,
             int threads) {
    const int many = rows > 4 ? team(threads) : 1;
    Share own = share_of(many);
#pragma omp parallel num_threads(many) if (many > 1)
    {
        const int first = many > 1 && !omp_get_thread_num();
        if (first) own.began = moment();
#pragma omp for schedule(static) nowait
        for (long r = 0; r < rows; r++) prepare_row(out + r * width, x + r * stride, width, kind, weight, bias, constant);
        if (first) own.done = moment();
    }
    waited(&own);
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

/* The low-rank update of a layer: out += (x A^T) B^T. down, up : A [rank, inner] and B [outer, rank] in panels of float32, or null: none */
typedef struct {
    const float *down, *up;
    long rank;
} Update;

/* Which rows of a product get an update: those from `first` on of each of `branches` times `count`. between : room for [rows, rank] */
typedef struct {
    const Update *update;
    float *between;
    long branches, count, first;
} Adapted;

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

/* As `linear`, and some rows get an update, or with null none. Other rows keep their bits. */
static void product(const float *x, long rows, long stride, long inner, int kind, const float *weight, const float *bias_of_norm, float constant,
                    float *scratch, const void *packed, int half, const float *bias, const float *residual, float *out, long outer, int most,
                    const Adapted *adapted) {
    const Target to = {bias, residual, out, outer}, added = {0, out, out, outer};
    const long panels = (outer + PANEL - 1) / PANEL;
    const int direct = kind == AS_IT_IS && stride == inner && !half;
    const float *from = direct ? x : scratch;
    uint16_t *rounded = (uint16_t *)(scratch + rows * inner);
    const int threads = team(most);
    Share own = share_of(threads);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const int first = threads > 1 && !omp_get_thread_num();
        if (first) own.began = moment();
        if (!direct) {
#pragma omp for schedule(static) nowait
            for (long r = 0; r < rows; r++) {
                const float *own = x + r * stride;
                if (!half || kind != AS_IT_IS || adapted) { /* an update reads float32 */
                    prepare_row(scratch + r * inner, own, inner, kind, weight, bias_of_norm, constant);
                    own = scratch + r * inner;
                }
                if (half) round_all(rounded + r * inner, own, inner);
            }
            if (first) own.done = moment();
#pragma omp barrier
            if (first) waited(&own), own.came = own.began = moment();
        }
        if (adapted) {
            const Update *update = adapted->update;
            const Target between = {0, 0, adapted->between, update->rank};
            const long tall = (adapted->count - adapted->first + ROWS - 1) / ROWS, flat = (update->rank + PANEL - 1) / PANEL;
#pragma omp for schedule(static) nowait
            for (long t = 0; t < adapted->branches * tall * flat; t++) {
                const long branch = t / (tall * flat), end = (branch + 1) * adapted->count;
                const long r = branch * adapted->count + adapted->first + t / flat % tall * ROWS, until = r + ROWS < end ? r + ROWS : end;
                product_of_rows(1, r, until, from, update->down, 0, inner, t % flat, &between);
            }
            if (first) own.done = moment();
#pragma omp barrier
            if (first) waited(&own), own.came = own.began = moment();
        }
#pragma omp for schedule(static) nowait
        for (long share = 0; share < threads; share++) {
            const long last = panels * (share + 1) / threads;
            const int by_units = half && units && inner % (2 * SIDE) == 0;
#if UNITS
            if (by_units) product_of_panels(rows, (const uint32_t *)rounded, packed, inner / 2, panels * share / threads, last, &to);
#endif
            for (long p = panels * share / threads; p < last;) {
                const int wide = LANES != 8 && p + 1 < last ? 2 : 1; /* AVX has registers for one panel only */
                if (!by_units) product_of_rows(wide, 0, rows, half ? (const void *)rounded : from, packed, half, inner, p, &to);
                for (long branch = 0; adapted && branch < adapted->branches; branch++) {
                    const long start = branch * adapted->count;
                    product_of_rows(wide, start + adapted->first, start + adapted->count, adapted->between, adapted->update->up, 0,
                                    adapted->update->rank, p, &added);
                }
                p += wide;
            }
        }
        if (first) own.done = moment();
    }
    waited(&own);
}

/* out = prepared(x) W^T + bias + residual. `scratch` holds the prepared rows: 4 bytes a number, and 2 more in bfloat16. */
void linear(const float *x, long rows, long stride, long inner, int kind, const float *weight, const float *bias_of_norm, float constant,
            float *scratch, const void *packed, int half, const float *bias, const float *residual, float *out, long outer, int most) {
    product(x, rows, stride, inner, kind, weight, bias_of_norm, constant, scratch, packed, half, bias, residual, out, outer, most, 0);
}

/* --- attention ------------------------------------------------------------------------------------------------------ */

#define WIDEST 128 /* numbers of a head: 16, 32, 64 or 128 */

/* queries : rows [branches * count], `stride` numbers apart, heads side by side
   new_keys, new_values : of the same rows, or null: nothing is written
   keys, values : of head h of branch b at b * branch_stride + h * head_stride; float or bfloat16
   norm_query, norm_key : weights of a head's root-mean-square norm, or null: rows are brought to length 1
   cosines, sines : [count, width], whose first halves turn the pairs (i, i + width / 2), or null
   seen : [count, kept + count] or null: everything, or with `chain` all keys up to the row's own */
typedef struct {
    const float *queries, *new_keys, *new_values;
    long stride, branches, heads, count, width, kept;
    void *keys, *values;
    long branch_stride, head_stride;
    const float *norm_query, *norm_key, *cosines, *sines;
    const uint8_t *seen;
    float *out, *scratch;
    long scratch_size;
    float floor, scale;
    int half, threads, chain;
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

/* Several of them, which share the scratch of the first; threads get shares of about equal cost. */
static void attend_all(const Attention *all, long many, int most) {
    const int threads = team(most);
    long total = 0;
    for (long i = 0; i < many; i++) total += all[i].branches * all[i].heads * cost_of(all + i);
    Share own = share_of(threads);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const int first = threads > 1 && !omp_get_thread_num();
        if (first) own.began = moment();
#pragma omp for schedule(static) nowait
        for (long share = 0; share < threads; share++) {
            const long from = total * share / threads, to = total * (share + 1) / threads;
            long before = 0;
            for (long i = 0; i < many && before < to; i++) {
                const Attention *a = all + i;
                const long cost = cost_of(a), pairs = a->branches * a->heads;
                for (long pair = 0; pair < pairs; pair++, before += cost)
                    if (before >= from && before < to) attend_pair(a, pair, all->scratch + share * all->scratch_size);
            }
        }
        if (first) own.done = moment();
    }
    waited(&own);
}

void attend(const Attention *a) { attend_all(a, 1, a->threads); }

/* --- whole blocks: the same functions, one after another, without a way through Python between them ------------------ */

typedef struct {
    const void *panels;
    const float *bias;
    long inner, outer;
} Layer;

typedef struct {
    const float *weight, *bias;
    float constant;
    int kind;
} Norm;

/* What one run brings to a pass of several: its rows, from `first` on, its slab and its condition. `attention` is the first block's, without
   addresses in `work`. crossed, cross_... : as in `Pass` */
typedef struct {
    Attention attention;
    long first, layer_stride;
    const void *const *crossed;
    long cross_count, cross_branch_stride, cross_head_stride;
    int cross_half;
} Part;

/* What the blocks of both networks have. `attention` lacks its addresses in `work`; its scratch is behind them. With parts, it only says what
   is done to queries and keys; `room` has a place for each of them. */
typedef struct {
    const float *x;
    float *out, *work;
    long rows;
    int half, threads;
    Attention attention;
    Norm norms[3];
    Layer layers[LAYERS];
    const void *cross_keys, *cross_values; /* of mesh blocks */
    long cross_count, cross_branch_stride, cross_head_stride;
    int cross_half;
    const Part *parts; /* or null: the rows are one run's */
    Attention *room;
    long part_count, number; /* number : of the block in its network */
    const Update *updates;   /* of the layers, for the rows of each branch from `first` on; or null */
    long first;
} Block;

/* `scratch` holds the prepared rows, twice, and behind them what lies between the factors of an update. */
static void multiply(const Block *b, int layer, const Norm *norm, const float *x, float *scratch, const float *residual, float *out) {
    const Layer *l = &b->layers[layer];
    const int gate = norm && (norm->kind == SILU_GATE || norm->kind == GELU_GATE);
    const int is_adapted = b->updates && b->updates[layer].down && b->first < b->attention.count;
    const Adapted adapted = {is_adapted ? b->updates + layer : 0, scratch + 2 * b->rows * l->inner, b->attention.branches, b->attention.count, b->first};
    product(x, b->rows, gate ? 2 * l->inner : l->inner, l->inner, norm ? norm->kind : AS_IT_IS, norm ? norm->weight : 0, norm ? norm->bias : 0,
            norm ? norm->constant : 0.0f, scratch, l->panels, b->half, l->bias, residual, out, l->outer, b->threads, is_adapted ? &adapted : 0);
}

/* The attention of every part to its own slab, over queries, keys and values side by side. */
static void attend_parts(const Block *b, const float *mixed, float *seen, float *scratch) {
    const long width = b->layers[0].inner;
    for (long i = 0; i < b->part_count; i++) {
        const Part *part = b->parts + i;
        Attention *a = b->room + i;
        *a = part->attention;
        a->norm_query = b->attention.norm_query, a->norm_key = b->attention.norm_key, a->floor = b->attention.floor, a->scale = b->attention.scale;
        a->keys = (char *)a->keys + b->number * part->layer_stride, a->values = (char *)a->values + b->number * part->layer_stride;
        a->queries = mixed + part->first * 3 * width, a->new_keys = a->queries + width, a->new_values = a->queries + 2 * width;
        a->out = seen + part->first * width, a->scratch = scratch;
    }
    attend_all(b->room, b->part_count, b->threads);
}

/* The attention of every part to its own condition, over queries. */
static void cross_parts(const Block *b, const float *queries, float *seen) {
    const long width = b->layers[0].inner;
    for (long i = 0; i < b->part_count; i++) {
        const Part *part = b->parts + i;
        Attention *a = b->room + i;
        a->queries = queries + part->first * width, a->out = seen + part->first * width;
        a->new_keys = a->new_values = 0, a->stride = width, a->kept = part->cross_count, a->seen = 0, a->chain = 0, a->half = part->cross_half;
        a->keys = (void *)part->crossed[2 * b->number], a->values = (void *)part->crossed[2 * b->number + 1];
        a->branch_stride = part->cross_branch_stride, a->head_stride = part->cross_head_stride;
    }
    attend_all(b->room, b->part_count, b->threads);
}

/* Self-attention, added to x. */
static void attended(Block *b, float *mixed, float *seen, float *scratch) {
    const long width = b->layers[0].inner;
    Attention *a = &b->attention;
    multiply(b, 0, &b->norms[0], b->x, scratch, 0, mixed);
    a->queries = mixed, a->new_keys = mixed + width, a->new_values = mixed + 2 * width, a->out = seen, a->scratch = scratch;
    if (b->parts) attend_parts(b, mixed, seen, scratch);
    else attend(a);
    multiply(b, 1, 0, seen, scratch, b->x, b->out);
}

/* `work` holds 3 width + width + twice the inner width numbers for each row, and scratch for products or attention. */
void picture_block(Block *b) {
    const long width = b->layers[0].inner;
    float *mixed = b->work, *seen = mixed + b->rows * 3 * width, *wide = seen + b->rows * width, *scratch = wide + b->rows * b->layers[2].outer;
    const Norm gate = {0, 0, 0.0f, SILU_GATE};
    attended(b, mixed, seen, scratch);
    multiply(b, 2, &b->norms[1], b->out, scratch, 0, wide);
    multiply(b, 3, &gate, wide, scratch, b->out, b->out);
}

void mesh_block(Block *b) {
    const long width = b->layers[0].inner;
    float *mixed = b->work, *seen = mixed + b->rows * 3 * width, *wide = seen + b->rows * width, *scratch = wide + b->rows * b->layers[4].outer;
    const Norm gate = {0, 0, 0.0f, GELU_GATE};
    attended(b, mixed, seen, scratch);
    multiply(b, 2, &b->norms[1], b->out, scratch, 0, mixed);
    if (b->parts) {
        cross_parts(b, mixed, seen);
    } else {
        Attention cross = b->attention;
        cross.new_keys = cross.new_values = 0, cross.stride = width, cross.kept = b->cross_count, cross.seen = 0, cross.chain = 0, cross.half = b->cross_half;
        cross.keys = (void *)b->cross_keys, cross.values = (void *)b->cross_values;
        cross.branch_stride = b->cross_branch_stride, cross.head_stride = b->cross_head_stride;
        attend(&cross);
    }
    multiply(b, 3, 0, seen, scratch, b->out, b->out);
    multiply(b, 4, &b->norms[2], b->out, scratch, 0, wide);
    multiply(b, 5, &gate, wide, scratch, b->out, b->out);
}

/* --- all blocks of a network -------------------------------------------------------------------------------------------- */

/* What the blocks of a pass share. `attention` is the first block's; keys and values of a block lie `layer_stride` bytes after those of
   the one before. crossed : keys and values of the condition, block by block, or null for blocks of pictures
   parts : of the runs that share the pass, all of them pictures or all of them meshes, instead of `attention` and `crossed`, or null
   updates : of an adapter, for the rows of each branch from `first` on, block by block LAYERS of them, or null; not with parts */
typedef struct {
    float *x, *work; /* x : the rows, before and after */
    long rows, layer_stride;
    int threads;
    Attention attention;
    const void *const *crossed;
    long cross_count, cross_branch_stride, cross_head_stride;
    int cross_half;
    const Part *parts;
    Attention *room; /* for as many as there are parts */
    long part_count;
    const Update *updates;
    long first;
} Pass;

/* One block after another, in place. Each of them has the norms and layers of its own. */
void all_blocks(const Block *blocks, long count, const Pass *p) {
    for (long i = 0; i < count; i++) {
        Block b = blocks[i];
        const float *query = b.attention.norm_query, *key = b.attention.norm_key;
        const float floor = b.attention.floor, scale = b.attention.scale;
        b.x = b.out = p->x, b.work = p->work, b.rows = p->rows, b.threads = p->threads;
        b.attention = p->attention;
        b.attention.norm_query = query, b.attention.norm_key = key, b.attention.floor = floor, b.attention.scale = scale;
        b.attention.keys = (char *)p->attention.keys + i * p->layer_stride;
        b.attention.values = (char *)p->attention.values + i * p->layer_stride;
        b.parts = p->parts, b.room = p->room, b.part_count = p->part_count, b.number = i;
        b.updates = p->updates ? p->updates + i * LAYERS : 0, b.first = p->first;
        if (!(p->parts ? p->parts->crossed : p->crossed)) {
            picture_block(&b);
            continue;
        }
        if (p->crossed) b.cross_keys = p->crossed[2 * i], b.cross_values = p->crossed[2 * i + 1];
        b.cross_count = p->cross_count;
        b.cross_branch_stride = p->cross_branch_stride, b.cross_head_stride = p->cross_head_stride, b.cross_half = p->cross_half;
        mesh_block(&b);
    }
}
