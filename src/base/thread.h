/* thread - threads that leave signals alone, and waits that follow the monotonic clock. */
#ifndef ASH_BASE_THREAD_H
#define ASH_BASE_THREAD_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

/* Start a joinable thread with all signals blocked: signals belong to the threads that know what to do with them.
 * Returns 0 or the negative error of pthread_create; thread_out is valid on 0 only. */
int ash_thread_start(pthread_t *thread_out, void *(*main)(void *arg), void *arg);

/* A condition variable whose timed waits follow the monotonic clock. Returns 0 or a negative errno; release it with
 * pthread_cond_destroy. */
int ash_cond_init(pthread_cond_t *cond);
/* A point in time for pthread_cond_timedwait on such a variable: `ns` nanoseconds from now. */
struct timespec ash_cond_deadline(uint64_t ns);

#endif
