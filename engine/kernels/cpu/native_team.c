/* How many threads a parallel region gets: all, or fewer while other programs hold the cores.

   The threads of a pass wait for each other some fifty times. If another program has the core of one of them, each of these waits can last
   until the scheduler gives the core back: milliseconds, in a pass of half a millisecond. So a region's first thread tells how long it
   waited for the others: before its own share, because the runtime starts a region when all threads have left the last one, and after it.
   If it was long, regions get one thread fewer for a rest, then one more is tried; each failed
   try doubles the rest. What a region computes does not depend on it: shares are of whole rows, columns or heads. */

#include "native_team.h"

#include <time.h>

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

int64_t moment(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static Team of_this_process; /* the cores are one thing that all runs of a process share */

int team(int threads) { return threads <= 1 ? threads : team_at(&of_this_process, threads, moment()); }

Share share_of(int threads) { return (Share){threads, threads > 1 ? moment() : 0, 0, 0}; }

void waited(const Share *share) {
    if (share->threads <= 1) return;
    const int64_t now = moment();
    waited_at(&of_this_process, share->threads, share->done - share->began, share->began - share->came + now - share->done, now);
}
