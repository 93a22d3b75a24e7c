/* The structures and functions of blocks.c. cffi reads this file, so they are declared once: engine/kernels/cpu/blocks.py fills them. */

#define LAYERS 6 /* the most that a block has */

enum { AS_IT_IS, ROOT_MEAN_SQUARE, LAYER_NORM, SILU_GATE, GELU_GATE }; /* kinds of a Norm: what a row is before it is multiplied */

/* weight, bias : of a norm; constant : its epsilon, or what is added to the length of a row */
typedef struct {
    int kind;
    const float *weight, *bias;
    float constant;
} Norm;

/* panels : weights as `panels` in blocks.py lays them; inner, outer : numbers of a row before and after */
typedef struct {
    const void *panels;
    const float *bias;
    long inner, outer;
} Layer;

/* The low-rank update of a layer: out += (x A^T) B^T. down, up : A [rank, inner] and B [outer, rank] in panels of float32, or null: none */
typedef struct {
    const float *down, *up;
    long rank;
} Update;

/* A block. Pictures: queries, keys and values; attention's output; gate and up; feed-forward output. Meshes: the same, but after attention
   query and output of the attention to a condition.
   norms : before the first layer, before the query of a condition, and before the feed-forward part; count : of layers
   query, key : weights of a head's root-mean-square norms, or null: rows are brought to length 1
   floor : is added to a head's length; scale : of products of queries and keys; half : products are bfloat16 */
typedef struct {
    Norm norms[3];
    Layer layers[LAYERS];
    int count, half;
    const float *query, *key;
    float floor, scale;
} Block;

/* The rows of one run in a pass: `branches` times `count` of them.
   keys, values : of the first block; head h of branch b at b * branch_stride + h * head_stride; `kept` rows of it are visible; those of the
   next block lie layer_stride bytes behind; half : they are bfloat16
   cosines, sines : [count, head width], whose first halves turn the pairs (i, i + width / 2), or null
   seen : [count, kept + count] or null: everything, or with `chain` all keys up to the row's own
   crossed : keys and values of a condition, block by block, float32, or null for pictures; cross_... : as above */
typedef struct {
    long branches, count, kept;
    void *keys, *values;
    long layer_stride, branch_stride, head_stride;
    int half, chain;
    const float *cosines, *sines;
    const uint8_t *seen;
    const void *const *crossed;
    long cross_count, cross_branch_stride, cross_head_stride;
} Run;

/* x : [rows, width], before and after, in place; the rows of a run lie behind those of the run before it
   work : room, work_of numbers
   updates : of an adapter, block by block LAYERS of them, for the rows of each branch of the first run from `first` on; or null
   last : the norm after the last block, or null */
typedef struct {
    float *x, *work;
    long rows, width, heads;
    const Run *runs;
    long run_count;
    const Update *updates;
    long first;
    const Norm *last;
    int threads;
} Pass;

long work_of(const Block *blocks, long count, const Pass *pass);
void all_blocks(const Block *blocks, long count, const Pass *pass);

/* out [rows, outer] = x [rows, inner] W^T + bias; scratch : as many numbers as x */
void product_of(const float *x, long rows, const Layer *layer, int half, float *scratch, float *out, int threads);

/* Threads of this process: until, rest : nanoseconds, when one thread more is tried, and how long the last rest was; most : threads that a
   region gets until then, 0: all */
typedef struct {
    int64_t until, rest;
    int most;
} Team;

int team_at(Team *team, int threads, int64_t now);
void waited_at(Team *team, int threads, int64_t work, int64_t waiting, int64_t now);

int lanes(void);
int multiplies_half(void);
int ask_for_units(void);
