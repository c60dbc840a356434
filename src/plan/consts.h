/* consts - every calibrated number of the cost model, in one table with meaning and source. The model has no other
 * tuned figure. `ashlar plan constants` prints them; --set name=value changes one for a run. */
#ifndef ASH_PLAN_CONSTS_H
#define ASH_PLAN_CONSTS_H

#include <stddef.h>
#include "ashlar/err.h"

/* The names and values are the X-macro list in consts_list.h. */
struct ash_consts {
#define X(name, value, meaning, source) double name;
#include "plan/consts_list.h"
#undef X
};

struct ash_const {
    const char *name;
    double value;
    const char *meaning, *source;
};

/* The calibrated values. */
struct ash_consts ash_consts_default(void);
/* How many there are. */
size_t ash_const_count(void);
/* One of them; index is below ash_const_count. */
struct ash_const ash_const_at(size_t index);
/* "name=value" into consts. An unknown name or a value that is no finite number >= 0 is -EINVAL. */
int ash_consts_set(struct ash_consts *consts, const char *assignment, struct ash_err *err);
/* Several of them, as a flag collects them; the first that fails ends it. */
int ash_consts_set_all(struct ash_consts *consts, const char *const *assignments, size_t count, struct ash_err *err);

#endif
