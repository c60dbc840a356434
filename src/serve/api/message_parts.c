/* Parts put together. */
#include "serve/api/parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add_call(struct ash_message_parts *message, const struct ash_part *part)
{
    struct ash_tool_call *calls = realloc(message->calls, (message->call_count + 1) * sizeof(*calls));

    if (calls == NULL) return -ENOMEM;
    message->calls = calls;
    calls[message->call_count] = (struct ash_tool_call){.name = strndup(part->text, part->size_bytes)};
    if (calls[message->call_count].name == NULL) return -ENOMEM;
    snprintf(calls[message->call_count].id, sizeof(calls->id), "%s", part->id);
    message->call_count++;
    return 0;
}

static int see_part(void *ctx, const struct ash_part *part)
{
    struct ash_message_parts *message = ctx;

    switch (part->kind) {
    case ASH_PART_REASONING:
        return ash_str_add(&message->reasoning, part->text, part->size_bytes);
    case ASH_PART_CONTENT:
        return ash_str_add(&message->content, part->text, part->size_bytes);
    case ASH_PART_CALL:
        return add_call(message, part);
    default:
        return ash_str_add(&message->calls[message->call_count - 1].arguments, part->text, part->size_bytes);
    }
}

int ash_message_read(const struct ash_api *api, const struct ash_parts_opts *opts, const struct ash_str *text,
                     struct ash_message_parts *message, struct ash_err *err)
{
    struct ash_parts *parts = NULL;
    int rc = ash_parts_open(api, opts, &parts, err);

    if (rc < 0) return rc;
    rc = ash_parts_push(parts, text->data != NULL ? text->data : "", text->size_bytes, see_part, message);
    if (rc == 0) rc = ash_parts_finish(parts, see_part, message);
    message->thought_bytes = ash_parts_thought_bytes(parts);
    ash_parts_close(parts);
    return rc;
}

void ash_message_fini(struct ash_message_parts *message)
{
    ash_str_fini(&message->reasoning);
    ash_str_fini(&message->content);
    for (size_t i = 0; i < message->call_count; i++) {
        free(message->calls[i].name);
        ash_str_fini(&message->calls[i].arguments);
    }
    free(message->calls);
    *message = (struct ash_message_parts){0};
}
