/* models - several models behind one router, of which only some are in memory: which of them requests wait for, which
 * one is loaded next, and which one is put away for it. It knows no processes: who starts and ends their servers asks
 * for the next action. Any thread. */
#ifndef ASH_SERVE_ROUTE_MODELS_H
#define ASH_SERVE_ROUTE_MODELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

#define ASH_ROUTE_MODEL_NAME_BYTES 128
#define ASH_ROUTE_NO_MODEL SIZE_MAX

enum ash_route_model_state {
    ASH_ROUTE_MODEL_UNLOADED,
    ASH_ROUTE_MODEL_LOADING,
    ASH_ROUTE_MODEL_LOADED,
    ASH_ROUTE_MODEL_LEAVING, /* its last requests are answered; new ones wait until it is loaded again */
    ASH_ROUTE_MODEL_ENDING,  /* its server has been asked to end */
    ASH_ROUTE_MODEL_STATES,
};

/* What a request is for its model. */
enum ash_route_model_use { ASH_ROUTE_MODEL_UNUSED, ASH_ROUTE_MODEL_WAITS, ASH_ROUTE_MODEL_RUNS, ASH_ROUTE_MODEL_USES };

struct ash_route_models_opts {
    size_t loaded_max;   /* models in memory; 0: no limit */
    uint64_t bytes_max;  /* of all of them together; 0: no limit. A model alone may have more */
    double idle_seconds; /* a model without a request for so long is put away; negative: never */
};

/* A model, as it was when it was asked for. */
struct ash_route_model {
    char name[ASH_ROUTE_MODEL_NAME_BYTES];
    const char *path; /* borrowed until the models are closed */
    int64_t created_s;
    enum ash_route_model_state state;
    uint64_t bytes;                    /* in memory: an estimate until it has been loaded */
    uint64_t loads;                    /* how often it was loaded */
    uint64_t failures;                 /* how often its server ended before it was loaded */
    int exit_code;                     /* of the last failure; above 128: of a signal, plus 128 */
    double idle_s;                     /* until it is put away; negative: not by time, or it is in use */
    size_t uses[ASH_ROUTE_MODEL_USES]; /* requests */
};

enum ash_route_model_act { ASH_ROUTE_MODEL_NOTHING, ASH_ROUTE_MODEL_START, ASH_ROUTE_MODEL_END };

struct ash_route_models;

/* No models yet. opts is copied. Returns 0 or -ENOMEM. */
int ash_route_models_open(const struct ash_route_models_opts *opts, struct ash_route_models **models_out);
/* NULL is a no-op. */
void ash_route_models_close(struct ash_route_models *models);
/* Add one, before others use the models. bytes: a lower bound of its memory; 0: not known. path is copied. Returns 0,
 * -EINVAL (the name is empty or too long), -EEXIST or -ENOMEM. */
int ash_route_models_add(struct ash_route_models *models, const char *name, const char *path, uint64_t bytes,
                         int64_t created_s, struct ash_err *err);
/* How many there are. */
size_t ash_route_models_count(const struct ash_route_models *models);
/* The number of the model with this name, which may end in ":latest", as Ollama's clients write it; empty: the only
 * one. ASH_ROUTE_NO_MODEL: there is none. */
size_t ash_route_models_find(const struct ash_route_models *models, const char *name);
/* A copy of the facts about it. */
struct ash_route_model ash_route_models_get(struct ash_route_models *models, size_t model);
/* A number that is another one after a model was loaded, has failed or has ended: calls that wait look again. */
uint64_t ash_route_models_changes(struct ash_route_models *models);

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* A request is another use of its model now. A request that waits has the model loaded. Only a loaded model takes one
 * that runs: false, and nothing has changed, if it is not loaded. */
bool ash_route_models_use(struct ash_route_models *models, size_t model, enum ash_route_model_use from,
                          enum ash_route_model_use to);
/* From now on it is put away after so many idle seconds; negative: never. */
void ash_route_models_keep(struct ash_route_models *models, size_t model, double idle_seconds);
/* Load it though no request waits for it, or put it away once its requests are answered. */
void ash_route_models_want(struct ash_route_models *models, size_t model, bool is_wanted);

/* ---- servers ----------------------------------------------------------------------------------------------------- */

/* The next thing to do for *model_out: start its server, which is noted as done, or end it. */
enum ash_route_model_act ash_route_models_next(struct ash_route_models *models, uint64_t now_ns, size_t *model_out);
/* Its server takes requests. */
void ash_route_models_note_loaded(struct ash_route_models *models, size_t model);
/* Its server needs so many bytes. */
void ash_route_models_note_bytes(struct ash_route_models *models, size_t model, uint64_t bytes);
/* Its server has ended, as exit_code says; it may start again at restart_ns. */
void ash_route_models_note_ended(struct ash_route_models *models, size_t model, int exit_code, uint64_t restart_ns);

#endif
