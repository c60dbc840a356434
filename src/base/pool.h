/* pool - objects of one size that come and go for as long as the program runs. All memory is taken at open. One owner
 * thread. */
#ifndef ASH_BASE_POOL_H
#define ASH_BASE_POOL_H

#include <stddef.h>
#include "ashlar/err.h"

struct ash_pool;

/* Room for limit (> 0) objects of object_bytes (> 0), each aligned to 64 bytes. what names them in messages
 * ("requests"; borrowed). Returns 0, -EINVAL or -ENOMEM. */
int ash_pool_open(const char *what, size_t object_bytes, size_t limit, struct ash_pool **pool_out, struct ash_err *err);
/* Free everything, objects still out too. NULL is a no-op. */
void ash_pool_close(struct ash_pool *pool);

/* An object with undefined contents. NULL and -EAGAIN in err (may be NULL), with the limit in the sentence, when all
 * are out. */
void *ash_pool_get(struct ash_pool *pool, struct ash_err *err);
/* Give an object back; NULL is a no-op. Not one of this pool's, or one that was given back before, is a programmer
 * error. */
void ash_pool_put(struct ash_pool *pool, void *object);
/* Objects that are out now. */
size_t ash_pool_used_count(const struct ash_pool *pool);

#endif
