/* Conversations as text: the model's own chat template writes them. */
#include "serve/engine.h"

#include <errno.h>

bool ash_engine_has_chat(const struct ash_engine *engine)
{
    (void)engine;
    return false;
}

int ash_engine_render_chat(const struct ash_engine *engine, const struct ash_message *messages, size_t count,
                           char **prompt_out, struct ash_err *err)
{
    (void)engine, (void)messages, (void)count, (void)prompt_out;
    return ash_err_set(err, -ENOTSUP, "chat templates cannot be read yet");
}
