/* fingerprint - equal ones mean equal answers to equal requests. */
#ifndef ASH_SERVE_FINGERPRINT_H
#define ASH_SERVE_FINGERPRINT_H

#include <stdint.h>
#include "ashlar/ashlar.h"

/* Hash the files of the engine's weights (of remote ones their identity), its tokenizer, the arithmetic
 * of its backend, precision, and the type that keys and values are rounded to. Reads all weights, which takes longer
 * than to open them. Returns 0 or the error of a file. */
int ash_engine_fingerprint(struct ash_engine *engine, uint64_t *hash_out, struct ash_err *err);
/* The same with the weights in another folder or file. */
int ash_engine_fingerprint_of(struct ash_engine *engine, const char *dir, uint64_t *hash_out, struct ash_err *err);

#endif
