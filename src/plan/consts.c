/* The table of calibrated numbers, from the list in consts_list.h. */
#include "plan/consts.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/number.h"
#include "base/spelling.h"

#define NAME_SHOWN 60 /* bytes of a name in a message */

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

/* The name that is spelt most like the first length bytes of text. */
static const char *nearest(const char *text, size_t length)
{
    char name[NAME_SHOWN + 1];
    size_t best = 0, least = SIZE_MAX;

    snprintf(name, sizeof(name), "%.*s", (int)(length < NAME_SHOWN ? length : NAME_SHOWN), text);
    for (size_t i = 0; i < ash_const_count(); i++) {
        size_t distance = ash_spelling_distance(name, table[i].name);

        if (distance >= least) continue;
        best = i;
        least = distance;
    }
    ash_assert(best < ash_const_count());
    return table[best].name;
}

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
    if (equals == NULL)
        return ash_err_set(err, -EINVAL, "constant '%.60s': write name=value (`ashlar plan constants` lists them)",
                           assignment);
    return ash_err_set(err, -EINVAL,
                       "there is no constant '%.*s'; did you mean %s? (`ashlar plan constants` lists them)",
                       (int)(length < NAME_SHOWN ? length : NAME_SHOWN), assignment, nearest(assignment, length));
}

int ash_consts_set_all(struct ash_consts *consts, const char *const *assignments, size_t count, struct ash_err *err)
{
    for (size_t i = 0; i < count; i++) {
        int rc = ash_consts_set(consts, assignments[i], err);
        if (rc < 0) return rc;
    }
    return 0;
}
