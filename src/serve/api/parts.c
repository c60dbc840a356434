/* Parts of an answer: all content until the parsers are here. */
#include "serve/api/parts.h"

#include <errno.h>
#include <stdlib.h>

struct ash_parts {
    struct ash_parts_opts opts;
    size_t call_count;
};

int ash_parts_open(const struct ash_api *api, const struct ash_parts_opts *opts, struct ash_parts **parts_out,
                   struct ash_err *err)
{
    struct ash_parts *parts = calloc(1, sizeof(*parts));

    (void)api;
    if (parts == NULL) return ash_err_set(err, -ENOMEM, "no memory for a parser");
    parts->opts = *opts;
    *parts_out = parts;
    return 0;
}

void ash_parts_close(struct ash_parts *parts)
{
    free(parts);
}

int ash_parts_push(struct ash_parts *parts, const char *text, size_t size_bytes, ash_part_fn see, void *ctx)
{
    (void)parts;
    if (size_bytes == 0) return 0;
    return see(ctx, &(struct ash_part){.kind = ASH_PART_CONTENT, .text = text, .size_bytes = size_bytes});
}

int ash_parts_finish(struct ash_parts *parts, ash_part_fn see, void *ctx)
{
    (void)parts, (void)see, (void)ctx;
    return 0;
}

size_t ash_parts_call_count(const struct ash_parts *parts)
{
    return parts->call_count;
}
