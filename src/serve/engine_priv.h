/* engine_priv - the inside of an engine. */
#ifndef ASH_SERVE_ENGINE_PRIV_H
#define ASH_SERVE_ENGINE_PRIV_H

#include "text/chat_template/chat_template.h"
#include "serve/engine.h"

struct ash_engine {
    char *dir; /* the folder or file that was opened */
    struct ash_exec exec;
    char gpu_why[sizeof(((struct ash_backend_choice *)NULL)->why)]; /* why a GPU of ranks is not used; or empty */
    struct ash_ranks *ranks;                                        /* that share the model; NULL: it is whole */
    struct ash_model *model;
    struct ash_tokenizer *tokenizer;
    struct ash_defaults defaults;
    struct ash_chat_template *chat; /* NULL: the folder has none, or an invalid one (chat_err) */
    struct ash_err chat_err;
};

/* chat.c: find dir's chat template. Fails only when memory is out. */
int ash_engine_load_chat(struct ash_engine *engine, const char *dir, struct ash_err *err);

#endif
