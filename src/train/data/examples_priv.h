/* examples_priv - names that reader, writer and fuzz target share. */
#ifndef ASH_TRAIN_EXAMPLES_PRIV_H
#define ASH_TRAIN_EXAMPLES_PRIV_H

#include "train/data/examples.h"

#define ASH_EXAMPLES_FORMAT "ashlar-examples-1"

#endif
