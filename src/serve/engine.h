/* engine - a model folder ready to run: what the public API (ashlar/ashlar.h) hands out, with its parts for the floor
 * above. */
#ifndef ASH_SERVE_ENGINE_H
#define ASH_SERVE_ENGINE_H

#include "ashlar/ashlar.h"
#include "model/model.h"
#include "text/tokenizer.h"
#include "serve/defaults.h"

/* Parts of an engine; borrowed until it is closed. */
struct ash_model *ash_engine_model(struct ash_engine *engine);
struct ash_exec *ash_engine_exec(struct ash_engine *engine);
const struct ash_tokenizer *ash_engine_tokenizer(const struct ash_engine *engine);
const struct ash_defaults *ash_engine_defaults(const struct ash_engine *engine);

#endif
