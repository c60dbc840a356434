/* The table of calibrated numbers, from the list in consts_list.h. */
#include "plan/consts.h"

#include <errno.h>
#include <string.h>

#include "base/number.h"

#define X(name, value, meaning, source) {#name, value, meaning, source},
static const struct ash_const table[] = {
#include "plan/consts_list.h"
};
#undef X

struct ash_consts ash_consts_default(void)
{
    return (struct ash_consts){
#define X(name, value, meaning, source) .name = (value),
#include "plan/consts_list.h"
#undef X
    };
}

size_t ash_const_count(void)
{
    return sizeof(table) / sizeof(table[0]);
}

struct ash_const ash_const_at(size_t index)
{
    return table[index < ash_const_count() ? index : 0];
}

static double *field(struct ash_consts *consts, size_t index)
{
    return (double *)consts + index; /* nothing but doubles, in the order of the list */
}

_Static_assert(sizeof(struct ash_consts) == sizeof(table) / sizeof(table[0]) * sizeof(double), "only doubles");

int ash_consts_set(struct ash_consts *consts, const char *assignment, struct ash_err *err)
{
    const char *equals = strchr(assignment, '=');
    size_t length = equals != NULL ? (size_t)(equals - assignment) : 0;
    double value;

    for (size_t i = 0; i < ash_const_count() && length > 0; i++) {
        if (strlen(table[i].name) != length || strncmp(table[i].name, assignment, length) != 0) continue;
        if (ash_number_parse(equals + 1, &value) < 0 || value < 0)
            return ash_err_set(err, -EINVAL, "constant %s: '%.40s' is not a number of 0 or more", table[i].name,
                               equals + 1);
        *field(consts, i) = value;
        return 0;
    }
    return ash_err_set(err, -EINVAL, "there is no constant '%.60s'; `ashlar plan constants` lists them", assignment);
}

int ash_consts_set_all(struct ash_consts *consts, const char *const *assignments, size_t count, struct ash_err *err)
{
    for (size_t i = 0; i < count; i++) {
        int rc = ash_consts_set(consts, assignments[i], err);
        if (rc < 0) return rc;
    }
    return 0;
}
