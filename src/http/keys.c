/* API keys: a list that only grows, so that a key's standing stays valid while requests use it; reading the file again
 * marks which of them may call. Limits are token buckets that hold a minute's worth. */
#include "http/keys.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/number.h"

#define FILE_BYTES_MAX ((size_t)4 << 20)
#define KEYS_MAX 65536
#define LASTING_SALT 0x6173686b65797331u
#define NS_PER_S 1e9

struct bucket {
    double per_minute, left;
    uint64_t updated_ns;
};

struct ash_key {
    char text[ASH_KEY_BYTES_MAX + 1], name[ASH_KEY_NAME_BYTES];
    bool is_active, is_admin, is_from_file;
    uint64_t id;
    pthread_mutex_t *lock;
    struct bucket requests, tokens;
    struct ash_key *next;
};

struct ash_keys {
    struct ash_keys_opts opts;
    pthread_mutex_t lock;
    struct ash_key *first;
    struct ash_key anonymous;
    size_t count;
    uint64_t salt;
};

/* ---- limits ------------------------------------------------------------------------------------------------------ */

static void refill(struct bucket *bucket, uint64_t now_ns)
{
    double gained = (double)(now_ns - bucket->updated_ns) / NS_PER_S * bucket->per_minute / 60;

    bucket->left = bucket->left + gained < bucket->per_minute ? bucket->left + gained : bucket->per_minute;
    bucket->updated_ns = now_ns;
}

static void set_limit(struct bucket *bucket, double per_minute)
{
    if (bucket->per_minute == per_minute) return;
    *bucket = (struct bucket){.per_minute = per_minute, .left = per_minute, .updated_ns = ash_clock_ns()};
}

/* Seconds until the bucket holds `need`. */
static double wait_for(const struct bucket *bucket, double need)
{
    return bucket->per_minute == 0 || bucket->left >= need ? 0 : (need - bucket->left) * 60 / bucket->per_minute;
}

int ash_key_take_request(struct ash_key *key, double *wait_out)
{
    double requests, tokens, wait;

    pthread_mutex_lock(key->lock);
    refill(&key->requests, ash_clock_ns());
    refill(&key->tokens, ash_clock_ns());
    requests = wait_for(&key->requests, 1);
    tokens = wait_for(&key->tokens, 1);
    wait = requests > tokens ? requests : tokens;
    if (wait == 0 && key->requests.per_minute > 0) key->requests.left -= 1;
    pthread_mutex_unlock(key->lock);
    if (wait == 0) return 0;
    *wait_out = wait;
    return -EAGAIN;
}

void ash_key_take_tokens(struct ash_key *key, double tokens)
{
    pthread_mutex_lock(key->lock);
    refill(&key->tokens, ash_clock_ns());
    if (key->tokens.per_minute > 0) key->tokens.left -= tokens;
    pthread_mutex_unlock(key->lock);
}

static struct ash_key_quota quota_of(struct bucket *bucket)
{
    refill(bucket, ash_clock_ns());
    return (struct ash_key_quota){.limit = bucket->per_minute,
                                  .left = bucket->left > 0 ? bucket->left : 0,
                                  .reset_seconds = wait_for(bucket, bucket->per_minute)};
}

void ash_key_quotas(struct ash_key *key, struct ash_key_quota *requests_out, struct ash_key_quota *tokens_out)
{
    pthread_mutex_lock(key->lock);
    *requests_out = quota_of(&key->requests);
    *tokens_out = quota_of(&key->tokens);
    pthread_mutex_unlock(key->lock);
}

/* ---- looking up -------------------------------------------------------------------------------------------------- */

/* Every byte of the longest possible key is compared, whatever the two have in common. */
static bool is_same(const char *text, const char *key)
{
    unsigned char difference = 0, ended_a = 0, ended_b = 0;

    for (size_t i = 0; i <= ASH_KEY_BYTES_MAX; i++) {
        unsigned char a = ended_a ? 0 : (unsigned char)text[i], b = ended_b ? 0 : (unsigned char)key[i];

        ended_a = (unsigned char)(ended_a | (a == 0));
        ended_b = (unsigned char)(ended_b | (b == 0));
        difference = (unsigned char)(difference | (a ^ b));
    }
    return difference == 0;
}

struct ash_key *ash_keys_find(struct ash_keys *keys, const char *text)
{
    struct ash_key *found = NULL;

    if (strnlen(text, ASH_KEY_BYTES_MAX + 1) > ASH_KEY_BYTES_MAX) return NULL;
    pthread_mutex_lock(&keys->lock);
    for (struct ash_key *key = keys->first; key != NULL; key = key->next)
        if (is_same(text, key->text) && key->is_active) found = key;
    pthread_mutex_unlock(&keys->lock);
    return found;
}

bool ash_keys_are_needed(struct ash_keys *keys)
{
    bool is_needed = false;

    pthread_mutex_lock(&keys->lock);
    for (const struct ash_key *key = keys->first; key != NULL; key = key->next)
        is_needed = is_needed || (key->is_active && !key->is_admin);
    is_needed = is_needed || keys->opts.file != NULL; /* an empty file admits no client */
    pthread_mutex_unlock(&keys->lock);
    return is_needed;
}

struct ash_key *ash_keys_anonymous(struct ash_keys *keys)
{
    return &keys->anonymous;
}

bool ash_key_is_admin(const struct ash_key *key)
{
    return key->is_admin;
}

bool ash_key_is_anonymous(const struct ash_key *key)
{
    return key->text[0] == '\0';
}

const char *ash_key_name(const struct ash_key *key)
{
    return key->name;
}

uint64_t ash_key_id(const struct ash_key *key)
{
    return key->id;
}

/* ---- adding ------------------------------------------------------------------------------------------------------ */

/* A key's line in the file. */
struct entry {
    const char *text, *name;
    double rpm, tpm;
};

static struct ash_key *find_text(struct ash_keys *keys, const char *text)
{
    struct ash_key *key = keys->first;

    while (key != NULL && strcmp(key->text, text) != 0)
        key = key->next;
    return key;
}

/* Add a key, or take an old one up again. The lock is held. */
static int add_key(struct ash_keys *keys, const struct entry *entry, struct ash_key **key_out, struct ash_err *err)
{
    struct ash_key *key = find_text(keys, entry->text);

    if (key == NULL) {
        if (strlen(entry->text) > ASH_KEY_BYTES_MAX)
            return ash_err_set(err, -EINVAL, "an API key is longer than %d bytes", ASH_KEY_BYTES_MAX);
        if (keys->count == KEYS_MAX) return ash_err_set(err, -ENOSPC, "more than %d API keys", KEYS_MAX);
        key = calloc(1, sizeof(*key));
        if (key == NULL) return ash_err_set(err, -ENOMEM, "no memory for an API key");
        memcpy(key->text, entry->text, strlen(entry->text));
        key->id = ash_hash_bytes(entry->text, strlen(entry->text), keys->salt);
        key->lock = &keys->lock;
        key->next = keys->first;
        keys->first = key;
        keys->count++;
    }
    if (entry->name != NULL)
        snprintf(key->name, sizeof(key->name), "%s", entry->name);
    else if (key->name[0] == '\0')
        snprintf(key->name, sizeof(key->name), "key-%zu", keys->count);
    set_limit(&key->requests, entry->rpm);
    set_limit(&key->tokens, entry->tpm);
    key->is_active = true;
    *key_out = key;
    return 0;
}

/* One of name=, rpm=, tpm= after a key. */
static int read_setting(const char *word, struct entry *entry)
{
    bool is_rpm = strncmp(word, "rpm=", 4) == 0, is_tpm = strncmp(word, "tpm=", 4) == 0;
    double value = 0;

    if (strncmp(word, "name=", 5) == 0) {
        entry->name = word + 5;
        return strspn(word + 5, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.@") ==
                       strlen(word + 5)
                   ? 0
                   : -EINVAL;
    }
    if (!is_rpm && !is_tpm) return -EINVAL;
    if (ash_number_parse(word + 4, &value) < 0 || value < 0) return -EINVAL;
    *(is_rpm ? &entry->rpm : &entry->tpm) = value;
    return 0;
}

/* line is changed. */
static int add_line(struct ash_keys *keys, char *line, size_t number, struct ash_err *err)
{
    struct entry entry = {.rpm = keys->opts.requests_per_minute, .tpm = keys->opts.tokens_per_minute};
    struct ash_key *key = NULL;
    char *rest = NULL;
    int rc;

    line[strcspn(line, "#\r")] = '\0';
    entry.text = strtok_r(line, " \t", &rest);
    if (entry.text == NULL) return 0;
    for (char *word = strtok_r(NULL, " \t", &rest); word != NULL; word = strtok_r(NULL, " \t", &rest))
        if (read_setting(word, &entry) < 0)
            return ash_err_set(err, -EINVAL,
                               "%s:%zu: after a key come name=…, rpm=… (requests per minute) or tpm=… (tokens)",
                               keys->opts.file, number);
    rc = add_key(keys, &entry, &key, err);
    if (rc == 0) key->is_from_file = true;
    return rc;
}

static int read_file(struct ash_keys *keys, struct ash_err *err)
{
    char *text = NULL, *line, *next;
    size_t size_bytes = 0, number = 1;
    int rc = ash_file_read(keys->opts.file, FILE_BYTES_MAX, &text, &size_bytes, err);

    if (rc < 0) return rc;
    for (struct ash_key *key = keys->first; key != NULL; key = key->next)
        if (key->is_from_file) key->is_active = false;
    for (line = text; rc == 0 && line != NULL; line = next, number++) {
        next = strchr(line, '\n');
        if (next != NULL) *next++ = '\0';
        rc = add_line(keys, line, number, err);
    }
    explicit_bzero(text, size_bytes);
    free(text);
    return rc;
}

/* Were they active before? Kept to be as they were after a file that cannot be read. */
static bool *remember(const struct ash_keys *keys)
{
    bool *was = calloc(keys->count + 1, sizeof(*was));
    size_t i = 0;

    for (const struct ash_key *key = keys->first; was != NULL && key != NULL; key = key->next)
        was[i++] = key->is_active;
    return was;
}

/* Keys are added at the front: the old ones are the last `count`. */
static void restore(struct ash_keys *keys, const bool *was, size_t count)
{
    size_t fresh = keys->count - count, i = 0;

    for (struct ash_key *key = keys->first; key != NULL; key = key->next, i++)
        key->is_active = i >= fresh && was[i - fresh];
}

int ash_keys_reload(struct ash_keys *keys, struct ash_err *err)
{
    bool *was;
    size_t count;
    int rc;

    if (keys->opts.file == NULL) return 0;
    pthread_mutex_lock(&keys->lock);
    count = keys->count;
    was = remember(keys);
    rc = was != NULL ? read_file(keys, err) : ash_err_set(err, -ENOMEM, "no memory to read API keys");
    if (rc < 0 && was != NULL) restore(keys, was, count);
    pthread_mutex_unlock(&keys->lock);
    free(was);
    return rc;
}

static int add_given(struct ash_keys *keys, struct ash_err *err)
{
    const struct ash_keys_opts *opts = &keys->opts;
    struct ash_key *key = NULL;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < opts->key_count; i++) {
        struct entry entry = {.text = opts->keys[i], .rpm = opts->requests_per_minute, .tpm = opts->tokens_per_minute};

        rc =
            entry.text[0] != '\0' ? add_key(keys, &entry, &key, err) : ash_err_set(err, -EINVAL, "an API key is empty");
    }
    if (rc == 0 && opts->admin_key != NULL && opts->admin_key[0] != '\0') {
        rc = add_key(keys, &(struct entry){.text = opts->admin_key, .name = "admin"}, &key, err);
        if (rc == 0) key->is_admin = true;
    }
    return rc;
}

int ash_keys_open(const struct ash_keys_opts *opts, struct ash_keys **keys_out, struct ash_err *err)
{
    struct ash_keys *keys = calloc(1, sizeof(*keys));
    int rc;

    if (keys == NULL) return ash_err_set(err, -ENOMEM, "no memory for API keys");
    keys->opts = *opts;
    pthread_mutex_init(&keys->lock, NULL);
    snprintf(keys->anonymous.name, sizeof(keys->anonymous.name), "-");
    keys->anonymous.lock = &keys->lock;
    set_limit(&keys->anonymous.requests, opts->requests_per_minute);
    set_limit(&keys->anonymous.tokens, opts->tokens_per_minute);
    keys->salt = LASTING_SALT;
    rc = opts->has_lasting_ids || getrandom(&keys->salt, sizeof(keys->salt), 0) == (ssize_t)sizeof(keys->salt)
             ? 0
             : ash_err_set(err, -EIO, "no random numbers: %s", strerror(errno));
    if (rc == 0) rc = add_given(keys, err);
    if (rc == 0) rc = ash_keys_reload(keys, err);
    if (rc < 0) goto fail;
    *keys_out = keys;
    return 0;

fail:
    ash_keys_close(keys);
    return rc;
}

void ash_keys_close(struct ash_keys *keys)
{
    if (keys == NULL) return;
    for (struct ash_key *key = keys->first, *next; key != NULL; key = next) {
        next = key->next;
        explicit_bzero(key->text, sizeof(key->text));
        free(key);
    }
    pthread_mutex_destroy(&keys->lock);
    free(keys);
}
