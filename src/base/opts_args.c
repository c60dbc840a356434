/* Command-line words: flags, key=value settings, positionals. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/opts_priv.h"

struct words {
    int argc, next;
    char **argv;
};

/* The key before '=' into key; false when the word does not look like key=value. */
static bool split_setting(const char *word, char *key, size_t key_bytes, const char **value_out)
{
    const char *equals = strchr(word, '=');
    size_t length = equals == NULL ? 0 : (size_t)(equals - word);

    if (length == 0 || length >= key_bytes || !isalpha((unsigned char)word[0])) return false;
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)word[i]) && strchr("._-", word[i]) == NULL) return false;
    memcpy(key, word, length);
    key[length] = '\0';
    *value_out = equals + 1;
    return true;
}

static int unknown_flag(const struct ash_opts *opts, const char *name, struct ash_err *err)
{
    const struct ash_opt_slot *nearest = ash_opts_nearest(opts, name);
    char shown[ASH_OPT_SUBJECT_BYTES];

    if (nearest == NULL) return ash_err_set(err, -ENOENT, "there is no flag '--%.100s'", name);
    if (nearest->table->section[0] != '\0')
        return ash_err_set(err, -ENOENT, "there is no flag '--%.100s'; did you mean '%s=VALUE'?", name, nearest->key);
    return ash_err_set(err, -ENOENT, "there is no flag '--%.100s'; did you mean '%s'?", name,
                       ash_opts_subject(nearest, NULL, shown, sizeof(shown)));
}

/* The boolean that --no-name turns off, or NULL. */
static struct ash_opt_slot *find_negated(const struct ash_opts *opts, const char *name)
{
    struct ash_opt_slot *slot = NULL;

    if (strncmp(name, "no-", 3) == 0 || strncmp(name, "no_", 3) == 0) slot = ash_opts_find(opts, name + 3);
    return slot != NULL && slot->opt->type == ASH_OPT_BOOL ? slot : NULL;
}

/* The word after a flag that needs one. */
static int take_value(struct words *words, const char *flag, const char **value_out, struct ash_err *err)
{
    const char *word = words->next < words->argc ? words->argv[words->next] : NULL;

    if (word == NULL) return ash_err_set(err, -EINVAL, "%s needs a value", flag);
    if (strncmp(word, "--", 2) == 0)
        return ash_err_set(err, -EINVAL, "%s needs a value (write %s=%.60s if that is meant)", flag, flag, word);
    words->next++;
    *value_out = word;
    return 0;
}

/* --name, --name=value or --name value; flag is the whole word. */
static int take_flag(struct ash_opts *opts, struct words *words, const char *flag, struct ash_err *err)
{
    size_t length = strcspn(flag + 2, "=");
    const char *value = flag[2 + length] == '=' ? flag + 2 + length + 1 : NULL;
    char name[ASH_OPT_KEY_BYTES];
    struct ash_opt_slot *slot = NULL, *negated = NULL;
    int rc = 0;

    if (length >= sizeof(name)) return ash_err_set(err, -ENOENT, "there is no flag '%.60s...'", flag);
    memcpy(name, flag + 2, length);
    name[length] = '\0';
    slot = ash_opts_find(opts, name);
    negated = find_negated(opts, name);
    if (slot == NULL && negated != NULL && value == NULL) return ash_opts_store(opts, negated, "false", NULL, err);
    if (slot == NULL) return unknown_flag(opts, name, err);
    if (value == NULL && slot->opt->type == ASH_OPT_BOOL) value = "true";
    if (value == NULL) rc = take_value(words, flag, &value, err);
    return rc < 0 ? rc : ash_opts_store(opts, slot, value, NULL, err);
}

static int take_setting(struct ash_opts *opts, const char *key, const char *value, struct ash_err *err)
{
    struct ash_opt_slot *slot = ash_opts_find(opts, key);

    if (slot == NULL && strchr(key, '.') != NULL && ash_opts_is_passed(opts, key)) return 0;
    if (slot == NULL) return ash_opts_unknown(opts, key, NULL, err);
    return ash_opts_store(opts, slot, value, NULL, err);
}

static int add_positional(const struct ash_opts *opts, const struct words *words, const char *word,
                          const char **positionals, size_t max_positionals, size_t *count, struct ash_err *err)
{
    const char *next = words->next < words->argc ? words->argv[words->next] : "-";

    if (*count == max_positionals && ash_opts_find(opts, word) != NULL)
        return ash_err_set(err, -E2BIG, "'%.100s' is a setting: write %.100s=%.100s", word, word,
                           next[0] != '-' && strchr(next, '=') == NULL ? next : "VALUE");
    if (*count == max_positionals)
        return ash_err_set(err, -E2BIG, "'%.100s' is one word too many (%zu %s)", word, max_positionals,
                           max_positionals == 1 ? "is expected" : "are expected");
    positionals[(*count)++] = word;
    return 0;
}

int ash_opts_parse_args(struct ash_opts *opts, int argc, char **argv, const char **positionals, size_t max_positionals,
                        size_t *positional_count_out, bool *help_out, struct ash_err *err)
{
    struct words words = {.argc = argc, .argv = argv};
    bool flags_ended = false;
    size_t count = 0;
    int rc = 0;

    opts->generation++;
    while (words.next < words.argc && rc == 0) {
        const char *word = words.argv[words.next++], *value = NULL;
        char key[ASH_OPT_KEY_BYTES];
        if (flags_ended || strcmp(word, "-") == 0) {
            rc = add_positional(opts, &words, word, positionals, max_positionals, &count, err);
        } else if (strcmp(word, "--") == 0) {
            flags_ended = true;
        } else if (strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0) {
            *help_out = true;
            *positional_count_out = count;
            return 0;
        } else if (strncmp(word, "--", 2) == 0) {
            rc = take_flag(opts, &words, word, err);
        } else if (word[0] == '-') {
            rc = ash_err_set(err, -ENOENT, "there is no flag '%.100s' (flags start with --)", word);
        } else if (split_setting(word, key, sizeof(key), &value)) {
            rc = take_setting(opts, key, value, err);
        } else {
            rc = add_positional(opts, &words, word, positionals, max_positionals, &count, err);
        }
    }
    if (rc < 0) return rc;
    *positional_count_out = count;
    *help_out = false;
    return 0;
}
