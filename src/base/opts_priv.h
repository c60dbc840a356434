/* opts_priv - what the files of the options table share: one slot per setting, and how to find, fill and show it. */
#ifndef ASH_BASE_OPTS_PRIV_H
#define ASH_BASE_OPTS_PRIV_H

#include "base/arena.h"
#include "base/opts.h"
#include "base/str.h"

#define ASH_OPT_KEY_BYTES 128   /* longest "section.name" */
#define ASH_OPT_ITEMS_MAX 65536 /* in one list */

struct ash_opt_slot {
    const struct ash_opt_table *table;
    const struct ash_opt *opt;
    void *field;         /* in the bound object */
    const char *key;     /* "section.name", or "name" in the empty section */
    bool is_set;         /* by a source other than the default */
    unsigned generation; /* the source that set it last; a list grows only within one source */
    size_t line;         /* in the YAML file of that generation */
    size_t capacity;     /* of a list's items */
};

struct ash_opts {
    struct ash_arena *arena;
    struct ash_opt_slot *slots;
    size_t count;
    unsigned generation; /* counts sources: each file, command line, environment or single set is one */
    bool passes_others;  /* sections that no table has are another command's */
};

/* Does the setting hold several strings? */
static inline bool ash_opt_is_list(const struct ash_opt *opt)
{
    return opt->type == ASH_OPT_LIST || opt->type == ASH_OPT_TEXTS;
}

/* Do two keys name the same setting? '-' and '_' are equal. */
bool ash_opts_same_key(const char *a, const char *b);
/* Does key ("section.name", or the section alone) belong to a section that is passed over? */
bool ash_opts_is_passed(const struct ash_opts *opts, const char *key);
/* The slot of key, or NULL. */
struct ash_opt_slot *ash_opts_find(const struct ash_opts *opts, const char *key);
/* The slot whose key, or name alone, is nearest to key; NULL when none is near (ash_spelling_nearness). */
const struct ash_opt_slot *ash_opts_nearest(const struct ash_opts *opts, const char *key);
/* -ENOENT with the nearest known key, if one is near, in the sentence. source: as in ash_opts_set. */
int ash_opts_unknown(const struct ash_opts *opts, const char *key, const char *source, struct ash_err *err);

#define ASH_OPT_SUBJECT_BYTES 512

/* The setting as its user wrote it, for a message: "--max-tokens" or "train.steps" from the command line (source
 * NULL), "job.yaml:12: 'train.steps'" from elsewhere. In buf or in slot. */
const char *ash_opts_subject(const struct ash_opt_slot *slot, const char *source, char *buf, size_t buf_bytes);

/* Parse text and store it, within the current generation. source: as in ash_opts_set. Returns 0, -EINVAL, -ERANGE or
 * -ENOMEM; on error the field is as it was. */
int ash_opts_store(struct ash_opts *opts, struct ash_opt_slot *slot, const char *text, const char *source,
                   struct ash_err *err);
/* Append one item to a list (commas are part of it), within the current generation. Returns as ash_opts_store. */
int ash_opts_store_item(struct ash_opts *opts, struct ash_opt_slot *slot, const char *text, const char *source,
                        struct ash_err *err);
/* Empty a list, within the current generation. */
void ash_opts_empty_list(struct ash_opts *opts, struct ash_opt_slot *slot);
/* Append the present value of a number, boolean or choice as text that ash_opts_store takes back. 0, -ENOMEM, or
 * -EINVAL for strings and lists, which need quotes. */
int ash_opts_show(const struct ash_opt_slot *slot, struct ash_str *text);

#endif
