/* s3 (private) - a client, and one request of it: built, signed, sent, judged, perhaps sent again. */
#ifndef ASH_STORAGE_S3_S3_PRIV_H
#define ASH_STORAGE_S3_S3_PRIV_H

#include "base/str.h"
#include "http/curl.h"
#include "storage/s3/digest_priv.h"
#include "storage/s3/keys_priv.h"
#include "storage/s3/s3.h"
#include "storage/s3/url.h"

#define ASH_S3_PAIRS_MAX 8
#define ASH_S3_SOCKETS_MAX 257 /* connections and one */
#define ASH_S3_RANGE_BYTES 64  /* of the text of a range */
#define ASH_S3_PART_HEADER "x-amz-meta-ashlar-part-bytes"

struct ash_s3 {
    const struct ash_curl *curl;
    struct ash_s3_opts opts;
    struct ash_s3_endpoint endpoint;
    char bucket[ASH_S3_BUCKET_BYTES], region[ASH_S3_SETTING_BYTES], ca_file[ASH_S3_SETTING_BYTES];
    bool is_host_style;
    struct ash_s3_keys keys;
    uint64_t keys_read_ns; /* when they were looked for last */
    double skew_s;         /* the server's clock less this one */
    CURLM *multi;
    curl_socket_t sockets[ASH_S3_SOCKETS_MAX]; /* that are open, as far as there is room for them */
    size_t socket_count;
    bool wants_ack;            /* the head of an answer came: see ash_s3_acknowledge */
    struct ash_s3_call *calls; /* those that are not done */
    uint64_t jitter;           /* counter of random numbers */
};

/* The headers of an answer. */
struct ash_s3_answer {
    long status;
    uint64_t content_length, part_bytes;
    bool has_length, is_encrypted;
    char etag[ASH_S3_ETAG_BYTES], content_range[96], region[ASH_S3_SETTING_BYTES];
    double date_s, modified_s, retry_after_s;
};

enum ash_s3_state { ASH_S3_CALL_NEW, ASH_S3_CALL_WAITS, ASH_S3_CALL_RUNS, ASH_S3_CALL_DONE };

/* A request and its answer. Zero-initialise it, fill the first part; everything is borrowed until it is done. */
struct ash_s3_call {
    const char *method, *key; /* key NULL: the bucket */
    struct ash_s3_pair query[ASH_S3_PAIRS_MAX], headers[ASH_S3_PAIRS_MAX];
    size_t query_count, header_count;
    const void *body;
    size_t body_bytes;
    void *into; /* where the body of a good answer goes, exactly into_bytes; NULL: into text */
    size_t into_bytes;
    const char *range; /* the Content-Range that a good answer begins with ("bytes 0-9/"); NULL: none */

    struct ash_s3_answer answer;
    struct ash_str text; /* the body, unless it goes to into */
    int rc;              /* once it is done */
    struct ash_err err;

    enum ash_s3_state state; /* from here on the engine's */
    struct ash_s3 *s3;
    CURL *easy;
    struct curl_slist *list;
    char payload_hash[ASH_SHA256_HEX_BYTES];
    size_t got_bytes;
    unsigned attempts;
    uint64_t began_ns, due_ns;
    bool has_set_clock, has_renewed_keys;
    struct ash_s3_call *next;
};

/* What becomes of a call after an attempt. */
enum ash_s3_verdict { ASH_S3_GOOD, ASH_S3_BAD, ASH_S3_AGAIN, ASH_S3_AGAIN_AT_ONCE };

/* Build and sign the next attempt of a call: call->easy and call->list. Returns 0 or a negative errno. */
int ash_s3_call_prepare(struct ash_s3 *s3, struct ash_s3_call *call, struct ash_err *err);
/* Judge an attempt that ended with code. Fills call->rc and call->err but for ASH_S3_GOOD. */
enum ash_s3_verdict ash_s3_call_judge(struct ash_s3 *s3, struct ash_s3_call *call, CURLcode code);
/* Acknowledge received packets at once if they had the head of an answer. Some servers send it by itself and hold a
 * short body back until it is acknowledged, which the system would delay by 40 ms. */
void ash_s3_acknowledge(struct ash_s3 *s3);
/* Add a parameter of the query; value is borrowed. */
void ash_s3_call_ask(struct ash_s3_call *call, const char *name, const char *value);
/* Add a header; its name is in lower case, and both are borrowed. */
void ash_s3_call_tell(struct ash_s3_call *call, const char *name, const char *value);

/* Start a call. It is done in ash_s3_drive; an error of preparing it is the call's. */
void ash_s3_submit(struct ash_s3 *s3, struct ash_s3_call *call);
/* Move all calls on; waits at most a second for something to happen. Returns 0, or -EINTR on a stop request, or -EIO if
 * libcurl fails. */
int ash_s3_drive(struct ash_s3 *s3, struct ash_err *err);
/* The same without waiting. */
int ash_s3_drive_now(struct ash_s3 *s3, struct ash_err *err);
/* Drive until call is done. Returns its rc with its sentence. */
int ash_s3_wait(struct ash_s3 *s3, struct ash_s3_call *call, struct ash_err *err);
/* Submit and wait. */
int ash_s3_perform(struct ash_s3 *s3, struct ash_s3_call *call, struct ash_err *err);
/* A range that is being read, and the texts that its call borrows. */
struct ash_s3_range_call {
    struct ash_s3_call call;
    char range[ASH_S3_RANGE_BYTES], answer[ASH_S3_RANGE_BYTES];
};
/* Start to read range, which is not empty, into data. call->call is new; end it with ash_s3_call_fini. */
void ash_s3_submit_range(struct ash_s3 *s3, struct ash_s3_range_call *call, const struct ash_s3_range *range,
                         void *data);

/* Free the members, and abort it if it is pending. A zeroed one is a no-op. */
void ash_s3_call_fini(struct ash_s3 *s3, struct ash_s3_call *call);

/* Look for keys again where they end soon, or (is_refused) where the server calls them expired. Returns 0 or the error
 * of looking. */
int ash_s3_renew_keys(struct ash_s3 *s3, bool is_refused, struct ash_err *err);

#endif
