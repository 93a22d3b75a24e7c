/* From raw logits to verdicts and tokens on a CPU, and the noise of draws. native_verdict.py describes the functions; verify.py holds the
   mathematics, and noise.py that of the counters.

   A row is computed alone and in one order, so its bits do not depend on the other rows or on the number of threads. */

#include "native_team.h"
#include "native_vectors.c"

#include <omp.h>

#define WIDE (LANES / 2) /* float64 numbers of a vector */
#define GOLDEN 0x9e3779b97f4a7c15
#define ONE 0xbf58476d1ce4e5b9
#define TWO 0x94d049bb133111eb
#define NUMBERS 6 /* of a row */
#define SPACES 7 /* parts of a thread's scratch, each as long as a padded row */

typedef double wide __attribute__((vector_size(4 * LANES)));
typedef uint64_t longs __attribute__((vector_size(4 * LANES)));
typedef int64_t signed_longs __attribute__((vector_size(4 * LANES)));
typedef float narrow __attribute__((vector_size(2 * LANES), aligned(4)));
typedef uint32_t few_words __attribute__((vector_size(2 * LANES), aligned(4)));
typedef int32_t loose_ints __attribute__((vector_size(4 * LANES), aligned(4)));

/* --- noise ----------------------------------------------------------------------------------------------------------- */

INLINE uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

INLINE uint64_t key_of(uint64_t base, int64_t position) { return mix(base + (uint64_t)(position + 1) * GOLDEN); }

/* The logarithm of positive normal numbers: x = 2^k m with m near 1, log m = 2 artanh(s) for s = (m - 1) / (m + 1), by its series. */
INLINE wide logarithm(wide x) {
    const longs shifted = (longs)x - 0x3fe6a09e667f3bcd; /* of the root of 1/2: then m is at most the root of 2 */
    const longs exponent = (longs)((signed_longs)shifted >> 52);
    const wide k = (wide)(exponent + 0x4338000000000000) - 6755399441055744.0; /* as a number: the bits lie in a large one */
    const wide f = (wide)((longs)x - (shifted & 0xfff0000000000000)) - 1.0;
    const wide s = f / (f + 2.0), z = s * s;
    wide y = z * (1.0 / 21) + 1.0 / 19;
    y = y * z + 1.0 / 17;
    y = y * z + 1.0 / 15;
    y = y * z + 1.0 / 13;
    y = y * z + 1.0 / 11;
    y = y * z + 1.0 / 9;
    y = y * z + 1.0 / 7;
    y = y * z + 1.0 / 5;
    y = y * z + 1.0 / 3;
    y = y * z * (s + s) + k * 0x3.9ef35793c7673p-41; /* the last bits of log 2 */
    return (s + s) + y + k * 0x1.62e42fefap-1;
}

/* 52 random bits for each of WIDE tokens under a key */
INLINE longs bits_of(uint64_t key, const int32_t *tokens) {
    longs x = __builtin_convertvector(*(const few_words *)tokens, longs);
    x = key + (x + 1) * GOLDEN;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return (x ^ (x >> 31)) >> 12;
}

INLINE wide number_of(longs bits) { return (wide)(bits | 0x4330000000000000) - 4503599627370496.0; }

/* Gumbel noise of LANES tokens under a key, computed in float64 and rounded once. It is no part of its callers, so that every one gets the
   same bits. */
static __attribute__((noinline)) void gumbel_of(float *out, uint64_t key, const int32_t *tokens) {
    for (int i = 0; i < LANES; i += WIDE) {
        const wide u = (number_of(bits_of(key, tokens + i)) + 0.5) * 0x1p-52;
        *(narrow *)(out + i) = __builtin_convertvector(-logarithm(-logarithm(u)), narrow);
    }
}

/* Whether the noise of any of LANES tokens can exceed g, where x is at least e^-g for each of them: then 1 - u < 1 - exp(-e^-g) <= x. */
INLINE int may_exceed(uint64_t key, const int32_t *tokens, const float *x) {
    signed_longs more = {0};
    for (int i = 0; i < LANES; i += WIDE) {
        const wide rest = number_of(0xfffffffffffff - bits_of(key, tokens + i)) * 0x1p-52; /* 1 - u, or less */
        more |= rest < __builtin_convertvector(*(const narrow *)(x + i), wide);
    }
    return lanes_of((ints)more) != 0; /* as many bits as the vectors of 32-bit numbers have */
}

static void count_up(int32_t *tokens, long count) {
    for (long i = 0; i < count; i++) tokens[i] = (int32_t)i;
}

/* out [rows, vocabulary]; tokens : scratch, vocabulary rounded up to LANES */
void gumbel(uint64_t base, const int64_t *positions, long rows, long vocabulary, float *out, int32_t *tokens) {
    count_up(tokens, (vocabulary + LANES - 1) / LANES * LANES);
    for (long r = 0; r < rows; r++) {
        const uint64_t key = key_of(base, positions[r]);
        float *row = out + r * vocabulary, last[LANES];
        for (long i = 0; i < vocabulary; i += LANES) {
            if (vocabulary - i >= LANES) {
                gumbel_of(row + i, key, tokens + i);
                continue;
            }
            gumbel_of(last, key, tokens + i);
            memcpy(row + i, last, 4 * (vocabulary - i));
        }
    }
}

/* out [streams, rows] */
void uniform(const uint64_t *bases, long streams, const int64_t *positions, long rows, uint64_t slot, double *out) {
    for (long s = 0; s < streams; s++)
        for (long r = 0; r < rows; r++) out[s * rows + r] = ((double)(mix(key_of(bases[s], positions[r]) + slot) >> 12) + 0.5) * 0x1p-52;
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

/* --- grammars -------------------------------------------------------------------------------------------------------- */

/* A grammar as tables: a state is a node in its low bits and, if faces are counted, their number above it (engine/mesh/bpt_grammar.py).
   classes : of each of `vocabulary` tokens; next : the node after a node, by class; masks : of each node its row of the table of masks
   counted : the node whose visits are counted, -1 for none; budget, last : with so many of them its row is `last` */
typedef struct {
    const uint8_t *classes, *next, *masks;
    long vocabulary, kinds, bits;
    long counted, budget, last;
} Walk;

INLINE int64_t after(const Walk *w, int64_t state, int64_t token) {
    if (token < 0 || token >= w->vocabulary) return state;
    const int64_t node = w->next[(state & ((1 << w->bits) - 1)) * w->kinds + w->classes[token]];
    return w->counted < 0 ? node : ((state >> w->bits) + (node == w->counted)) << w->bits | node;
}

INLINE int32_t mask_of(const Walk *w, int64_t state) {
    const int64_t node = state & ((1 << w->bits) - 1);
    return node == w->counted && state >> w->bits >= w->budget ? (int32_t)w->last : w->masks[node];
}

/* The best token of each of `count` rows of logits [count, vocabulary], the first of equals, among those that may follow a state and the
   tokens before it. table : of masks, or null: all tokens may follow */
void best_along(const float *logits, long count, long vocabulary, const uint8_t *table, const Walk *walk, int64_t state, int64_t *tokens) {
    for (long r = 0; r < count; r++) {
        tokens[r] = best_allowed(logits + r * vocabulary, vocabulary, table ? table + mask_of(walk, state) * vocabulary : 0);
        if (table) state = after(walk, state, tokens[r]);
    }
}

/* --- scores ---------------------------------------------------------------------------------------------------------- */

/* logits : [branches, rows, vocabulary], conditional first; allowed : [vocabulary] (stride 0), [rows, vocabulary], or null
   tokens, laws : of the drafts, the rows before the last ones; laws or null; uniforms : [3, rows], of acceptance, fresh and residual draws; null:
   answers alone are wanted
   scores, p : [rows, vocabulary] or null
   answers : [rows]; null: only scores are wanted
   integers : [4, rows]: fresh and residual draw, whether the row is sound, verdict
   numbers : [rows, 6]: entropy, ratio, distance of p and q, probability of the draft, greatest probability, chance of acceptance
   scratch : of each thread, scratch_size numbers
   The rest is of `window` alone. table : [.., vocabulary], of which row which[i] is what row i allows, instead of `allowed`, or null
   root, iteration, streams : of the uniform numbers (engine/noise.py), at positions from `first` on: both arrays are scratch then
   walk : what says which row of the table a row needs, from `state` on along the tokens, instead of `which`, or null
   seeded : acceptance is equality; certain : the drafts were chosen, so their distributions are one-hot, and laws is null
   brief : one thread may leave out the rows after the first refusal; apart : the distance of p and q is wanted
   settled : the first refusal, and the token after it, -1 if a row up to there is not sound */
typedef struct {
    const float *logits;
    long branches, rows, vocabulary, branch_stride, row_stride;
    const uint8_t *allowed;
    long allowed_stride;
    const int64_t *tokens;
    const float *laws;
    long drafts, law_stride;
    const int64_t *positions;
    uint64_t base;
    const double *uniforms;
    float guidance, temperature, top_p;
    int temperature_last;
    long top_k;
    float *scores, *p, *numbers;
    int64_t *answers, *integers;
    float *scratch;
    long scratch_size;
    int threads, seeded, certain, brief, apart;
    const uint8_t *table;
    int32_t *which;
    const Walk *walk;
    int64_t state;
    uint64_t root, iteration, streams[3];
    int64_t first, settled[2];
} Verdict;

/* The tokens of a row that are left, ascending, filled up to whole vectors with scores of -inf. */
typedef struct {
    float *scores;
    int32_t *tokens;
    long count;
} Left;

INLINE vec some(const float *at, long count) {
    if (count >= LANES) return load(at);
    float part[LANES] = {0};
    memcpy(part, at, 4 * count);
    return load(part);
}

/* The logits of a row and what becomes of them before the temperature. u : of the other branch, or null; factor, weak : as torch.lerp has it */
typedef struct {
    const float *c, *u;
    const uint8_t *allowed;
    long vocabulary;
    float factor;
    int weak;
} Source;

static Source source_of(const Verdict *a, long row) {
    const int weak = fabsf(a->guidance) < 0.5f;
    const float *c = a->logits + row * a->row_stride;
    const uint8_t *allowed = a->table ? a->table + a->which[row] * a->vocabulary : a->allowed ? a->allowed + row * a->allowed_stride : 0;
    return (Source){c, a->branches == 2 ? c + a->branch_stride : 0, allowed, a->vocabulary, weak ? a->guidance : a->guidance - 1.0f, weak};
}

/* Guided and masked scores of LANES tokens, whose logits and permissions lie at these places. */
INLINE vec scores_of(const Source *from, const float *c, const float *u, const uint8_t *allowed) {
    vec s = load(c);
    if (from->u) {
        const vec other = load(u);
        s = from->factor * (s - other) + (from->weak ? other : s);
    }
    return allowed ? chosen(permitted(allowed), s, all(-INFINITY)) : s;
}

/* The same of the last tokens, from i on, and -inf after them. */
static __attribute__((noinline)) vec last_scores(const Source *from, long i) {
    const long count = from->vocabulary - i;
    float c[LANES] = {0}, u[LANES] = {0};
    uint8_t allowed[LANES] = {0};
    memcpy(c, from->c + i, 4 * count);
    if (from->u) memcpy(u, from->u + i, 4 * count);
    if (from->allowed) memcpy(allowed, from->allowed + i, count);
    else memset(allowed, 1, count);
    return scores_of(from, c, u, allowed);
}

INLINE vec scores_at(const Source *from, long i) {
    if (from->vocabulary - i < LANES) return last_scores(from, i);
    return scores_of(from, from->c + i, from->u ? from->u + i : 0, from->allowed ? from->allowed + i : 0);
}

/* Divided scores, without negative zeros: equal numbers get equal bits. */
INLINE vec divided(vec s, float divisor) { return (divisor != 1.0f ? s / divisor : s) + 0.0f; }

/* The greatest divided score of each vector of a row, filled up with -inf to whole vectors, and into `out`, unless it is null, all divided
   scores. Returns whether all of them are numbers below infinity. */
static int guided(const Source *from, float divisor, float *out, float *peaks) {
    ints faults = {0};
    for (long first = 0; first < from->vocabulary; first += LANES * LANES) {
        vec block[LANES];
        for (long j = 0; j < LANES; j++) {
            const long i = first + j * LANES;
            block[j] = i < from->vocabulary ? scores_at(from, i) : all(-INFINITY);
            faults |= ~(block[j] < INFINITY);
            if (!out || i >= from->vocabulary) continue;
            store(out + i, block[j] = divided(block[j], divisor));
            faults |= ~(block[j] < INFINITY);
        }
        const vec greatest = largest_of_each(block);
        store(peaks + first / LANES, out ? greatest : divided(greatest, divisor)); /* a quotient never falls with what is divided */
    }
    return !lanes_of(faults);
}

/* Whole numbers that grow with float32. */
INLINE ints order_of(vec x) { return (ints)x ^ (((ints)x >> 31) & 0x7fffffff); }

/* The greatest score s for which the masses (null: 1 each) of the scores of at least s reach what is wanted, found bit by bit; -inf if all of
   them do not. */
INLINE float greatest(const float *scores, const float *masses, long padded, float wanted) {
    uint32_t found = 0;
    long reached = -1;
    for (int bit = 31; bit >= 0 && reached != (long)wanted; bit--) {
        const uint32_t tried = found | 1u << bit;
        const int32_t least = (int32_t)(tried ^ 0x80000000u);
        vec sum = {0};
        ints count = {0};
        for (long i = 0; i < padded; i += LANES) {
            const ints enough = order_of(load(scores + i)) >= least;
            if (masses) sum += (vec)((ints)load(masses + i) & enough);
            else count -= enough;
        }
        const float many = sum_of(masses ? sum : __builtin_convertvector(count, vec));
        if (many >= wanted) {
            found = tried;
            if (!masses) reached = (long)many;
        }
    }
    if (reached == (long)wanted) { /* exactly as many as are wanted: the least of them */
        const int32_t least = (int32_t)(found ^ 0x80000000u);
        vec last = all(INFINITY);
        for (long i = 0; i < padded; i += LANES) last = -larger(-chosen(order_of(load(scores + i)) >= least, load(scores + i), last), -last);
        return -largest_of(-last);
    }
    const int32_t order = (int32_t)(found ^ 0x80000000u), bits = order ^ ((order >> 31) & 0x7fffffff);
    float x;
    memcpy(&x, &bits, 4);
    return x >= -INFINITY ? x : -INFINITY; /* the bits below those of -inf are no number */
}

INLINE long rounded_up(long count) { return (count + LANES - 1) / LANES * LANES; }

static void fill_up(Left *left) {
    for (long i = left->count; i % LANES || i == 0; i++) left->scores[i] = -INFINITY, left->tokens[i] = 0;
}

/* The possible tokens with divided scores of at least `least`, in the vectors whose peaks reach it. */
static void gather(const Source *from, float divisor, const float *peaks, float least, Left *left) {
    left->count = 0;
    for (long block = 0; block < from->vocabulary; block += LANES * LANES) {
        const vec highest = load(peaks + block / LANES);
        for (uint32_t high = lanes_of((highest >= least) & (highest > -INFINITY)); high; high &= high - 1) {
            const long i = block + __builtin_ctz(high) * LANES;
            const vec x = divided(scores_at(from, i), divisor);
            float scores[LANES];
            store(scores, x);
            for (uint32_t found = lanes_of((x >= least) & (x > -INFINITY)); found; found &= found - 1) {
                const int j = __builtin_ctz(found);
                left->scores[left->count] = scores[j], left->tokens[left->count++] = (int32_t)(i + j);
            }
        }
    }
    fill_up(left);
}

/* What top-k and then top-p leave of a row. The k-th of the greatest scores of the vectors bounds the k-th score from below, so that few
   tokens are looked at again. All ties stay. peaks : of the vectors; masses : scratch */
static void filtered(const Verdict *a, const Source *from, float divisor, float top, const float *peaks, float *masses, Left *left) {
    const long vectors = rounded_up(a->vocabulary) / LANES, k = a->top_k < a->vocabulary ? a->top_k : 0;
    float least = -INFINITY;
    if (k && k <= vectors) least = greatest(peaks, 0, rounded_up(vectors), (float)k);
    gather(from, divisor, peaks, least, left);
    long length = rounded_up(left->count);
    if (k) least = greatest(left->scores, 0, length, (float)k);
    if (a->top_p < 1.0f) {
        vec total = {0};
        for (long i = 0; i < length; i += LANES) {
            const vec x = load(left->scores + i), mass = (vec)((ints)exponential(x - top) & (x >= least));
            store(masses + i, mass);
            total += mass;
        }
        const float enough = greatest(left->scores, masses, length, a->top_p * sum_of(total));
        least = enough > least ? enough : least;
    }
    const long before = left->count;
    left->count = 0;
    for (long i = 0; i < before; i++)
        if (left->scores[i] >= least) left->scores[left->count] = left->scores[i], left->tokens[left->count++] = left->tokens[i];
    for (long i = left->count; i < length; i++) left->scores[i] = -INFINITY, left->tokens[i] = 0;
}

/* --- draws ----------------------------------------------------------------------------------------------------------- */

/* argmax of score + noise, the first of equals. shares : e^(score - top); most tokens are passed over, because no noise that their bits allow
   lifts them above the best so far */
static int32_t loudest(const Left *left, uint64_t key, const float *shares, float top) {
    vec best = all(-INFINITY);
    ints place = {0};
    float reach = INFINITY; /* e^(top - the best so far), and a little more for rounding */
    for (long i = 0; i < left->count; i += LANES) {
        float noise[LANES];
        store(noise, load(shares + i) * reach);
        if (reach < INFINITY && !may_exceed(key, left->tokens + i, noise)) continue;
        gumbel_of(noise, key, left->tokens + i);
        const vec loud = load(left->scores + i) + load(noise);
        const ints more = loud > best;
        place = (*(const loose_ints *)(left->tokens + i) & more) | (place & ~more);
        best = chosen(more, loud, best);
        reach = 1.001f * expf(top - largest_of(best));
    }
    const float most = largest_of(best);
    int32_t found = INT32_MAX;
    for (int i = 0; i < LANES; i++)
        if (best[i] == most && place[i] < found) found = place[i];
    return found;
}

INLINE double exact_sum(const float *x) {
    const wide lanes = __builtin_convertvector(*(const narrow *)x, wide) + __builtin_convertvector(*(const narrow *)(x + WIDE), wide);
    double sum = 0;
    for (int i = 0; i < WIDE; i++) sum += lanes[i];
    return sum;
}

/* The first place at which the running sum of float32 weights reaches u times their sum; the last one with weight if none does. sums : scratch */
static long crossing(const float *weights, long padded, double total, double u, double *sums) {
    const double target = u * total;
    double run = 0;
    for (long i = 0; i < padded; i += LANES) {
        const double more = sums[i / LANES];
        if (run + more < target) {
            run += more;
            continue;
        }
        long last = -1;
        for (long j = i; j < i + LANES; j++) {
            if (!(weights[j] > 0)) continue;
            last = j, run += weights[j];
            if (run >= target) return j;
        }
        if (last >= 0) return last;
    }
    for (long j = padded - 1; j > 0; j--)
        if (weights[j] > 0) return j;
    return 0;
}

static double sum_up(const float *weights, long padded, double *sums) {
    double total = 0;
    for (long i = 0; i < padded; i += LANES) total += sums[i / LANES] = exact_sum(weights + i);
    return total;
}

/* --- a row ----------------------------------------------------------------------------------------------------------- */

typedef struct {
    float *scores, *values, *shares, *rest, *dense, *peaks;
    int32_t *tokens;
    double *sums;
} Space;

static void unsound(const Verdict *a, long row) {
    a->answers[row] = -1;
    for (int i = 0; i < 4; i++) a->integers[i * a->rows + row] = i < 2 ? -1 : 0;
    for (int i = 0; i < NUMBERS; i++) a->numbers[row * NUMBERS + i] = NAN;
    if (a->p)
        for (long i = 0; i < a->vocabulary; i++) a->p[row * a->vocabulary + i] = NAN;
}

/* What is left of a row after all settings of the sampling; `top` becomes its greatest score. */
static Left warped(const Verdict *a, long row, const Space *space, float *top, int *sound) {
    const int greedy = a->temperature == 0, filters = !greedy && ((a->top_k > 0 && a->top_k < a->vocabulary) || a->top_p < 1.0f);
    const int late = a->temperature_last && filters;
    const long padded = rounded_up(a->vocabulary);
    const Source from = source_of(a, row);
    const float divisor = greedy || late ? 1.0f : a->temperature;
    Left left = {space->scores, space->tokens, a->vocabulary};
    *sound = guided(&from, divisor, filters ? 0 : space->scores, space->peaks);
    vec best = load(space->peaks);
    for (long i = LANES; i < rounded_up(padded / LANES); i += LANES) best = larger(load(space->peaks + i), best);
    *top = largest_of(best);
    *sound = *sound && *top > -INFINITY && *top < INFINITY;
    if (!*sound) return left;
    if (greedy) {
        long first = 0;
        while (space->scores[first] != *top) first++;
        left.scores = space->values, left.count = 1, left.scores[0] = 0, left.tokens[0] = (int32_t)first, *top = 0;
        for (int i = 1; i < LANES; i++) left.scores[i] = -INFINITY, left.tokens[i] = 0;
    } else if (filters) {
        left.scores = space->values;
        filtered(a, &from, divisor, *top, space->peaks, space->shares, &left);
        if (late) {
            for (long i = 0; i < rounded_up(left.count); i += LANES) store(left.scores + i, load(left.scores + i) / a->temperature);
            *top /= a->temperature;
        }
    } else {
        count_up(left.tokens, padded);
    }
    return left;
}

static void spread(float *out, float elsewhere, const Left *left, const float *values, long vocabulary) {
    if (left->count == vocabulary) {
        memcpy(out, values, 4 * vocabulary);
        return;
    }
    for (long i = 0; i < vocabulary; i++) out[i] = elsewhere;
    for (long i = 0; i < left->count; i++) out[left->tokens[i]] = values[i];
}

/* Half the sum of |p - q|. */
static float distance(const float *p, const float *q, long vocabulary) {
    vec apart = {0};
    for (long i = 0; i < vocabulary; i += LANES) {
        const vec d = some(p + i, vocabulary - i) - some(q + i, vocabulary - i);
        apart += larger(d, -d);
    }
    return sum_of(apart) / 2;
}

/* The probability of a token, 0 for one that is not left. */
static float chance_of(int64_t token, const Left *left, const float *shares, long vocabulary) {
    if (left->count == vocabulary) return shares[token];
    for (long i = 0; i < left->count; i++)
        if (left->tokens[i] == token) return shares[i];
    return 0;
}

/* The verdict on the draft of a row whose probability is `chance`, and max(0, p - q) of the tokens that are left, into `rest`. Returns its
   sum. p : [vocabulary], if the draft was drawn from a distribution */
static double weighed(
    const Verdict *a, long row, const Left *left, const float *shares, float chance, const float *p, float *rest, double *sums) {
    const float *q = a->certain ? 0 : a->laws + row * a->law_stride;
    const int64_t token = a->tokens[row];
    const float odds = q ? chance / q[token] : chance;
    const long length = rounded_up(left->count);
    float *numbers = a->numbers + row * NUMBERS;
    numbers[1] = odds, numbers[2] = !a->apart ? NAN : q ? distance(p, q, a->vocabulary) : 1 - chance, numbers[5] = odds > 1.0f ? 1.0f : odds;
    a->integers[3 * a->rows + row] = a->uniforms[row] < odds;
    if (q && left->count == a->vocabulary) { /* all tokens, in order */
        for (long i = 0; i < length; i += LANES) store(rest + i, larger(load(shares + i) - some(q + i, a->vocabulary - i), all(0.0f)));
        for (long i = left->count; i < length; i++) rest[i] = 0;
    } else {
        for (long i = 0; i < length; i++) {
            const float more = i >= left->count ? 0 : shares[i] - (q ? q[left->tokens[i]] : left->tokens[i] == token);
            rest[i] = more > 0 ? more : 0;
        }
    }
    return sum_up(rest, length, sums);
}

static void verdict_of(const Verdict *a, long row, const Space *space) {
    float top;
    int sound;
    const Left left = warped(a, row, space, &top, &sound);
    const long rows = a->rows, length = rounded_up(left.count);
    if (a->scores) spread(a->scores + row * a->vocabulary, -INFINITY, &left, left.scores, a->vocabulary);
    if (!a->answers) return;
    if (!sound) {
        unsound(a, row);
        return;
    }
    vec mass = {0}, heat = {0};
    for (long i = 0; i < length; i += LANES) {
        const vec gap = load(left.scores + i) - top, share = exponential(gap);
        store(space->shares + i, share);
        mass += share;
        heat += (vec)((ints)(share * gap) & (share > 0.0f));
    }
    const float total = sum_of(mass), scale = 1.0f / total;
    float *numbers = a->numbers + row * NUMBERS;
    numbers[0] = logf(total) - sum_of(heat) / total, numbers[4] = scale;
    a->answers[row] = loudest(&left, key_of(a->base, a->positions[row]), space->shares, top), a->integers[2 * rows + row] = 1;
    if (!a->uniforms) return;
    for (long i = 0; i < length; i += LANES) store(space->shares + i, load(space->shares + i) * scale);
    float *p = a->p ? a->p + row * a->vocabulary : space->dense;
    if (a->p || (row < a->drafts && a->laws && a->apart)) spread(p, 0.0f, &left, space->shares, a->vocabulary);
    const double *u = a->uniforms;
    double sum = sum_up(space->shares, length, space->sums);
    a->integers[row] = left.tokens[crossing(space->shares, length, sum, u[rows + row], space->sums)];
    const float *rest = space->shares;
    const float chance = row < a->drafts ? chance_of(a->tokens[row], &left, space->shares, a->vocabulary) : 0;
    if (row < a->drafts) numbers[3] = numbers[5] = chance;
    if (row < a->drafts && (a->laws || a->certain)) {
        const double more = weighed(a, row, &left, space->shares, chance, p, space->rest, space->sums);
        if (more >= 1e-12) /* else p = q up to rounding, and the residual is p */
            rest = space->rest, sum = more;
        else
            sum = sum_up(space->shares, length, space->sums);
    }
    a->integers[rows + row] = left.tokens[crossing(rest, length, sum, u[2 * rows + row], space->sums)];
}

/* The numbers of scratch that a thread needs. */
long verdict_scratch(long vocabulary) { return (SPACES + 1) * (rounded_up(vocabulary) + LANES * LANES); }

/* Whether the draft of a row is refused. */
INLINE int refuses(const Verdict *a, long row) {
    return a->seeded || !(a->laws || a->certain) ? a->answers[row] != a->tokens[row] : !a->integers[3 * a->rows + row];
}

void verdicts(const Verdict *a) {
    const long padded = rounded_up(a->vocabulary), room = padded + LANES * LANES;
    const int threads = team(a->threads);
    Share own = share_of(threads);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const int first = threads > 1 && !omp_get_thread_num();
        if (first) own.began = moment();
#pragma omp for schedule(static) nowait
        for (long share = 0; share < threads; share++) {
            float *at = a->scratch + share * a->scratch_size;
            const Space space = {at, at + room, at + 2 * room, at + 3 * room, at + 4 * room, at + 5 * room, (int32_t *)(at + 6 * room),
                                 (double *)(at + 7 * room)};
            for (long row = a->rows * share / threads; row < a->rows * (share + 1) / threads; row++) {
                verdict_of(a, row, &space);
                if (a->brief && threads == 1 && row < a->drafts && refuses(a, row)) break;
            }
        }
        if (first) own.done = moment();
    }
    waited(&own);
}

/* The verdicts of rows at consecutive positions, with their random numbers, and what follows from them. */
void window(Verdict *a) {
    int64_t *positions = (int64_t *)a->positions;
    for (long r = 0; r < a->rows; r++) positions[r] = a->first + r;
    int64_t state = a->state;
    for (long r = 0; a->walk && r < a->rows; r++) {
        a->which[r] = mask_of(a->walk, state);
        if (r < a->drafts) state = after(a->walk, state, a->tokens[r]);
    }
    uint64_t bases[3];
    for (int i = 0; i < 3; i++) bases[i] = mix(a->root + a->streams[i] * ONE + (a->iteration + 1) * TWO);
    if (a->uniforms) uniform(bases, 3, positions, a->rows, 0, (double *)a->uniforms);
    verdicts(a);
    const int64_t *fresh = a->integers, *drawn = fresh + a->rows, *sound = drawn + a->rows;
    long refused = 0;
    int all_sound = sound[0] != 0;
    while (refused < a->drafts && !refuses(a, refused)) all_sound &= sound[++refused] != 0;
    a->settled[0] = refused;
    a->settled[1] = !all_sound ? -1 : (a->seeded ? a->answers : refused < a->drafts ? drawn : fresh)[refused];
}

/* Draws from one distribution at consecutive positions from `first` on: tokens [count], as `_drawn_of_one` in engine/sampling.py.
   sums : scratch [vocabulary] */
void draw_alike(
    const float *p, long vocabulary, uint64_t root, uint64_t stream, uint64_t iteration, int64_t first, long count, int64_t *tokens, double *sums) {
    const uint64_t base = mix(root + stream * ONE + (iteration + 1) * TWO);
    double total = 0;
    for (long i = 0; i < vocabulary; i++) sums[i] = total += p[i];
    for (long r = 0; r < count; r++) {
        double u;
        const int64_t position = first + r;
        uniform(&base, 1, &position, 1, 0, &u);
        const double wanted = u * total;
        long low = 0, high = vocabulary; /* the first sum that is not below */
        while (low < high) {
            const long middle = (low + high) / 2;
            if (sums[middle] < wanted) low = middle + 1;
            else high = middle;
        }
        tokens[r] = low < vocabulary ? low : vocabulary - 1;
    }
}

/* One token a row, as `draw` in engine/sampling.py; its sums are those of all tokens, because a zero changes none. stride : 0 for one
   distribution of all rows; u : [rows] */
void draw_rows(const float *p, long rows, long stride, long vocabulary, const double *u, int64_t *tokens) {
    double sums[vocabulary / LANES + 1]; /* before each vector */
    for (long r = 0; r < rows; r++, p += stride) {
        const long whole = vocabulary / LANES * LANES;
        double total = 0;
        for (long i = 0; i < whole; i += LANES) {
            sums[i / LANES] = total;
            if (!lanes_of(load(p + i) != 0.0f)) continue;
            for (long j = i; j < i + LANES; j++) total += p[j];
        }
        sums[whole / LANES] = total;
        for (long j = whole; j < vocabulary; j++) total += p[j];
        const double wanted = u[r] * total;
        long low = 0, high = whole / LANES; /* the last vector before which the sum is below; or the first one */
        while (low < high) {
            const long middle = (low + high + 1) / 2;
            if (sums[middle] < wanted) low = middle;
            else high = middle - 1;
        }
        long found = low * LANES;
        double sum = sums[low];
        while (found < vocabulary && !((sum += p[found]) >= wanted)) found++;
        tokens[r] = found < vocabulary ? found : vocabulary - 1;
    }
}
