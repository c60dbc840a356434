/* think: which token ends thoughts, and how many there are. */
#include "serve/engine/think.h"

#include <errno.h>
#include <string.h>

int ash_think_words_init(struct ash_think_words *words, const char *end, const char *more,
                         const struct ash_tokenizer *tokenizer, struct ash_err *err)
{
    struct ash_think_words found = {0};
    int rc;

    if (end == NULL) end = "</think>";
    if (more == NULL) more = "Wait";
    found.end_id = ash_tokenizer_id(tokenizer, end);
    if (found.end_id < 0)
        return ash_err_set(err, -ENOTSUP,
                           "the tokenizer has no token '%s' that ends thoughts: a budget needs a model that thinks",
                           end);
    rc = ash_tokenizer_encode(tokenizer, more, strlen(more), false, &found.more, err);
    if (rc == 0 && found.more.count == 0) rc = ash_err_set(err, -EINVAL, "nothing to continue thoughts with");
    if (rc < 0) {
        ash_think_words_fini(&found);
        return rc;
    }
    *words = found;
    return 0;
}

void ash_think_words_fini(struct ash_think_words *words)
{
    ash_ids_fini(&words->more);
    *words = (struct ash_think_words){0};
}

int ash_think_check(size_t min, size_t max, struct ash_err *err)
{
    if (max == 0 || min <= max) return 0;
    return ash_err_set(err, -EINVAL, "at least %zu and at most %zu tokens of thoughts: that cannot be", min, max);
}

struct ash_think ash_think_start(const struct ash_think_words *words, size_t min, size_t max)
{
    return (struct ash_think){.words = words, .min = min, .max = max, .is_open = min > 0 || max > 0};
}

int32_t ash_think_choose(struct ash_think *think, int32_t id, bool is_stop)
{
    const struct ash_think_words *words = think->words;

    if (!think->is_open) return id;
    if (think->pending > 0) {
        id = words->more.data[words->more.count - think->pending--];
    } else if (think->max > 0 && think->count >= think->max) {
        think->is_open = false;
        return words->end_id;
    } else if (id == words->end_id || is_stop) {
        think->is_open = think->count < think->min;
        if (!think->is_open) return id;
        id = words->more.data[0];
        think->pending = words->more.count - 1;
    }
    think->count++;
    return id;
}
