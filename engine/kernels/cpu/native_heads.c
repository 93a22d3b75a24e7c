/* The heads that draft the next tokens of a mesh, on a CPU: from one hidden state to logits, and the best token that a grammar allows.
   native_heads.py describes the functions; engine/drafters/mesh_heads.py is their reference.

   Every sum has one order, whatever the number of heads and threads. */

#include "native_team.h"
#include "native_vectors.c"

/* hidden : [width]; gain : [count]; every panel as in native.c, those of the heads one after another
   up, down : of the residual layer, width -> 2 width -> width
   norms : [count, width], query, cross : panels, width -> width, keys, values : [count, heads, seen, width / heads], of heads that attend to
   the condition; norms is null for others
   panels, bias : of the output layer; logits : [count, vocabulary]
   half : all panels are bfloat16, and rows are rounded to it before products
   work : width + 4 count width numbers, and for each head `seen` numbers, rounded up to LANES */
typedef struct {
    const float *hidden, *gain;
    long count, width;
    const void *up, *down, *query, *cross;
    const float *norms, *keys, *values;
    long heads, seen;
    const void *panels;
    const float *bias;
    int half;
    long vocabulary;
    float *logits, *work;
    float epsilon, scale;
    int threads;
} Heads;

/* The hidden state with mean 0 and variance 1. */
static void normed(float *out, const float *x, long width, float epsilon) {
    vec total = {0}, squares = {0};
    for (long i = 0; i < width; i += LANES) total += load(x + i);
    const float mean = sum_of(total) / width;
    for (long i = 0; i < width; i += LANES) {
        const vec d = load(x + i) - mean;
        squares += d * d;
    }
    const float factor = 1.0f / sqrtf(sum_of(squares) / width + epsilon);
    for (long i = 0; i < width; i += LANES) store(out + i, (load(x + i) - mean) * factor);
}

/* Products of each head's row with its own weights, added to `residual` or not. All threads share the columns. */
static void products(const Heads *h, const float *x, long inner, const void *packed, const float *residual, float *out, long outer) {
    const long each = (outer + PANEL - 1) / PANEL, size = h->half ? 2 : 4;
#pragma omp for schedule(static)
    for (long unit = 0; unit < h->count * h->threads; unit++) {
        const long head = unit / h->threads, share = unit % h->threads, first = each * share / h->threads, last = each * (share + 1) / h->threads;
        const long column = head * outer + first * PANEL, end = last * PANEL < outer ? last * PANEL : outer;
        float rounded[h->half ? 2 * inner : 1];
        if (first < last)
            linear(x + head * inner, 1, inner, inner, 0, 0, 0, 0.0f, rounded, (const char *)packed + (head * each + first) * inner * PANEL * size,
                   h->half, 0, residual ? residual + column : 0, out + column, end - first * PANEL, 1);
    }
}

/* Cosine attention of one row to the condition, in place. scores : scratch */
static void looked(const Heads *h, long head, float *row, float *scores) {
    const long width = h->width / h->heads, padded = (h->seen + LANES - 1) / LANES * LANES;
    for (long part = 0; part < h->heads; part++) {
        float *q = row + part * width;
        const long start = (head * h->heads + part) * h->seen * width;
        vec squares = {0}, best = all(-INFINITY), total = {0};
        for (long i = 0; i < width; i += LANES) squares += load(q + i) * load(q + i);
        const float length = sqrtf(sum_of(squares)), factor = h->scale / (length > 1e-12f ? length : 1e-12f);
        for (long j = 0; j < padded; j++) {
            vec dot = {0};
            if (j < h->seen)
                for (long i = 0; i < width; i += LANES) dot += load(q + i) * load(h->keys + start + j * width + i);
            scores[j] = j < h->seen ? sum_of(dot) * factor : -INFINITY;
        }
        for (long j = 0; j < padded; j += LANES) best = larger(load(scores + j), best);
        const float top = largest_of(best);
        for (long j = 0; j < padded; j += LANES) {
            const vec e = exponential(load(scores + j) - top);
            total += e;
            store(scores + j, e);
        }
        const float scale = 1.0f / sum_of(total);
        for (long i = 0; i < width; i += LANES) {
            vec sum = {0};
            for (long j = 0; j < h->seen; j++) sum += scores[j] * load(h->values + start + j * width + i);
            store(q + i, sum * scale);
        }
    }
}

/* What a head reads, [count, width], and what it is added to, after attention to the condition. */
static void attend_to_condition(const Heads *h, const float *read, float *reads, float *x, float *asked, float *scores) {
    const long width = h->width, room = (h->seen + LANES - 1) / LANES * LANES;
#pragma omp for schedule(static)
    for (long d = 0; d < h->count; d++)
        for (long i = 0; i < width; i += LANES) store(reads + d * width + i, load(read + i) * load(h->norms + d * width + i));
    products(h, reads, width, h->query, 0, asked, width);
#pragma omp for schedule(static)
    for (long d = 0; d < h->count; d++) looked(h, d, asked + d * width, scores + d * room);
    products(h, asked, width, h->cross, 0, reads, width);
#pragma omp for schedule(static)
    for (long d = 0; d < h->count; d++)
        for (long i = d * width; i < (d + 1) * width; i += LANES) {
            const vec found = load(reads + i);
            store(x + i, load(x + i) + found);
            store(reads + i, load(read + i - d * width) + found);
        }
}

void draft_heads(const Heads *h) {
    const long width = h->width, all_rows = h->count * width;
    float *read = h->work, *reads = read + width, *x = reads + all_rows, *wide = x + all_rows, *scores = wide + 2 * all_rows;
    const int threads = team(h->threads); /* the output layer below says how long threads wait here */
    normed(read, h->hidden, width, h->epsilon);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
#pragma omp for schedule(static)
        for (long d = 0; d < h->count; d++)
            for (long i = 0; i < width; i += LANES) {
                store(x + d * width + i, load(h->hidden + i) * h->gain[d]);
                store(reads + d * width + i, load(read + i));
            }
        if (h->norms) attend_to_condition(h, read, reads, x, wide, scores);
        products(h, reads, width, h->up, 0, wide, 2 * width);
#pragma omp for schedule(static)
        for (long d = 0; d < h->count; d++)
            for (long i = 2 * d * width; i < 2 * (d + 1) * width; i += LANES) store(wide + i, silu(load(wide + i)));
        products(h, wide, 2 * width, h->down, x, reads, width);
    }
    linear(reads, h->count, width, width, 0, 0, 0, 0.0f, wide, h->panels, h->half, h->bias, 0, h->logits, h->vocabulary, h->threads);
}

/* The first of the greatest logits that are allowed; 0 if none is. allowed : [vocabulary], or null: all */
long best_allowed(const float *logits, long vocabulary, const uint8_t *allowed) {
    float best = -INFINITY;
    long found = 0;
    vec greatest = all(-INFINITY);
    const long whole = vocabulary / LANES * LANES;
    for (long i = 0; i < whole; i += LANES) {
        vec x = load(logits + i);
        if (allowed) x = chosen(permitted(allowed + i), x, all(-INFINITY));
        greatest = larger(x, greatest);
    }
    best = largest_of(greatest);
    for (long i = whole; i < vocabulary; i++) best = (!allowed || allowed[i]) && logits[i] > best ? logits[i] : best;
    for (; found < whole; found += LANES) { /* the vector that holds it */
        vec x = load(logits + found);
        if (allowed) x = chosen(permitted(allowed + found), x, all(-INFINITY));
        if (largest_of(x) >= best) break;
    }
    while (found < vocabulary && ((allowed && !allowed[found]) || !(logits[found] == best))) found++;
    return found < vocabulary ? found : 0;
}
