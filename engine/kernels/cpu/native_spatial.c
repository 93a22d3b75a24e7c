/* The heads that foresee a row of a picture, on a CPU: from the states and tokens around some slots to their logits, in one call.
   native_spatial.py describes the function; engine/drafters/spatial_heads.py is its reference.

   A slot has the same bits in a call of any number of slots and threads. */

#include "native_vectors.c"

/* Weights of a product in the panels of native.c, and of a root-mean-square norm with the length that is added to a row's */
typedef struct {
    const void *panels;
    const float *norm;
    float floor;
} Product;

/* states : of branch b and position p at b * branch_stride + p * width; with two branches they are mixed, u + guidance (c - u)
   tokens : of the positions from first_token on; table : [vocabulary, width], their embeddings, mixed
   slots : count of them from `start` on; wide : of a row of the picture; newest, known : see `Around`
   rows, columns : whether the newest state, and those above, are read
   above, left : panels, 4 width -> width and 2 width -> width; no_row, scale, bias : [width]; places : [2 reach + 1, width], by distance
   logits : [count, vocabulary]; work : `spatial_work` numbers */
typedef struct {
    const float *states;
    long branch_stride, branches;
    float guidance;
    const int64_t *tokens;
    long first_token;
    const float *table;
    long width, inner, reach, wide, start, count, newest, known;
    int rows, columns;
    Product state, token, above, left, feed, down, head;
    const float *no_row, *places, *scale, *bias, *head_bias;
    int half;
    long vocabulary;
    float *logits, *work;
    int threads;
} Spatial;

/* of native.c */
enum { AS_IT_IS, ROOT_MEAN_SQUARE, LAYER_NORM, SILU_GATE };
void prepare(const float *x, long rows, long stride, long width, int kind, const float *weight, const float *bias, float constant, float *out,
             int threads);

static long larger_of(long a, long b) { return a > b ? a : b; }

/* Rows as they are multiplied: those of the layer above are the widest before, those of the gate after their product. */
static long room_of(const Spatial *s) { return 2 * s->count * larger_of(4 * s->width, 2 * s->inner); }

long spatial_work(const Spatial *s) { return s->width * (4 + 6 * s->count) + 2 * s->inner * s->count + room_of(s); }

/* State and token of a position, each with its norm: [2 width]. mixed : scratch */
static void read_at(const Spatial *s, long position, float *out, float *mixed) {
    const float *state = s->states + position * s->width;
    if (s->branches == 2) {
        const float *other = state + s->branch_stride;
        for (long i = 0; i < s->width; i += LANES) store(mixed + i, load(other + i) + s->guidance * (load(state + i) - load(other + i)));
        state = mixed;
    }
    prepare(state, 1, s->width, s->width, ROOT_MEAN_SQUARE, s->state.norm, 0, s->state.floor, out, 1);
    const float *embedded = s->table + s->tokens[position - s->first_token] * s->width;
    prepare(embedded, 1, s->width, s->width, ROOT_MEAN_SQUARE, s->token.norm, 0, s->token.floor, out + s->width, 1);
}

static long distance_of(const Spatial *s, long slot) {
    const long far = slot - s->newest;
    if (!s->rows || s->newest < 0 || far > s->reach) return 0;
    return far + (slot / s->wide != s->newest / s->wide ? s->reach : 0);
}

static int has_above(const Spatial *s, long slot) {
    const long above = slot - s->wide;
    return s->columns && above >= 0 && above < s->known && above + 1 < slot;
}

void spatial_heads(const Spatial *s) {
    const long width = s->width, count = s->count;
    float *mixed = s->work, *beside = mixed + width, *read = beside + 2 * width, *around = read + width, *x = around + 4 * count * width;
    float *found = x + count * width, *gates = found + count * width, *scratch = gates + 2 * s->inner * count;
    const int reads_left = distance_of(s, s->start) > 0; /* the first slot is the nearest */
    for (long n = 0; n < count; n++) {
        float *own = around + n * 4 * width;
        const long above = s->start + n - s->wide;
        if (has_above(s, s->start + n)) {
            read_at(s, above, own, mixed);
            read_at(s, above + 1, own + 2 * width, mixed);
        } else {
            memset(own, 0, 16 * width);
        }
    }
    linear(around, count, 4 * width, 4 * width, AS_IT_IS, 0, 0, 0.0f, scratch, s->above.panels, 0, 0, 0, x, width, s->threads);
    if (reads_left) {
        read_at(s, s->newest, beside, mixed);
        linear(beside, 1, 2 * width, 2 * width, AS_IT_IS, 0, 0, 0.0f, scratch, s->left.panels, 0, 0, 0, read, width, s->threads);
    }
    for (long n = 0; n < count; n++) {
        const long distance = distance_of(s, s->start + n);
        const float *looked = has_above(s, s->start + n) ? x + n * width : s->no_row, *place = s->places + distance * width;
        for (long i = 0; i < width; i += LANES) {
            const vec sum = load(looked + i) + load(place + i);
            store(x + n * width + i, distance ? sum + load(read + i) : sum);
        }
    }
    linear(x, count, width, width, ROOT_MEAN_SQUARE, s->feed.norm, 0, s->feed.floor, scratch, s->feed.panels, 0, 0, 0, gates, 2 * s->inner, s->threads);
    linear(gates, count, 2 * s->inner, s->inner, SILU_GATE, 0, 0, 0.0f, scratch, s->down.panels, 0, 0, x, found, width, s->threads);
    for (long n = 0; n < count; n++)
        for (long i = 0; i < width; i += LANES) store(found + n * width + i, load(found + n * width + i) * load(s->scale + i) + load(s->bias + i));
    linear(found, count, width, width, AS_IT_IS, 0, 0, 0.0f, scratch, s->head.panels, s->half, s->head_bias, 0, s->logits, s->vocabulary, s->threads);
}
