/* ranks: messages. They are broadcasts of whole numbers: one of ASH_RANKS_HEAD_WORDS, and one with the rest of a
 * longer message. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "serve/engine/ranks_priv.h"

#define WORD sizeof(int32_t)

/* Room for count words. Returns 0 or -ENOMEM. */
static int reserve(struct ash_ranks *ranks, size_t count, struct ash_err *err)
{
    size_t capacity = ash_max(count, 2 * ranks->capacity);
    int32_t *words;

    if (count <= ranks->capacity) return 0;
    words = realloc(ranks->words, capacity * sizeof(*words));
    if (words == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a message of %zu words", count);
    ranks->words = words;
    ranks->capacity = capacity;
    return 0;
}

int ash_ranks_begin(struct ash_ranks *ranks, enum ash_ranks_message kind, size_t count, struct ash_err *err)
{
    int rc = reserve(ranks, count + 2, err);

    ash_assert(count <= INT32_MAX - 2);
    if (rc < 0) return rc;
    ranks->words[0] = (int32_t)kind;
    ranks->words[1] = (int32_t)(count + 2);
    ranks->count = 2;
    return 0;
}

void ash_ranks_add(struct ash_ranks *ranks, size_t word)
{
    ash_assert(ranks->count < (size_t)ranks->words[1] && word <= INT32_MAX);
    ranks->words[ranks->count++] = (int32_t)word;
}

void ash_ranks_add_all(struct ash_ranks *ranks, const int32_t *words, size_t count)
{
    ash_assert(ranks->count + count <= (size_t)ranks->words[1]);
    memcpy(ranks->words + ranks->count, words, count * sizeof(*words));
    ranks->count += count;
}

/* The head; whose count all ranks know then, and the rest. */
int ash_ranks_broadcast(struct ash_ranks *ranks, struct ash_err *err)
{
    int rc = ash_group_broadcast(ranks->group, ranks->words, ASH_RANKS_HEAD_WORDS * sizeof(*ranks->words), 0, err);
    size_t count;

    if (rc < 0) return rc;
    count = (size_t)ranks->words[1];
    if (count <= ASH_RANKS_HEAD_WORDS) return 0;
    rc = reserve(ranks, count, err);
    if (rc < 0) return rc;
    return ash_group_broadcast(ranks->group, ranks->words + ASH_RANKS_HEAD_WORDS,
                               (count - ASH_RANKS_HEAD_WORDS) * sizeof(*ranks->words), 0, err);
}

int ash_ranks_send(struct ash_ranks *ranks, struct ash_err *err)
{
    ash_assert(ranks->count == (size_t)ranks->words[1] && ash_group_rank(ranks->group) == 0);
    return ash_ranks_broadcast(ranks, err);
}

size_t ash_ranks_text_words(const char *text)
{
    return ash_div_up(strlen(text) + 1, WORD);
}

void ash_ranks_add_text(struct ash_ranks *ranks, const char *text)
{
    size_t words = ash_ranks_text_words(text);

    ash_assert(ranks->count + words <= (size_t)ranks->words[1]);
    memset(ranks->words + ranks->count, 0, words * WORD);
    memcpy(ranks->words + ranks->count, text, strlen(text));
    ranks->count += words;
}

int ash_ranks_agree(struct ash_ranks *ranks, int rc, struct ash_err *err)
{
    struct ash_ranks_outcome mine = {.rc = rc};
    size_t own = ash_group_rank(ranks->group);

    if (rc < 0) snprintf(mine.text, sizeof(mine.text), "%s", err->text);
    rc = ash_group_all_gather(ranks->group, &mine, ranks->outcomes, sizeof(mine), err);
    if (rc < 0) return rc;
    for (size_t r = 0; r < ash_group_size(ranks->group); r++) {
        const struct ash_ranks_outcome *other = &ranks->outcomes[r];

        if (other->rc < 0 && r != own) return ash_err_set(err, other->rc, "rank %zu: %.*s", r, 400, other->text);
        if (other->rc < 0) return other->rc;
    }
    return 0;
}

void ash_ranks_send_plain(struct ash_ranks *ranks, enum ash_ranks_message kind)
{
    struct ash_err ignored = {0};

    if (ranks == NULL || ash_group_rank(ranks->group) > 0 || ash_group_check(ranks->group, &ignored) < 0) return;
    if (ash_ranks_begin(ranks, kind, 0, &ignored) == 0) (void)ash_ranks_send(ranks, &ignored);
}

int ash_ranks_send_page(struct ash_ranks *ranks, enum ash_ranks_message kind, int32_t page, struct ash_err *err)
{
    int rc = ash_ranks_begin(ranks, kind, 1, err);

    if (rc < 0) return rc;
    ash_ranks_add(ranks, (size_t)page);
    return ash_ranks_send(ranks, err);
}
