/* library_file - what was found out about the vendor's products, kept for later processes: a file in the user's cache
 * folder for each GPU, driver and version of the library. It is a cache: a file that is damaged, of another kind or not
 * there has no choices. */
#ifndef ASH_COMPUTE_CUDA_LIBRARY_FILE_H
#define ASH_COMPUTE_CUDA_LIBRARY_FILE_H

#include <stdint.h>
#include "infra/device/cublaslt.h"
#include "infra/device/cuda.h"

#define ASH_LIBRARY_CHOICES_MAX 256 /* of a file */

/* How products of a shape are computed. */
struct ash_library_choice {
    struct ash_lt_shape shape;
    struct ash_lt_algo algo;
    uint64_t agrees; /* 0: by our own kernel; 1: by this algorithm */
};

/* What choices depend on. Zeroed before it is filled. */
struct ash_library_key {
    char gpu[ASH_CUDA_NAME_BYTES];
    uint64_t driver, library;
};

struct ash_library_choices {
    size_t count;
    struct ash_library_choice list[ASH_LIBRARY_CHOICES_MAX]; /* the newest first */
};

/* Bytes of a file with this many choices. */
size_t ash_library_file_bytes(size_t count);
/* Write the bytes of a file to out [ash_library_file_bytes(choices->count)]. */
void ash_library_file_encode(const struct ash_library_key *key, const struct ash_library_choices *choices, void *out);
/* The choices of a file's bytes: none unless they are whole and of this key. */
void ash_library_file_decode(const void *data, size_t size_bytes, const struct ash_library_key *key,
                             struct ash_library_choices *choices_out);
/* Put `more` (at most ASH_LIBRARY_CHOICES_MAX) before the choices, in the place of those of the same shapes. What is
 * too much at the end goes. */
void ash_library_choices_merge(struct ash_library_choices *choices, const struct ash_library_choice *more,
                               size_t count);

/* Read the file of a key, which is in ash_cache_dir. */
void ash_library_file_read(const struct ash_library_key *key, struct ash_library_choices *choices_out);
/* Merge choices into it, in one step that readers see whole or not at all. What another process writes between reading
 * and replacing is lost, and found out again. Where it cannot be written, nothing happens. */
void ash_library_file_add(const struct ash_library_key *key, const struct ash_library_choice *more, size_t count);

#endif
