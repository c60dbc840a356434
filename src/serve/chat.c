/* Conversations as text: the model's own chat template writes them. A template that cannot be read is no reason to
 * refuse a model that is asked to continue plain text, so its error is kept until the first chat. */
#include "serve/engine_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "base/str.h"

int ash_engine_load_chat(struct ash_engine *engine, const char *dir, struct ash_err *err)
{
    int rc = ash_chat_template_open(dir, &engine->chat, &engine->chat_err);

    if (rc == -ENOENT) engine->chat_err = (struct ash_err){0};
    return rc == -ENOMEM ? ash_err_set(err, rc, "%s", engine->chat_err.text) : 0;
}

int ash_engine_use_chat(struct ash_engine *engine, const char *file, struct ash_err *err)
{
    struct ash_chat_template *chat = NULL;
    int rc = ash_chat_template_read(file, engine->dir, &chat, err);

    if (rc < 0) return rc;
    ash_chat_template_close(engine->chat);
    engine->chat = chat;
    engine->chat_err = (struct ash_err){0};
    return 0;
}

bool ash_engine_has_chat(const struct ash_engine *engine)
{
    return engine->chat != NULL || engine->chat_err.code != 0;
}

const struct ash_chat_template *ash_engine_chat(const struct ash_engine *engine, const char **why_out)
{
    if (why_out != NULL && engine->chat == NULL)
        *why_out = engine->chat_err.code != 0 ? engine->chat_err.text : "this model has no chat template";
    return engine->chat;
}

static int render(const struct ash_engine *engine, const struct ash_message *messages, size_t count,
                  struct ash_str *text, struct ash_err *err)
{
    struct ash_chat_message *turns = calloc(count + 1, sizeof(*turns));
    int rc;

    if (turns == NULL) return ash_err_set(err, -ENOMEM, "no memory for %zu messages", count);
    for (size_t i = 0; i < count; i++)
        turns[i] = (struct ash_chat_message){messages[i].role, messages[i].content};
    rc = ash_chat_template_render(engine->chat, turns, count, true, text, err);
    if (rc == 0 && text->data == NULL) rc = ash_str_adds(text, "");
    free(turns);
    return rc;
}

int ash_engine_render_chat(const struct ash_engine *engine, const struct ash_message *messages, size_t count,
                           char **prompt_out, struct ash_err *err)
{
    struct ash_str text = {0};
    int rc;

    if (engine->chat_err.code != 0) return ash_err_set(err, engine->chat_err.code, "%s", engine->chat_err.text);
    if (engine->chat == NULL) return ash_err_set(err, -ENOTSUP, "this model has no chat template");
    rc = render(engine, messages, count, &text, err);
    if (rc < 0) {
        ash_str_fini(&text);
        return rc;
    }
    *prompt_out = text.data;
    return 0;
}
