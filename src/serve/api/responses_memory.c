/* The last responses: a list from the newest to the oldest. They are kept as text, whose size is known. */
#include "serve/api/responses_memory.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

struct entry {
    struct entry *older, *newer;
    uint64_t owner;
    char *id, *items;
    size_t size_bytes; /* of items */
};

struct ash_responses_memory {
    pthread_mutex_t lock;
    size_t limit_bytes, used_bytes;
    struct entry *newest, *oldest;
};

struct ash_responses_memory *ash_responses_memory_open(size_t limit_bytes)
{
    struct ash_responses_memory *memory = calloc(1, sizeof(*memory));

    if (memory == NULL) return NULL;
    memory->limit_bytes = limit_bytes;
    pthread_mutex_init(&memory->lock, NULL);
    return memory;
}

/* NULL is a no-op. */
static void free_entry(struct entry *entry)
{
    if (entry == NULL) return;
    free(entry->id);
    free(entry->items);
    free(entry);
}

static size_t cost_of(const struct entry *entry)
{
    return entry->size_bytes + sizeof(*entry) + strlen(entry->id);
}

/* Under the lock, or alone. */
static void drop_oldest(struct ash_responses_memory *memory)
{
    struct entry *entry = memory->oldest;

    ash_assert(entry != NULL);
    ash_assert(memory->used_bytes >= cost_of(entry));
    memory->used_bytes -= cost_of(entry);
    memory->oldest = entry->newer;
    if (entry->newer != NULL)
        entry->newer->older = NULL;
    else
        memory->newest = NULL;
    free_entry(entry);
}

void ash_responses_memory_close(struct ash_responses_memory *memory)
{
    if (memory == NULL) return;
    while (memory->oldest != NULL)
        drop_oldest(memory);
    pthread_mutex_destroy(&memory->lock);
    free(memory);
}

void ash_responses_memory_add(struct ash_responses_memory *memory, uint64_t owner, const char *id, const char *items,
                              size_t size_bytes)
{
    struct entry *entry = calloc(1, sizeof(*entry));

    if (entry != NULL) {
        *entry = (struct entry){.owner = owner, .id = strdup(id), .items = malloc(size_bytes + 1)};
        entry->size_bytes = size_bytes;
    }
    if (entry == NULL || entry->id == NULL || entry->items == NULL || cost_of(entry) > memory->limit_bytes) {
        free_entry(entry);
        return;
    }
    memcpy(entry->items, items, size_bytes);
    entry->items[size_bytes] = '\0';
    pthread_mutex_lock(&memory->lock);
    while (memory->used_bytes + cost_of(entry) > memory->limit_bytes)
        drop_oldest(memory);
    entry->older = memory->newest;
    if (memory->newest != NULL)
        memory->newest->newer = entry;
    else
        memory->oldest = entry;
    memory->newest = entry;
    memory->used_bytes += cost_of(entry);
    pthread_mutex_unlock(&memory->lock);
}

json_t *ash_responses_memory_get(struct ash_responses_memory *memory, uint64_t owner, const char *id)
{
    json_t *items = NULL;

    pthread_mutex_lock(&memory->lock);
    for (const struct entry *entry = memory->newest; entry != NULL && items == NULL; entry = entry->older)
        if (entry->owner == owner && strcmp(entry->id, id) == 0)
            items = json_loadb(entry->items, entry->size_bytes, 0, NULL);
    pthread_mutex_unlock(&memory->lock);
    return items;
}

/* The item of this id in an entry, a new reference, or NULL. */
static json_t *find_in(const struct entry *entry, const char *id)
{
    json_t *items, *found = NULL;

    if (strstr(entry->items, id) == NULL) return NULL;
    items = json_loadb(entry->items, entry->size_bytes, 0, NULL);
    for (size_t i = 0; i < json_array_size(items) && found == NULL; i++) {
        json_t *item = json_array_get(items, i);
        const char *name = json_string_value(json_object_get(item, "id"));

        if (name != NULL && strcmp(name, id) == 0) found = json_incref(item);
    }
    json_decref(items);
    return found;
}

json_t *ash_responses_memory_find_item(struct ash_responses_memory *memory, uint64_t owner, const char *id)
{
    json_t *found = NULL;

    pthread_mutex_lock(&memory->lock);
    for (const struct entry *entry = memory->newest; entry != NULL && found == NULL; entry = entry->older)
        if (entry->owner == owner) found = find_in(entry, id);
    pthread_mutex_unlock(&memory->lock);
    return found;
}
