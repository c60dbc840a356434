/* think: which token ends thoughts, and how many there are. */
#include "serve/think.h"

#include <errno.h>
#include <string.h>

static int find_words(struct ash_think *think, const struct ash_think_opts *opts, const struct ash_tokenizer *tokenizer,
                      struct ash_err *err)
{
    const char *end = opts->end != NULL ? opts->end : "</think>", *more = opts->more != NULL ? opts->more : "Wait";
    int rc;

    think->end_id = ash_tokenizer_id(tokenizer, end);
    if (think->end_id < 0)
        return ash_err_set(err, -ENOTSUP,
                           "the tokenizer has no token '%s' that ends thoughts: a budget needs a model that thinks",
                           end);
    if (ash_ids_add(&think->end, think->end_id) < 0) return ash_err_set(err, -ENOMEM, "out of memory");
    rc = ash_tokenizer_encode(tokenizer, more, strlen(more), false, &think->more, err);
    if (rc == 0 && think->more.count == 0) rc = ash_err_set(err, -EINVAL, "nothing to continue thoughts with");
    return rc;
}

int ash_think_init(struct ash_think *think, const struct ash_think_opts *opts, const struct ash_tokenizer *tokenizer,
                   struct ash_err *err)
{
    struct ash_think fresh = {.min = opts->min, .max = opts->max, .end_id = -1};
    int rc = 0;

    if (opts->max > 0 && opts->min > opts->max)
        return ash_err_set(err, -EINVAL, "at least %zu and at most %zu tokens of thoughts: that cannot be", opts->min,
                           opts->max);
    if (opts->min > 0 || opts->max > 0) rc = find_words(&fresh, opts, tokenizer, err);
    if (rc < 0) {
        ash_think_fini(&fresh);
        return rc;
    }
    *think = fresh;
    return 0;
}

void ash_think_fini(struct ash_think *think)
{
    ash_ids_fini(&think->more);
    ash_ids_fini(&think->end);
}

void ash_think_start(struct ash_think *think)
{
    think->is_open = think->min > 0 || think->max > 0;
    think->count = 0;
    think->forced = NULL;
}

bool ash_think_refuses(struct ash_think *think, int32_t id)
{
    if (!think->is_open) return false;
    if (id != think->end_id) {
        think->count++;
        if (think->max > 0 && think->count >= think->max) think->forced = &think->end;
        return false;
    }
    if (think->count < think->min)
        think->forced = &think->more;
    else
        think->is_open = false;
    return think->is_open;
}

void ash_think_end(struct ash_think *think)
{
    if (think->is_open && think->forced == NULL && think->count < think->min) think->forced = &think->more;
}

void ash_think_forced(struct ash_think *think)
{
    if (think->forced == &think->end)
        think->is_open = false;
    else
        think->count += think->more.count;
    think->forced = NULL;
    if (think->is_open && think->max > 0 && think->count >= think->max) think->forced = &think->end;
}
