/* keys - access control: API keys from flags, environment and a file, each with its limits. Any thread. */
#ifndef ASH_HTTP_KEYS_H
#define ASH_HTTP_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

#define ASH_KEY_NAME_BYTES 32
#define ASH_KEY_BYTES_MAX 512

/* One key's standing, valid as long as the keys are open: also when a later read of the file drops the key. */
struct ash_key;
struct ash_keys;

struct ash_keys_opts {
    const char *const *keys; /* may call */
    size_t key_count;
    const char *file;      /* one key a line, then perhaps name=… rpm=… tpm=…; # begins a comment; NULL: none */
    const char *admin_key; /* opens admin routes too; NULL: they are closed */
    double requests_per_minute; /* of a key without rpm=; 0: no limit */
    double tokens_per_minute;   /* likewise tpm= */
    bool has_lasting_ids;       /* a key's id is the same in other processes, too: it names what outlives this one */
};

/* State of a token bucket. */
struct ash_key_quota {
    double limit, left;   /* per minute; now */
    double reset_seconds; /* until it is full */
};

/* Read the file and keep all. opts is copied, its pointers are borrowed until close. Without any key all clients are
 * admitted. */
int ash_keys_open(const struct ash_keys_opts *opts, struct ash_keys **keys_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_keys_close(struct ash_keys *keys);
/* Read the file again. On error the keys are as they were. */
int ash_keys_reload(struct ash_keys *keys, struct ash_err *err);

/* Must a request bring a key? */
bool ash_keys_are_needed(struct ash_keys *keys);
/* The key with this text, or NULL. Takes the same time whatever the text has in common with a key. */
struct ash_key *ash_keys_find(struct ash_keys *keys, const char *text);
/* The key that all clients without one share. */
struct ash_key *ash_keys_anonymous(struct ash_keys *keys);
/* Does it open admin routes? */
bool ash_key_is_admin(const struct ash_key *key);
/* Is it the one that all clients without a key share? */
bool ash_key_is_anonymous(const struct ash_key *key);
/* A name for logs: the file's name=, or a number. Never the key. */
const char *ash_key_name(const struct ash_key *key);
/* A number that is the same for one key in one process, and reveals nothing of it; with has_lasting_ids it is the same
 * in all, and a weak key could be guessed from it. */
uint64_t ash_key_id(const struct ash_key *key);

/* Take one request from the key's limits. Returns 0, or -EAGAIN with *wait_out seconds until there is room. */
int ash_key_take_request(struct ash_key *key, double *wait_out);
/* Take tokens that were used; the balance may fall below 0, and then take_request waits. */
void ash_key_take_tokens(struct ash_key *key, double tokens);
/* The state of both; limit 0: there is none. */
void ash_key_quotas(struct ash_key *key, struct ash_key_quota *requests_out, struct ash_key_quota *tokens_out);

#endif
