/* The memory that one call works in. The tokenizer keeps the unused ones, so threads that encode at once each get
 * their own and later calls find a warm word cache; at rest there are as many as there were calls at the same time. */
#include "text/tokenizer/tokenizer_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"

#define JIT_STACK_BYTES_MIN ((size_t)32 << 10)
#define JIT_STACK_BYTES_MAX ((size_t)32 << 20) /* reserved, not used until a group repeats a million times */
#define KEPT_BYTES_MAX ((size_t)4 << 20)       /* of each buffer, between calls */
#define HEAP_KIBIBYTES_MAX 65536u

struct ash_tok_scratch *ash_tok_scratch_open(void)
{
    struct ash_tok_scratch *scratch = calloc(1, sizeof(*scratch));

    if (scratch == NULL) return NULL;
    scratch->match = pcre2_match_data_create(1, NULL);
    scratch->context = pcre2_match_context_create(NULL);
    if (scratch->match == NULL || scratch->context == NULL) {
        ash_tok_scratch_close(scratch);
        return NULL;
    }
    pcre2_set_heap_limit(scratch->context, HEAP_KIBIBYTES_MAX);
    scratch->jit_stack = pcre2_jit_stack_create(JIT_STACK_BYTES_MIN, JIT_STACK_BYTES_MAX, NULL);
    if (scratch->jit_stack != NULL) pcre2_jit_stack_assign(scratch->context, NULL, scratch->jit_stack);
    return scratch;
}

void ash_tok_scratch_close(struct ash_tok_scratch *scratch)
{
    if (scratch == NULL) return;
    pcre2_match_data_free(scratch->match);
    pcre2_match_context_free(scratch->context);
    pcre2_jit_stack_free(scratch->jit_stack);
    free(scratch->cache);
    for (size_t i = 0; i < 2; i++)
        ash_str_fini(&scratch->norm[i]);
    for (size_t i = 0; i < ASH_TOK_STEPS_MAX; i++) {
        ash_str_fini(&scratch->steps[i]);
        ash_str_fini(&scratch->mapped[i]);
    }
    ash_str_fini(&scratch->word);
    ash_ids_fini(&scratch->symbols_ids);
    free(scratch->symbols);
    free(scratch->heap);
    free(scratch->path);
    free(scratch);
}

void ash_tok_scratch_limit(struct ash_tok_scratch *scratch, size_t size_bytes)
{
    scratch->limit_bytes = size_bytes * ASH_TOK_GROWTH_MAX + ASH_TOK_GROWTH_BYTES;
}

int ash_tok_scratch_check(const struct ash_tok_scratch *scratch, const struct ash_str *text, struct ash_err *err)
{
    if (text->size_bytes <= scratch->limit_bytes) return 0;
    return ash_err_set(err, -E2BIG, "the normalizers and pre-tokenizers make the text more than %zu times as long",
                       ASH_TOK_GROWTH_MAX);
}

/* Give back what an unusually long text needed. */
static void trim(struct ash_tok_scratch *scratch)
{
    struct ash_str *strings[] = {&scratch->norm[0], &scratch->norm[1], &scratch->word};

    for (size_t i = 0; i < ASH_COUNT(strings); i++)
        if (strings[i]->capacity_bytes > KEPT_BYTES_MAX) ash_str_fini(strings[i]);
    for (size_t i = 0; i < ASH_TOK_STEPS_MAX; i++) {
        if (scratch->steps[i].capacity_bytes > KEPT_BYTES_MAX) ash_str_fini(&scratch->steps[i]);
        if (scratch->mapped[i].capacity_bytes > KEPT_BYTES_MAX) ash_str_fini(&scratch->mapped[i]);
    }
    if (scratch->symbols_ids.capacity * sizeof(int32_t) > KEPT_BYTES_MAX) ash_ids_fini(&scratch->symbols_ids);
    if (scratch->symbol_capacity * sizeof(*scratch->symbols) > KEPT_BYTES_MAX) {
        free(scratch->symbols);
        scratch->symbols = NULL;
        scratch->symbol_capacity = 0;
    }
    if (scratch->path_capacity * sizeof(*scratch->path) > KEPT_BYTES_MAX) {
        free(scratch->path);
        scratch->path = NULL;
        scratch->path_capacity = 0;
    }
    if (scratch->heap_capacity * sizeof(*scratch->heap) > KEPT_BYTES_MAX) {
        free(scratch->heap);
        scratch->heap = NULL;
        scratch->heap_capacity = 0;
    }
}

struct ash_tok_scratch *ash_tok_scratch_get(const struct ash_tokenizer *tokenizer)
{
    struct ash_tokenizer *owner = (struct ash_tokenizer *)tokenizer; /* immutable but for the list that lock guards */
    struct ash_tok_scratch *scratch;

    pthread_mutex_lock(&owner->lock);
    scratch = owner->idle;
    if (scratch != NULL) owner->idle = scratch->next;
    pthread_mutex_unlock(&owner->lock);
    return scratch != NULL ? scratch : ash_tok_scratch_open();
}

void ash_tok_scratch_put(const struct ash_tokenizer *tokenizer, struct ash_tok_scratch *scratch)
{
    struct ash_tokenizer *owner = (struct ash_tokenizer *)tokenizer;

    if (scratch == NULL) return;
    trim(scratch);
    pthread_mutex_lock(&owner->lock);
    scratch->next = owner->idle;
    owner->idle = scratch;
    pthread_mutex_unlock(&owner->lock);
}
