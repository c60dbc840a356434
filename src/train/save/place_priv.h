/* place_priv - the struct of a place, for its own files. */
#ifndef ASH_TRAIN_PLACE_PRIV_H
#define ASH_TRAIN_PLACE_PRIV_H

#include "train/save/place.h"

struct ash_place {
    struct ash_tier *tier;
    char url[];
};

/* "step-000010/FILE" into key. Returns 0 or -ENAMETOOLONG. */
int ash_place_key(uint64_t step, const char *file, char key[ASH_TIER_KEY_BYTES], struct ash_err *err);

#endif
