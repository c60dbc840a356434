/* adapters - LoRA adapters that a server has next to its model, by name. They are loaded and unloaded while others
 * answer; one that is unloaded stays in memory until the last answer that uses it is done. Any thread. */
#ifndef ASH_SERVE_ADAPTERS_H
#define ASH_SERVE_ADAPTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "model/files/lora_folder.h"
#include "model/lora.h"

struct ash_adapters;
struct ash_exec;

/* One of them; read only. */
struct ash_served_adapter {
    char *name, *dir;
    uint64_t hash; /* of its files: with the same base, equal hashes mean equal answers */
    size_t rank;   /* the largest of its modules */
    struct ash_lora_set set;
};

/* Other ranks, which have the same adapters. */
struct ash_adapters_peers {
    /* They load dir, too. Returns 0 or why one of them refuses it. */
    int (*load)(void *ctx, const struct ash_model *adapters, const char *dir, struct ash_err *err);
    /* It is about to be freed here. Any thread; does not wait. */
    void (*forget)(void *ctx, const struct ash_model *adapters);
    void *ctx;
};

/* None so far. Borrows model, exec and peers (NULL: none) until close; max_rows: of a batch. Returns 0 or -ENOMEM. */
int ash_adapters_open(struct ash_model *model, struct ash_exec *exec, size_t max_rows,
                      const struct ash_adapters_peers *peers, struct ash_adapters **adapters_out, struct ash_err *err);
/* No adapter may be in use. NULL is a no-op. */
void ash_adapters_close(struct ash_adapters *adapters);

/* Load a PEFT folder under a name. Returns 0, -EEXIST (the name is taken) or why the folder is refused. */
int ash_adapters_load(struct ash_adapters *adapters, const char *name, const char *dir, struct ash_err *err);
/* Forget a name. Returns 0 or -ENOENT. */
int ash_adapters_unload(struct ash_adapters *adapters, const char *name, struct ash_err *err);

/* Other weights are about to take the place of the base. Returns false where an adapter is loaded or in use; else none
 * can be loaded until ash_adapters_rebase_end, which must follow. adapters may be NULL. */
bool ash_adapters_rebase_begin(struct ash_adapters *adapters);
/* The base is this one now. adapters may be NULL. */
void ash_adapters_rebase_end(struct ash_adapters *adapters, struct ash_model *model);

/* The adapter of this name, held until it is put; NULL: there is none. adapters may be NULL. */
const struct ash_served_adapter *ash_adapters_get(struct ash_adapters *adapters, const char *name);
/* Hold it once more. NULL is a no-op. Returns adapter. */
const struct ash_served_adapter *ash_adapters_hold(struct ash_adapters *adapters,
                                                   const struct ash_served_adapter *adapter);
/* Let it go. NULL is a no-op. */
void ash_adapters_put(struct ash_adapters *adapters, const struct ash_served_adapter *adapter);
/* Call visit with each, in the order of loading, under the lock. adapters may be NULL. */
void ash_adapters_visit(struct ash_adapters *adapters,
                        void (*visit)(void *ctx, const struct ash_served_adapter *adapter), void *ctx);

#endif
