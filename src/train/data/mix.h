/* mix - several data folders as one, by weights of their tokens. Documents of a source come in an order that seed and
 * epoch decide; which source is next is the one that lags behind its weight most. So the mixture is a pure function of
 * sources, weights and seed, and every beginning of it has the weights. */
#ifndef ASH_TRAIN_MIX_H
#define ASH_TRAIN_MIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

#define ASH_MIX_SOURCES_MAX 64

struct ash_mix_source {
    const char *dir;
    double weight;   /* > 0; weights need no sum of 1 */
    uint64_t tokens; /* out: written of it */
    double epochs;   /* out: how often that is all of it */
};

struct ash_mix_opts {
    uint64_t seed;
    uint64_t tokens;     /* to write, at least; 0: until the first source is at its end once */
    size_t shard_tokens; /* > 0 */
    bool overwrite;
};

/* Write the mixture of sources [count] to dir, with the tokenizer of the first; all must have the same one. Returns
 * 0, 1 (dir holds exactly this already), or an error that names the source. */
int ash_mix_write(struct ash_mix_source *sources, size_t count, const struct ash_mix_opts *opts, const char *dir,
                  struct ash_err *err);

#endif
