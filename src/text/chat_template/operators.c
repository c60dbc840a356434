/* Operators between values: arithmetic, joining, comparing. The rules are Python's. */
#include "text/chat_template/jinja_priv.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */

static bool is_integer(struct ash_jinja_value value)
{
    return value.kind == ASH_JINJA_INT || value.kind == ASH_JINJA_BOOL;
}

static bool is_number(struct ash_jinja_value value)
{
    return is_integer(value) || value.kind == ASH_JINJA_FLOAT;
}

static bool is_string(struct ash_jinja_value value)
{
    return value.kind == ASH_JINJA_STRING;
}

static bool is_list(struct ash_jinja_value value)
{
    return value.kind == ASH_JINJA_LIST;
}

static int64_t integer_of(struct ash_jinja_value value)
{
    return value.kind == ASH_JINJA_INT ? value.integer : value.flag;
}

static double real_of(struct ash_jinja_value value)
{
    return value.kind == ASH_JINJA_FLOAT ? value.real : (double)integer_of(value);
}

static int integer_power(struct ash_jinja_run *run, int64_t base, int64_t exponent, struct ash_jinja_value *out)
{
    int64_t result = 1;

    if (exponent < 0) {
        *out = ash_jinja_float(pow((double)base, (double)exponent));
        return 0;
    }
    for (; exponent > 0; exponent--) {
        if (__builtin_mul_overflow(result, base, &result))
            return ash_jinja_fail(run, -EOVERFLOW, "a number is too large");
        if (result == 0 || (result == 1 && base == 1)) break;
        if (base == -1 && exponent > 2) exponent = 2 + exponent % 2;
    }
    *out = ash_jinja_int(result);
    return 0;
}

/* Python rounds quotients down, and a remainder has the sign of the divisor. */
static int integer_divide(struct ash_jinja_run *run, enum ash_jinja_op op, int64_t left, int64_t right,
                          struct ash_jinja_value *out)
{
    int64_t quotient, remainder;

    if (right == 0) return ash_jinja_fail(run, -EINVAL, "division by zero");
    if (left == INT64_MIN && right == -1) return ash_jinja_fail(run, -EOVERFLOW, "a number is too large");
    quotient = left / right;
    remainder = left % right;
    if (remainder != 0 && (remainder < 0) != (right < 0)) {
        quotient--;
        remainder += right;
    }
    *out = ash_jinja_int(op == ASH_JINJA_MOD ? remainder : quotient);
    return 0;
}

static int integer_binary(struct ash_jinja_run *run, enum ash_jinja_op op, int64_t left, int64_t right,
                          struct ash_jinja_value *out)
{
    int64_t result = 0;
    bool over = false;

    switch (op) {
    case ASH_JINJA_ADD:
        over = __builtin_add_overflow(left, right, &result);
        break;
    case ASH_JINJA_SUB:
        over = __builtin_sub_overflow(left, right, &result);
        break;
    case ASH_JINJA_MUL:
        over = __builtin_mul_overflow(left, right, &result);
        break;
    case ASH_JINJA_DIV:
        if (right == 0) return ash_jinja_fail(run, -EINVAL, "division by zero");
        *out = ash_jinja_float((double)left / (double)right);
        return 0;
    case ASH_JINJA_POW:
        return integer_power(run, left, right, out);
    default:
        return integer_divide(run, op, left, right, out);
    }
    if (over) return ash_jinja_fail(run, -EOVERFLOW, "a number is too large");
    *out = ash_jinja_int(result);
    return 0;
}

static int real_binary(struct ash_jinja_run *run, enum ash_jinja_op op, double left, double right,
                       struct ash_jinja_value *out)
{
    double result = 0;

    if (right == 0 && (op == ASH_JINJA_DIV || op == ASH_JINJA_FLOORDIV || op == ASH_JINJA_MOD))
        return ash_jinja_fail(run, -EINVAL, "division by zero");
    switch (op) {
    case ASH_JINJA_ADD:
        result = left + right;
        break;
    case ASH_JINJA_SUB:
        result = left - right;
        break;
    case ASH_JINJA_MUL:
        result = left * right;
        break;
    case ASH_JINJA_DIV:
        result = left / right;
        break;
    case ASH_JINJA_FLOORDIV:
        result = floor(left / right);
        break;
    case ASH_JINJA_POW:
        result = pow(left, right);
        break;
    default:
        result = fmod(left, right);
        if (result != 0 && (result < 0) != (right < 0)) result += right;
    }
    *out = ash_jinja_float(result);
    return 0;
}

static int join_texts(struct ash_jinja_run *run, struct ash_jinja_text left, struct ash_jinja_text right,
                      struct ash_jinja_value *out)
{
    char *joined = ash_jinja_alloc(run, left.size_bytes + right.size_bytes + 1);

    if (joined == NULL) return -ENOMEM;
    if (left.size_bytes > 0) memcpy(joined, left.data, left.size_bytes);
    if (right.size_bytes > 0) memcpy(joined + left.size_bytes, right.data, right.size_bytes);
    *out = ash_jinja_string((struct ash_jinja_text){joined, left.size_bytes + right.size_bytes});
    return 0;
}

static int concat(struct ash_jinja_run *run, struct ash_jinja_value left, struct ash_jinja_value right,
                  struct ash_jinja_value *out)
{
    int rc = ash_jinja_to_string(run, left, &left);

    if (rc < 0) return rc;
    rc = ash_jinja_to_string(run, right, &right);
    return rc < 0 ? rc : join_texts(run, left.text, right.text, out);
}

static int add_lists(struct ash_jinja_run *run, struct ash_jinja_value left, struct ash_jinja_value right,
                     struct ash_jinja_value *out)
{
    struct ash_jinja_value sum;
    int rc = ash_jinja_list_new(run, &sum);

    for (size_t i = 0; rc == 0 && i < left.list->count; i++)
        rc = ash_jinja_list_add(run, sum.list, left.list->items[i]);
    for (size_t i = 0; rc == 0 && i < right.list->count; i++)
        rc = ash_jinja_list_add(run, sum.list, right.list->items[i]);
    *out = sum;
    return rc;
}

static int repeat_text(struct ash_jinja_run *run, struct ash_jinja_text text, int64_t count,
                       struct ash_jinja_value *out)
{
    char *repeated;

    if (count < 0) count = 0;
    if (text.size_bytes > 0 && (uint64_t)count > ASH_JINJA_OUTPUT_BYTES_MAX / text.size_bytes)
        return ash_jinja_fail(run, -E2BIG, "a string is repeated too often");
    repeated = ash_jinja_alloc(run, text.size_bytes * (size_t)count + 1);
    if (repeated == NULL) return -ENOMEM;
    for (int64_t i = 0; text.size_bytes > 0 && i < count; i++)
        memcpy(repeated + text.size_bytes * (size_t)i, text.data, text.size_bytes);
    *out = ash_jinja_string((struct ash_jinja_text){repeated, text.size_bytes * (size_t)count});
    return 0;
}

static int add_texts(struct ash_jinja_run *run, struct ash_jinja_value left, struct ash_jinja_value right,
                     struct ash_jinja_value *out)
{
    return join_texts(run, left.text, right.text, out);
}

static int repeat_left(struct ash_jinja_run *run, struct ash_jinja_value left, struct ash_jinja_value right,
                       struct ash_jinja_value *out)
{
    return repeat_text(run, left.text, integer_of(right), out);
}

static int repeat_right(struct ash_jinja_run *run, struct ash_jinja_value left, struct ash_jinja_value right,
                        struct ash_jinja_value *out)
{
    return repeat_text(run, right.text, integer_of(left), out);
}

/* What + and * mean for values that are not both numbers. */
static const struct {
    enum ash_jinja_op op;
    bool (*takes_left)(struct ash_jinja_value value);
    bool (*takes_right)(struct ash_jinja_value value);
    int (*run)(struct ash_jinja_run *run, struct ash_jinja_value left, struct ash_jinja_value right,
               struct ash_jinja_value *out);
} rules[] = {
    {ASH_JINJA_ADD, is_string, is_string, add_texts},
    {ASH_JINJA_ADD, is_list, is_list, add_lists},
    {ASH_JINJA_MUL, is_string, is_integer, repeat_left},
    {ASH_JINJA_MUL, is_integer, is_string, repeat_right},
};

static int refuse_operands(struct ash_jinja_run *run, struct ash_jinja_value left, struct ash_jinja_value right)
{
    bool is_left = left.kind == ASH_JINJA_UNDEFINED, is_right = right.kind == ASH_JINJA_UNDEFINED;
    struct ash_jinja_text name = is_left ? left.text : right.text;

    if (!is_left && !is_right)
        return ash_jinja_fail(run, -EINVAL, "%s and %s do not go together here", ash_jinja_kind_name(left),
                              ash_jinja_kind_name(right));
    return ash_jinja_fail(run, -EINVAL, "'%.*s' is undefined", (int)ash_min(name.size_bytes, 64),
                          name.data != NULL ? name.data : "");
}

int ash_jinja_binary(struct ash_jinja_run *run, enum ash_jinja_op op, struct ash_jinja_value left,
                     struct ash_jinja_value right, struct ash_jinja_value *out)
{
    if (op == ASH_JINJA_CONCAT) return concat(run, left, right, out);
    if (is_integer(left) && is_integer(right)) return integer_binary(run, op, integer_of(left), integer_of(right), out);
    if (is_number(left) && is_number(right)) return real_binary(run, op, real_of(left), real_of(right), out);
    for (size_t i = 0; i < ASH_COUNT(rules); i++)
        if (rules[i].op == op && rules[i].takes_left(left) && rules[i].takes_right(right))
            return rules[i].run(run, left, right, out);
    return refuse_operands(run, left, right);
}

/* ---- comparisons ------------------------------------------------------------------------------------------------- */

static int contains(struct ash_jinja_run *run, struct ash_jinja_value item, struct ash_jinja_value where, bool *out)
{
    struct ash_jinja_text key;
    int rc;

    *out = false;
    switch (where.kind) {
    case ASH_JINJA_STRING:
        if (item.kind != ASH_JINJA_STRING)
            return ash_jinja_fail(run, -EINVAL, "only a string can be in a string, not %s", ash_jinja_kind_name(item));
        if (ash_jinja_spend(run, where.text.size_bytes) < 0) return -EOVERFLOW;
        *out = item.text.size_bytes == 0 ||
               memmem(where.text.data, where.text.size_bytes, item.text.data, item.text.size_bytes) != NULL;
        return 0;
    case ASH_JINJA_LIST:
        for (size_t i = 0; i < where.list->count && !*out; i++)
            *out = ash_jinja_equal(item, where.list->items[i], 0);
        return 0;
    case ASH_JINJA_DICT:
        if (item.kind != ASH_JINJA_STRING && item.kind != ASH_JINJA_INT) return 0;
        rc = ash_jinja_key(run, item, &key);
        *out = rc == 0 && ash_jinja_dict_get(where.dict, key) != NULL;
        return rc;
    case ASH_JINJA_UNDEFINED:
        return 0;
    default:
        return ash_jinja_fail(run, -EINVAL, "nothing can be in %s", ash_jinja_kind_name(where));
    }
}

/* Less than 0, 0 or more, as left comes before right, is equal or comes after it. */
static int order(struct ash_jinja_run *run, struct ash_jinja_value left, struct ash_jinja_value right, int *out)
{
    if (is_integer(left) && is_integer(right)) {
        *out = (integer_of(left) > integer_of(right)) - (integer_of(left) < integer_of(right));
        return 0;
    }
    if (is_number(left) && is_number(right)) {
        *out = (real_of(left) > real_of(right)) - (real_of(left) < real_of(right));
        return 0;
    }
    if (is_string(left) && is_string(right)) {
        size_t size = ash_min(left.text.size_bytes, right.text.size_bytes);
        *out = size > 0 ? memcmp(left.text.data, right.text.data, size) : 0;
        if (*out == 0)
            *out = (left.text.size_bytes > right.text.size_bytes) - (left.text.size_bytes < right.text.size_bytes);
        return 0;
    }
    return ash_jinja_fail(run, -EINVAL, "%s and %s have no order", ash_jinja_kind_name(left),
                          ash_jinja_kind_name(right));
}

int ash_jinja_compare(struct ash_jinja_run *run, enum ash_jinja_op op, struct ash_jinja_value left,
                      struct ash_jinja_value right, bool *out)
{
    int side = 0, rc = 0;

    if (left.kind == ASH_JINJA_STRING && ash_jinja_spend(run, left.text.size_bytes) < 0) return -EOVERFLOW;
    if (op == ASH_JINJA_EQ || op == ASH_JINJA_NE) {
        *out = ash_jinja_equal(left, right, 0) == (op == ASH_JINJA_EQ);
        return 0;
    }
    if (op == ASH_JINJA_IN || op == ASH_JINJA_NOT_IN) {
        rc = contains(run, left, right, out);
        if (op == ASH_JINJA_NOT_IN) *out = !*out;
        return rc;
    }
    rc = order(run, left, right, &side);
    *out = op == ASH_JINJA_LT ? side < 0 : op == ASH_JINJA_LE ? side <= 0 : op == ASH_JINJA_GT ? side > 0 : side >= 0;
    return rc;
}
