/* examples_priv - names that reader, writer and fuzz target share. */
#ifndef ASH_TRAIN_EXAMPLES_PRIV_H
#define ASH_TRAIN_EXAMPLES_PRIV_H

#include "train/data/examples.h"

#define ASH_EXAMPLES_FORMAT "ashlar-examples-1"

/* ash_examples_open over bytes in memory, borrowed until close. name is for messages. */
int ash_examples_parse(const void *data, size_t size_bytes, const char *name, struct ash_examples **examples_out,
                       struct ash_err *err);

#endif
