/* adapters: a list under a lock; entries are counted. */
#include "serve/adapters.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/math.h"
#include "model/files/lora_folder.h"
#include "model/model.h"

struct entry {
    struct ash_served_adapter adapter; /* first: what callers hold */
    size_t refs;                       /* the list's, and each holder's */
    struct entry *next;
};

struct ash_adapters {
    struct ash_model *model;
    struct ash_exec *exec;
    size_t max_rows;
    const struct ash_adapters_peers *peers;
    pthread_mutex_t lock;
    struct entry *first;
    size_t alive; /* entries, and those that are being loaded */
    bool is_rebasing;
};

int ash_adapters_open(struct ash_model *model, struct ash_exec *exec, size_t max_rows,
                      const struct ash_adapters_peers *peers, struct ash_adapters **adapters_out, struct ash_err *err)
{
    struct ash_adapters *adapters = calloc(1, sizeof(*adapters));

    if (adapters == NULL) return ash_err_set(err, -ENOMEM, "no memory for adapters");
    adapters->model = model;
    adapters->exec = exec;
    adapters->max_rows = max_rows;
    adapters->peers = peers;
    pthread_mutex_init(&adapters->lock, NULL);
    *adapters_out = adapters;
    return 0;
}

static void free_entry(const struct ash_adapters *adapters, struct entry *entry)
{
    if (adapters->peers != NULL && entry->adapter.set.adapters != NULL)
        adapters->peers->forget(adapters->peers->ctx, entry->adapter.set.adapters);
    ash_lora_detach(&entry->adapter.set);
    free(entry->adapter.name);
    free(entry->adapter.dir);
    free(entry);
}

void ash_adapters_close(struct ash_adapters *adapters)
{
    if (adapters == NULL) return;
    while (adapters->first != NULL) {
        struct entry *entry = adapters->first;

        ash_assert(entry->refs == 1);
        adapters->first = entry->next;
        free_entry(adapters, entry);
    }
    pthread_mutex_destroy(&adapters->lock);
    free(adapters);
}

bool ash_adapters_rebase_begin(struct ash_adapters *adapters)
{
    bool is_free = true;

    if (adapters == NULL) return true;
    pthread_mutex_lock(&adapters->lock);
    is_free = adapters->alive == 0 && !adapters->is_rebasing;
    if (is_free) adapters->is_rebasing = true;
    pthread_mutex_unlock(&adapters->lock);
    return is_free;
}

void ash_adapters_rebase_end(struct ash_adapters *adapters, struct ash_model *model)
{
    if (adapters == NULL) return;
    pthread_mutex_lock(&adapters->lock);
    adapters->model = model;
    adapters->is_rebasing = false;
    pthread_mutex_unlock(&adapters->lock);
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

/* The link that points to the entry of this name, or to the end of the list. With the lock held. */
static struct entry **find(struct ash_adapters *adapters, const char *name)
{
    struct entry **link = &adapters->first;

    while (*link != NULL && strcmp((*link)->adapter.name, name) != 0)
        link = &(*link)->next;
    return link;
}

static int hash_file(const char *dir, const char *name, uint64_t *hash, struct ash_err *err)
{
    char path[PATH_MAX];
    int rc = ash_path_join(path, sizeof(path), dir, name);

    return rc < 0 ? ash_err_set(err, rc, "'%.200s' is too long a path", dir) : ash_file_hash(path, hash, err);
}

static int open_entry(struct ash_adapters *adapters, const char *name, const char *dir, struct entry **entry_out,
                      struct ash_err *err)
{
    struct entry *entry = calloc(1, sizeof(*entry));
    struct ash_served_adapter *adapter;
    int rc = 0;

    if (entry == NULL) return ash_err_set(err, -ENOMEM, "no memory for an adapter");
    adapter = &entry->adapter;
    adapter->name = strdup(name);
    adapter->dir = strdup(dir);
    if (adapter->name == NULL || adapter->dir == NULL) rc = ash_err_set(err, -ENOMEM, "no memory for an adapter");
    if (rc == 0) rc = hash_file(dir, ASH_LORA_CONFIG_FILE, &adapter->hash, err);
    if (rc == 0) rc = hash_file(dir, ASH_LORA_WEIGHTS_FILE, &adapter->hash, err);
    if (rc == 0) rc = ash_lora_attach(dir, adapters->model, adapters->exec, adapters->max_rows, &adapter->set, err);
    if (rc == 0 && adapters->peers != NULL)
        rc = adapters->peers->load(adapters->peers->ctx, adapter->set.adapters, dir, err);
    if (rc < 0) {
        free_entry(adapters, entry);
        return rc;
    }
    for (size_t i = 0; i < adapter->set.lora->count; i++)
        adapter->rank = ash_max(adapter->rank, adapter->set.lora->modules[i].rank);
    entry->refs = 1;
    *entry_out = entry;
    return 0;
}

static int refuse_name(const char *name, struct ash_err *err)
{
    return ash_err_set(err, -EEXIST, "there is an adapter '%.100s' already: unload it first", name);
}

int ash_adapters_load(struct ash_adapters *adapters, const char *name, const char *dir, struct ash_err *err)
{
    struct entry *entry = NULL, **link;
    bool is_taken, is_rebasing;
    int rc;

    pthread_mutex_lock(&adapters->lock);
    is_taken = *find(adapters, name) != NULL;
    is_rebasing = adapters->is_rebasing;
    adapters->alive += !is_taken && !is_rebasing;
    pthread_mutex_unlock(&adapters->lock);
    if (is_taken) return refuse_name(name, err);
    if (is_rebasing) return ash_err_set(err, -EBUSY, "the weights are being replaced: try again");
    rc = open_entry(adapters, name, dir, &entry, err); /* slow: no lock is held */
    pthread_mutex_lock(&adapters->lock);
    if (rc < 0) {
        adapters->alive--;
        pthread_mutex_unlock(&adapters->lock);
        return rc;
    }
    link = find(adapters, name);
    is_taken = *link != NULL;
    if (!is_taken) *link = entry;
    adapters->alive -= is_taken;
    pthread_mutex_unlock(&adapters->lock);
    if (!is_taken) return 0;
    free_entry(adapters, entry);
    return refuse_name(name, err);
}

int ash_adapters_unload(struct ash_adapters *adapters, const char *name, struct ash_err *err)
{
    struct entry *entry, **link;
    bool is_last = false;

    pthread_mutex_lock(&adapters->lock);
    link = find(adapters, name);
    entry = *link;
    if (entry != NULL) {
        *link = entry->next;
        entry->next = NULL;
        is_last = --entry->refs == 0;
        adapters->alive -= is_last;
    }
    pthread_mutex_unlock(&adapters->lock);
    if (is_last) free_entry(adapters, entry);
    return entry != NULL ? 0 : ash_err_set(err, -ENOENT, "there is no adapter '%.100s'", name);
}

/* ---- holding ----------------------------------------------------------------------------------------------------- */

const struct ash_served_adapter *ash_adapters_get(struct ash_adapters *adapters, const char *name)
{
    struct entry *entry;

    if (adapters == NULL) return NULL;
    pthread_mutex_lock(&adapters->lock);
    entry = *find(adapters, name);
    if (entry != NULL) entry->refs++;
    pthread_mutex_unlock(&adapters->lock);
    return entry != NULL ? &entry->adapter : NULL;
}

const struct ash_served_adapter *ash_adapters_hold(struct ash_adapters *adapters,
                                                   const struct ash_served_adapter *adapter)
{
    if (adapter == NULL) return NULL;
    pthread_mutex_lock(&adapters->lock);
    ((struct entry *)(uintptr_t)adapter)->refs++;
    pthread_mutex_unlock(&adapters->lock);
    return adapter;
}

void ash_adapters_put(struct ash_adapters *adapters, const struct ash_served_adapter *adapter)
{
    struct entry *entry = (struct entry *)(uintptr_t)adapter;
    bool is_last;

    if (adapter == NULL) return;
    pthread_mutex_lock(&adapters->lock);
    is_last = --entry->refs == 0;
    adapters->alive -= is_last;
    pthread_mutex_unlock(&adapters->lock);
    if (is_last) free_entry(adapters, entry);
}

void ash_adapters_visit(struct ash_adapters *adapters,
                        void (*visit)(void *ctx, const struct ash_served_adapter *adapter), void *ctx)
{
    if (adapters == NULL) return;
    pthread_mutex_lock(&adapters->lock);
    for (const struct entry *entry = adapters->first; entry != NULL; entry = entry->next)
        visit(ctx, &entry->adapter);
    pthread_mutex_unlock(&adapters->lock);
}
