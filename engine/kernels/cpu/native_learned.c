/* What a training step on a CPU spends its time on beside large products: attention, the gate of a feed-forward layer, and the loss
   of logits, with their gradients. native_learned.py describes the functions. Numbers are bfloat16 outside and float32 inside.

   A head's keys and values are widened once and stay in the cache; scores are computed for a block of rows at a time, and again for the
   gradients (Dao et al. 2022, arXiv 2205.14135), so nothing of size rows x keys is ever stored. */

#include "native_vectors.c"

#include <omp.h>

#define TILE 8   /* rows of a tile: 8 x 2 sums and 2 numbers fit into 32 registers */
#define BLOCK 32 /* rows whose scores are computed together */

/* A tensor [batch, heads, rows, width] of bfloat16 whose rows are contiguous */
typedef struct {
    uint16_t *at;
    long batch, head, row;
} Heads;

/* mask : [rows, keys], not 0 where a row sees a key, or 0: all see all. unit : rows of q and k are divided by their lengths
   logs : [batch, heads, rows], the logarithm of the sum of a row's exponentials; written forward, read backward
   gradient : of out; grad_q, grad_k, grad_v : what is written backward. None of these is used forward. scratch : `learned_scratch` numbers for each thread */
typedef struct {
    Heads q, k, v, out, gradient, grad_q, grad_k, grad_v;
    const uint8_t *mask;
    float *logs, *scratch;
    long batch, heads, rows, keys, width;
    float scale;
    int unit, threads;
} Learned;

static long padded(long n) { return (n + PANEL - 1) / PANEL * PANEL; }

/* Numbers that a thread needs: see `Room`. */
long learned_scratch(long keys, long width) {
    const long s = padded(keys), d = padded(width);
    return 6 * s * d + 2 * BLOCK * s + 3 * BLOCK * d + s + 2 * BLOCK;
}

typedef struct {
    float *k, *k_across, *v, *v_across, *sums_k, *sums_v; /* [s, d], or [d, s] */
    float *chances, *changes;                             /* [BLOCK, s] */
    float *q, *given, *out;                               /* [BLOCK, d] */
    float *lengths_k, *lengths_q, *sums;                  /* reciprocals, [s] and [BLOCK] */
} Room;

static Room room_in(float *at, long s, long d) {
    Room r;
    float **large[] = {&r.k, &r.k_across, &r.v, &r.v_across, &r.sums_k, &r.sums_v};
    for (int i = 0; i < 6; i++, at += s * d) *large[i] = at;
    float **wide[] = {&r.chances, &r.changes};
    for (int i = 0; i < 2; i++, at += BLOCK * s) *wide[i] = at;
    float **small[] = {&r.q, &r.given, &r.out};
    for (int i = 0; i < 3; i++, at += BLOCK * d) *small[i] = at;
    r.lengths_k = at, r.lengths_q = at + s, r.sums = at + s + BLOCK;
    return r;
}

INLINE const uint16_t *row_of(const Heads *x, long b, long h, long r) { return x->at + b * x->batch + h * x->head + r * x->row; }

/* Widens rows [count, width] to [padded count, d] with zeros behind. lengths : if not 0, rows are divided by their lengths (at least 1e-12) */
static void widen(const Heads *x, long b, long h, long first, long count, long width, long d, float *out, float *lengths) {
    for (long r = 0; r < count; r++) {
        const uint16_t *from = row_of(x, b, h, first + r);
        float *to = out + r * d;
        long i = 0;
        vec total = {0};
        for (; i + LANES <= width; i += LANES) {
            const vec each = load_half(from + i);
            store(to + i, each);
            total += each * each;
        }
        float square = sum_of(total);
        for (; i < d; i++) {
            const uint32_t bits = i < width ? (uint32_t)from[i] << 16 : 0;
            memcpy(to + i, &bits, 4);
            square += to[i] * to[i];
        }
        if (!lengths) continue;
        const float length = sqrtf(square);
        lengths[r] = 1.0f / (length > 1e-12f ? length : 1e-12f);
        for (i = 0; i < d; i += LANES) store(to + i, load(to + i) * lengths[r]);
    }
    memset(out + count * d, 0, (padded(count) - count) * d * sizeof(float));
}

static void across(const float *x, long s, long d, float *out) {
    for (long i = 0; i < d; i++)
        for (long j = 0; j < s; j++) out[i * s + j] = x[j * d + i];
}

/* out [rows, PANEL] (+)= a [rows, depth] b [depth, PANEL]; a's number (i, j) lies at i * step + j * next */
INLINE void tile(int rows, const float *a, long step, long next, const float *b, long wide, long depth, float *out, long out_wide, int add) {
    vec sums[TILE][2];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        sums[i][0] = add ? load(out + i * out_wide) : (vec){0};
        sums[i][1] = add ? load(out + i * out_wide + LANES) : (vec){0};
    }
    for (long j = 0; j < depth; j++) {
        const vec left = load(b + j * wide), right = load(b + j * wide + LANES);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            const vec each = all(a[i * step + j * next]);
            sums[i][0] += each * left;
            sums[i][1] += each * right;
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        store(out + i * out_wide, sums[i][0]);
        store(out + i * out_wide + LANES, sums[i][1]);
    }
}

/* out [rows, columns] (+)= a b; columns is a multiple of PANEL */
static void multiply(long rows, long columns, long depth, const float *a, long step, long next, const float *b, long wide, float *out,
                     long out_wide, int add) {
    for (long c = 0; c < columns; c += PANEL) {
        long r = 0;
        for (; r + TILE <= rows; r += TILE) tile(TILE, a + r * step, step, next, b + c, wide, depth, out + r * out_wide + c, out_wide, add);
        for (; r < rows; r++) tile(1, a + r * step, step, next, b + c, wide, depth, out + r * out_wide + c, out_wide, add);
    }
}

/* How many keys each block of rows sees, up to the last that any of its rows sees. */
static void count_seen(const Learned *l, long *seen) {
    for (long first = 0; first < l->rows; first += BLOCK) {
        long most = l->mask ? 0 : l->keys;
        for (long r = first; l->mask && r < l->rows && r < first + BLOCK; r++)
            for (long j = l->keys; j > most; j--)
                if (l->mask[r * l->keys + j - 1]) {
                    most = j;
                    break;
                }
        seen[first / BLOCK] = most;
    }
}

/* Scores of rows, [count, s]; -inf where a row does not see. Widens the rows' queries. */
static void scores(const Learned *l, Room *m, long b, long h, long first, long count, long seen, long s, long d) {
    widen(&l->q, b, h, first, count, l->width, d, m->q, l->unit ? m->lengths_q : 0);
    for (long i = 0; i < count * d; i += LANES) store(m->q + i, load(m->q + i) * l->scale);
    multiply(count, padded(seen), d, m->q, d, 1, m->k_across, s, m->chances, s, 0);
    for (long r = 0; r < count; r++) {
        float *row = m->chances + r * s;
        if (l->mask) {
            const uint8_t *sees = l->mask + (first + r) * l->keys;
            long j = 0;
            for (; j + LANES <= seen; j += LANES) store(row + j, chosen(permitted(sees + j), load(row + j), all(-INFINITY)));
            for (; j < seen; j++)
                if (!sees[j]) row[j] = -INFINITY;
        }
        for (long j = seen; j < padded(seen); j++) row[j] = -INFINITY;
    }
}

static void forward_head(const Learned *l, Room *m, long b, long h, const long *seen_by) {
    const long s = padded(l->keys), d = padded(l->width);
    widen(&l->k, b, h, 0, l->keys, l->width, d, m->k, l->unit ? m->lengths_k : 0);
    widen(&l->v, b, h, 0, l->keys, l->width, d, m->v, 0);
    across(m->k, s, d, m->k_across);
    for (long first = 0; first < l->rows; first += BLOCK) {
        const long count = first + BLOCK < l->rows ? BLOCK : l->rows - first, seen = seen_by[first / BLOCK];
        scores(l, m, b, h, first, count, seen, s, d);
        for (long r = 0; r < count; r++) {
            float *row = m->chances + r * s;
            vec most = load(row), total = {0};
            for (long j = LANES; j < padded(seen); j += LANES) most = larger(most, load(row + j));
            const float top = largest_of(most);
            for (long j = 0; j < padded(seen); j += LANES) {
                const vec each = exponential(load(row + j) - top);
                store(row + j, each);
                total += each;
            }
            const float sum = sum_of(total);
            m->sums[r] = 1.0f / sum;
            l->logs[(b * l->heads + h) * l->rows + first + r] = top + logf(sum);
        }
        multiply(count, d, seen, m->chances, s, 1, m->v, d, m->out, d, 0);
        for (long r = 0; r < count; r++) {
            uint16_t *to = (uint16_t *)row_of(&l->out, b, h, first + r);
            long i = 0;
            for (; i + LANES <= l->width; i += LANES) *(halves *)(to + i) = narrowed(load(m->out + r * d + i) * m->sums[r]);
            for (; i < l->width; i++) to[i] = half_of(m->out[r * d + i] * m->sums[r]);
        }
    }
}

/* Writes gradients of rows. With lengths, x holds the rows of length 1, and what points along them is taken away. */
static void narrow(const Heads *out, long b, long h, long first, long count, long width, long d, float *gradient, float factor, const float *x,
                   const float *lengths) {
    for (long r = 0; r < count; r++) {
        float *row = gradient + r * d;
        for (long i = 0; i < d; i += LANES) store(row + i, load(row + i) * factor);
        if (lengths) {
            vec along = {0};
            for (long i = 0; i < d; i += LANES) along += load(row + i) * load(x + r * d + i);
            const float part = sum_of(along);
            for (long i = 0; i < d; i += LANES) store(row + i, (load(row + i) - part * load(x + r * d + i)) * lengths[r]);
        }
        uint16_t *to = (uint16_t *)row_of(out, b, h, first + r);
        long i = 0;
        for (; i + LANES <= width; i += LANES) *(halves *)(to + i) = narrowed(load(row + i));
        for (; i < width; i++) to[i] = half_of(row[i]);
    }
}

static void backward_head(const Learned *l, Room *m, long b, long h, const long *seen_by) {
    const long s = padded(l->keys), d = padded(l->width);
    widen(&l->k, b, h, 0, l->keys, l->width, d, m->k, l->unit ? m->lengths_k : 0);
    widen(&l->v, b, h, 0, l->keys, l->width, d, m->v, 0);
    across(m->k, s, d, m->k_across);
    across(m->v, s, d, m->v_across);
    memset(m->sums_k, 0, s * d * sizeof(float));
    memset(m->sums_v, 0, s * d * sizeof(float));
    for (long first = 0; first < l->rows; first += BLOCK) {
        const long count = first + BLOCK < l->rows ? BLOCK : l->rows - first, seen = seen_by[first / BLOCK];
        scores(l, m, b, h, first, count, seen, s, d);
        widen(&l->gradient, b, h, first, count, l->width, d, m->given, 0);
        multiply(count, padded(seen), d, m->given, d, 1, m->v_across, s, m->changes, s, 0);
        for (long r = 0; r < count; r++) {
            float *chances = m->chances + r * s, *changes = m->changes + r * s;
            const float log = l->logs[(b * l->heads + h) * l->rows + first + r];
            vec mean = {0};
            for (long j = 0; j < padded(seen); j += LANES) {
                const vec each = exponential(load(chances + j) - log);
                store(chances + j, each);
                mean += each * load(changes + j);
            }
            const float common = sum_of(mean);
            for (long j = 0; j < padded(seen); j += LANES) store(changes + j, load(chances + j) * (load(changes + j) - common));
        }
        multiply(seen, d, count, m->chances, 1, s, m->given, d, m->sums_v, d, 1);
        multiply(seen, d, count, m->changes, 1, s, m->q, d, m->sums_k, d, 1);
        multiply(count, d, seen, m->changes, s, 1, m->k, d, m->out, d, 0);
        for (long i = 0; i < count * d; i += LANES) store(m->q + i, load(m->q + i) * (1.0f / l->scale));
        narrow(&l->grad_q, b, h, first, count, l->width, d, m->out, l->scale, m->q, l->unit ? m->lengths_q : 0);
    }
    narrow(&l->grad_k, b, h, 0, l->keys, l->width, d, m->sums_k, 1.0f, m->k, l->unit ? m->lengths_k : 0);
    narrow(&l->grad_v, b, h, 0, l->keys, l->width, d, m->sums_v, 1.0f, 0, 0);
}

/* Attention of all heads, or its gradients. */
void learned_attention(const Learned *l, int backward) {
    const long s = padded(l->keys), d = padded(l->width), own = learned_scratch(l->keys, l->width);
    long seen[(l->rows + BLOCK - 1) / BLOCK];
    count_seen(l, seen);
#pragma omp parallel for num_threads(l->threads) if (l->threads > 1)
    for (long n = 0; n < l->batch * l->heads; n++) {
        Room room = room_in(l->scratch + omp_get_thread_num() * own, s, d);
        (backward ? backward_head : forward_head)(l, &room, n / l->heads, n % l->heads, seen);
    }
}

/* out [rows, width] = value * gelu(gate), of mixed [rows, 2 width]: value and gate. width : a multiple of LANES */
void learned_gate(const uint16_t *mixed, long rows, long width, uint16_t *out, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long r = 0; r < rows; r++) {
        const uint16_t *value = mixed + 2 * r * width, *gate = value + width;
        for (long i = 0; i < width; i += LANES) {
            const vec x = load_half(gate + i);
            *(halves *)(out + r * width + i) = narrowed(load_half(value + i) * (x * normal_below(x)));
        }
    }
}

/* The gradient of mixed from that of `learned_gate`'s out. */
void learned_gate_backward(const uint16_t *mixed, const uint16_t *given, long rows, long width, uint16_t *gradient, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long r = 0; r < rows; r++) {
        const uint16_t *value = mixed + 2 * r * width, *gate = value + width;
        for (long i = 0; i < width; i += LANES) {
            const vec x = load_half(gate + i), below = normal_below(x), own = load_half(given + r * width + i);
            const vec slope = below + x * 0.39894228f * exponential(x * x * -0.5f);
            *(halves *)(gradient + 2 * r * width + i) = narrowed(own * (x * below));
            *(halves *)(gradient + (2 * r + 1) * width + i) = narrowed(own * load_half(value + i) * slope);
        }
    }
}

/* Turns logits [rows, vocabulary], bfloat16, into the gradients of the mean cross-entropy over `total` rows; losses : [rows]
   bias : float32 [vocabulary], to which the sum of the gradients is added. row : scratch, float32 [vocabulary, rounded up to LANES] */
void learned_losses(uint16_t *logits, const int64_t *labels, long rows, long vocabulary, float total, float *losses, float *bias, float *row) {
    const long wide = (vocabulary + LANES - 1) / LANES * LANES, whole = vocabulary / LANES * LANES;
    for (long r = 0; r < rows; r++) {
        uint16_t *own = logits + r * vocabulary;
        vec most = all(-INFINITY), sum = {0};
        for (long i = 0; i < whole; i += LANES) {
            const vec each = load_half(own + i);
            store(row + i, each);
            most = larger(most, each);
        }
        for (long i = whole; i < wide; i++) {
            const uint32_t bits = i < vocabulary ? (uint32_t)own[i] << 16 : 0xff800000u;
            memcpy(row + i, &bits, 4);
        }
        if (wide > whole) most = larger(most, load(row + whole));
        const float top = largest_of(most), logit = row[labels[r]];
        for (long i = 0; i < wide; i += LANES) {
            const vec each = exponential(load(row + i) - top);
            store(row + i, each);
            sum += each;
        }
        const float all_of = sum_of(sum), share = 1.0f / (all_of * total);
        losses[r] = top + logf(all_of) - logit;
        row[labels[r]] -= all_of;
        for (long i = 0; i < whole; i += LANES) {
            const vec each = load(row + i) * share;
            store(bias + i, load(bias + i) + each);
            *(halves *)(own + i) = narrowed(each);
        }
        for (long i = whole; i < vocabulary; i++) {
            bias[i] += row[i] * share;
            own[i] = half_of(row[i] * share);
        }
    }
}
