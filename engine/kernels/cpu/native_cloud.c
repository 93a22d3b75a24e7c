/* What point clouds hold of each block; native_cloud.py describes the function, and engine/networks/cloud_blocks.py has the mathematics. */

#include "native_vectors.c"

#include <stdlib.h>

enum { AXIS = 8, CELLS = 16, BLOCKS = AXIS * AXIS * AXIS, MARGIN = 4, BINS = CELLS + 2 * MARGIN, COARSE = 4, SIDE = BINS / COARSE };
enum { LINES = 9 * BINS, AREAS = 3 * SIDE * SIDE, VOLUME = SIDE * SIDE * SIDE, CONTENTS = LINES + AREAS + VOLUME + 1 };

/* The blocks that a point is in or near, at most eight, and its place in each in cells. */
static int members(const float *point, int *blocks, float (*places)[3]) {
    float cells[3];
    int own[3], other[3], known[3], count = 0;
    for (int a = 0; a < 3; a++) {
        cells[a] = (point[a] + 1.0f) * (AXIS * CELLS / 2);
        const float floor_of = floorf(cells[a] / CELLS), bounded = floor_of < 0 ? 0 : floor_of > AXIS - 1 ? AXIS - 1 : floor_of;
        const float rest = cells[a] - bounded * CELLS;
        own[a] = (int)bounded;
        other[a] = own[a] + (rest >= CELLS - MARGIN) - (rest < MARGIN);
        known[a] = other[a] != own[a] && other[a] >= 0 && other[a] < AXIS;
    }
    for (int near = 0; near < 8; near++) {
        int at[3], inside = 1;
        for (int a = 0; a < 3; a++) {
            const int chosen = near >> a & 1;
            inside &= known[a] | !chosen;
            at[a] = chosen ? other[a] : own[a];
            places[count][a] = cells[a] - (float)(at[a] * CELLS);
        }
        blocks[count] = (at[0] * AXIS + at[1]) * AXIS + at[2];
        count += inside;
    }
    return count;
}

typedef struct {
    float worth;
    int block;
} Rank;

static int by_worth(const void *a, const void *b) {
    const Rank *x = a, *y = b;
    return x->worth != y->worth ? (x->worth < y->worth ? 1 : -1) : x->block - y->block;
}

/* What it is worth to know each block. spread : of its points' normals, the sums of xx, yy, zz, xy, yz, zx */
static float worth_of(float held, const float *spread, float flat_worth) {
    const float sum = spread[0] + spread[1] + spread[2], total = sum > 1e-6f ? sum : 1e-6f;
    const float squares = spread[0] * spread[0] + spread[1] * spread[1] + spread[2] * spread[2];
    const float mixed = spread[3] * spread[3] + spread[4] * spread[4] + spread[5] * spread[5];
    return sqrtf(held) * (total > 1e-3f ? 1.0f + flat_worth - (squares + 2.0f * mixed) / (total * total) : 1.0f);
}

/* Adds a point to the contents of a block. */
static void add(float *contents, const float *place, const float *normal) {
    int bins[3];
    for (int a = 0; a < 3; a++) {
        const float bin = floorf(place[a] + MARGIN);
        bins[a] = bin < 0 ? 0 : bin > BINS - 1 ? BINS - 1 : (int)bin;
        const float to = normal[a] > 0 ? normal[a] : 0, from = normal[a] < 0 ? normal[a] : 0;
        float *line = contents + 3 * a * BINS + bins[a];
        line[0] += 1, line[BINS] += to * to, line[2 * BINS] += from * from;
    }
    const int x = bins[0] / COARSE, y = bins[1] / COARSE, z = bins[2] / COARSE;
    float *area = contents + LINES, *volume = area + AREAS;
    area[x * SIDE + y] += 1, area[SIDE * SIDE + y * SIDE + z] += 1, area[2 * SIDE * SIDE + z * SIDE + x] += 1;
    volume[(x * SIDE + y) * SIDE + z] += 1;
    contents[CONTENTS - 1] += 1;
}

static void of_cloud(const float *points, long many, long slots, float flat_worth, int64_t *ids, float *contents) {
    float held[BLOCKS] = {0}, spread[BLOCKS][6] = {{0}}, places[8][3];
    int blocks[8], slot_of[BLOCKS];
    for (long i = 0; i < many; i++) {
        const float *n = points + 6 * i + 3;
        const float pairs[6] = {n[0] * n[0], n[1] * n[1], n[2] * n[2], n[0] * n[1], n[1] * n[2], n[2] * n[0]};
        const int count = members(points + 6 * i, blocks, places);
        for (int m = 0; m < count; m++) {
            held[blocks[m]] += 1;
            for (int a = 0; a < 6; a++) spread[blocks[m]][a] += pairs[a];
        }
    }
    Rank ranks[BLOCKS];
    for (int b = 0; b < BLOCKS; b++) ranks[b] = (Rank){worth_of(held[b], spread[b], flat_worth), b}, slot_of[b] = -1;
    qsort(ranks, BLOCKS, sizeof *ranks, by_worth);
    long told = 0;
    for (; told < slots && ranks[told].worth > 0; told++) slot_of[ranks[told].block] = 0;
    for (long b = 0, slot = 0; b < BLOCKS; b++)
        if (!slot_of[b]) ids[slot] = b, slot_of[b] = (int)slot++;
    for (long slot = told; slot < slots; slot++) ids[slot] = -1;
    for (long i = 0; i < many; i++) {
        const int count = members(points + 6 * i, blocks, places);
        for (int m = 0; m < count; m++)
            if (slot_of[blocks[m]] >= 0) add(contents + slot_of[blocks[m]] * CONTENTS, places[m], points + 6 * i + 3);
    }
}

int cloud_contents_size(void) { return CONTENTS; }

/* points : [clouds, many, 6]; ids : [clouds, slots]; contents : [clouds, slots, CONTENTS], all zero before */
void cloud_contents(const float *points, long clouds, long many, long slots, float flat_worth, int64_t *ids, float *contents, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long c = 0; c < clouds; c++)
        of_cloud(points + c * many * 6, many, slots, flat_worth, ids + c * slots, contents + c * slots * CONTENTS);
}
