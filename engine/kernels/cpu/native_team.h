/* How many threads a parallel region gets; native_team.c describes it. */

#include <stdint.h>

typedef struct {
    int64_t until, rest; /* nanoseconds: when one thread more is tried, and how long the last rest was */
    int most;            /* threads that a region gets until then; 0: all */
} Team;

int team_at(Team *team, int threads, int64_t now);
void waited_at(Team *team, int threads, int64_t work, int64_t waiting, int64_t now);

int64_t moment(void);
int team(int threads);

/* What a region's first thread saw, in nanoseconds: it came to the region, it began its share, it had done its share. */
typedef struct {
    int threads;
    int64_t came, began, done;
} Share;

Share share_of(int threads);
void waited(const Share *share);
