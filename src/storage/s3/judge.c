/* What an answer means: good, bad with a sentence that a user can act on, or worth another attempt. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "storage/s3/doc_priv.h"
#include "storage/s3/s3_priv.h"

#define SKEW_S 240.0 /* servers allow 15 minutes; a clock that is this far off is worth a correction */
#define FEW_ATTEMPTS 3
#define NAME_BYTES 320

/* "s3://bucket/key", shortened, for the beginning of a sentence. */
static const char *name_of(const struct ash_s3 *s3, const struct ash_s3_call *call, char *buf)
{
    const char *key = call->key != NULL ? call->key : "";

    if (strlen(key) > 200)
        snprintf(buf, NAME_BYTES, "s3://%.80s/%.160s...", s3->bucket, key);
    else
        snprintf(buf, NAME_BYTES, "s3://%.80s/%s", s3->bucket, key);
    return buf;
}

static enum ash_s3_verdict say(const struct ash_s3 *s3, struct ash_s3_call *call, enum ash_s3_verdict verdict, int rc,
                               const char *sentence)
{
    char name[NAME_BYTES];

    call->rc = ash_err_set(&call->err, rc, "%s: %.180s", name_of(s3, call, name), sentence);
    return verdict;
}

/* ---- transfers that did not end well ----------------------------------------------------------------------------- */

static enum ash_s3_verdict judge_transfer(struct ash_s3 *s3, struct ash_s3_call *call, CURLcode code)
{
    const char *host = s3->endpoint.host;
    long sent_bytes = 0;
    char why[256];

    s3->curl->easy_getinfo(call->easy, CURLINFO_REQUEST_SIZE, &sent_bytes);
    switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
        snprintf(why, sizeof(why),
                 "the certificate of %.80s is not trusted: s3.ca_file or AWS_CA_BUNDLE names other authorities", host);
        return say(s3, call, ASH_S3_BAD, -EACCES, why);
    case CURLE_WRITE_ERROR:
        return say(s3, call, ASH_S3_BAD, -EPROTO, "the server sends more than was asked for");
    case CURLE_COULDNT_RESOLVE_HOST:
        snprintf(why, sizeof(why), "there is no host %.80s: check s3.endpoint and s3.region", host);
        return say(s3, call, call->attempts < FEW_ATTEMPTS ? ASH_S3_AGAIN : ASH_S3_BAD, -EHOSTUNREACH, why);
    case CURLE_SSL_CONNECT_ERROR:
        snprintf(why, sizeof(why), "%.80s does not speak TLS, or none that fits: check s3.endpoint", host);
        return say(s3, call, call->attempts < FEW_ATTEMPTS ? ASH_S3_AGAIN : ASH_S3_BAD, -EPROTO, why);
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
        /* Once the request is sent, it is the answer that libcurl does not understand. While a server is away, another
         * process may have its port, or a connection may have met itself: the server may come back. */
        if (sent_bytes > 0) {
            snprintf(why, sizeof(why), "what answers at %.80s does not speak HTTP: check s3.endpoint", host);
            return say(s3, call, ASH_S3_AGAIN, -EPROTO, why);
        }
        return say(s3, call, ASH_S3_BAD, -EINVAL, "libcurl does not understand the address: check s3.endpoint");
    case CURLE_COULDNT_CONNECT:
        snprintf(why, sizeof(why), "cannot connect to %.80s", host);
        return say(s3, call, ASH_S3_AGAIN, -ETIMEDOUT, why);
    case CURLE_PARTIAL_FILE:
        return say(s3, call, ASH_S3_AGAIN, -EIO, "the server's answer ends too early");
    default:
        snprintf(why, sizeof(why), "the connection to %.80s failed: %s", host, s3->curl->easy_strerror(code));
        return say(s3, call, ASH_S3_AGAIN, -EIO, why);
    }
}

/* ---- answers with an error --------------------------------------------------------------------------------------- */

static bool is_one_of(const char *code, const char *const *codes)
{
    for (; *codes != NULL; codes++)
        if (strcmp(code, *codes) == 0) return true;
    return false;
}

static bool is_passing(long status, const char *code)
{
    static const char *const codes[] = {
        "SlowDown", "InternalError", "RequestTimeout", "ServiceUnavailable", "Throttling", "OperationAborted", NULL};

    return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 || status == 504 ||
           is_one_of(code, codes);
}

/* A wrong clock is corrected by the server's, once. HEAD has no body with the reason of a refusal. */
static bool corrects_clock(struct ash_s3 *s3, struct ash_s3_call *call, const char *code)
{
    double skew_s = call->answer.date_s - ash_clock_wall_s();
    bool is_blamed =
        strcmp(code, "RequestTimeTooSkewed") == 0 || strcmp(code, "RequestExpired") == 0 || code[0] == '\0';

    if (call->has_set_clock || call->answer.status != 403 || call->answer.date_s <= 0 || !is_blamed) return false;
    if (fabs(skew_s - s3->skew_s) < SKEW_S) return false;
    s3->skew_s = skew_s;
    call->has_set_clock = true;
    return true;
}

static bool renews_keys(struct ash_s3 *s3, struct ash_s3_call *call, const char *code)
{
    static const char *const codes[] = {"ExpiredToken", "TokenRefreshRequired", NULL};

    if (call->has_renewed_keys || !is_one_of(code, codes)) return false;
    call->has_renewed_keys = true;
    return ash_s3_renew_keys(s3, true, NULL) == 0;
}

/* Refusals that have a cause of their own. Returns 0 where code is none of them. */
static int explain_refusal(const struct ash_s3 *s3, const struct ash_s3_call *call, const struct ash_s3_doc *doc,
                           char *why, size_t why_bytes)
{
    static const char *const expired[] = {"ExpiredToken", "TokenRefreshRequired", "InvalidToken", NULL};
    static const char *const regions[] = {"AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect",
                                          "IllegalLocationConstraintException", NULL};
    const char *region = doc->region[0] != '\0' ? doc->region : call->answer.region;

    if (strcmp(doc->code, "NoSuchBucket") == 0) {
        snprintf(why, why_bytes, "there is no bucket '%.80s' at %.80s", s3->bucket, s3->endpoint.host);
        return -ENOENT;
    }
    if (strcmp(doc->code, "InvalidAccessKeyId") == 0) {
        snprintf(why, why_bytes, "the server does not know the access key '%.40s'", s3->keys.access);
        return -EACCES;
    }
    if (strcmp(doc->code, "SignatureDoesNotMatch") == 0) {
        snprintf(why, why_bytes, "the secret key is not the one of access key '%.40s'", s3->keys.access);
        return -EACCES;
    }
    if (strcmp(doc->code, "RequestTimeTooSkewed") == 0) {
        snprintf(why, why_bytes, "this machine's clock is wrong by %.0f s: set it",
                 call->answer.date_s - ash_clock_wall_s());
        return -EACCES;
    }
    if (is_one_of(doc->code, expired)) {
        snprintf(why, why_bytes, "the keys have expired: get new ones");
        return -EACCES;
    }
    if (region[0] != '\0' && strcmp(region, s3->region) != 0 &&
        (is_one_of(doc->code, regions) || call->answer.status / 100 == 3 || call->answer.status == 400)) {
        snprintf(why, why_bytes, "the bucket is in region %.60s, not %.60s: set s3.region=%.60s or AWS_REGION", region,
                 s3->region, region);
        return -EINVAL;
    }
    return 0;
}

/* The rest by status. */
static int explain_status(const struct ash_s3 *s3, const struct ash_s3_call *call, const struct ash_s3_doc *doc,
                          char *why, size_t why_bytes)
{
    bool wants_absent = false;

    for (size_t i = 0; i < call->header_count; i++)
        wants_absent = wants_absent || strcmp(call->headers[i].name, "if-none-match") == 0;
    switch (call->answer.status) {
    case 403:
        snprintf(why, why_bytes, "access denied for access key '%.40s'", s3->keys.access);
        return -EACCES;
    case 404:
        snprintf(why, why_bytes, "%s",
                 strcmp(doc->code, "NoSuchUpload") == 0 ? "the upload is not there any more"
                                                        : "there is no such object");
        return -ENOENT;
    case 409:
    case 412:
        snprintf(why, why_bytes, "%s", wants_absent ? "the object is there already" : "the object has changed");
        return wants_absent ? -EEXIST : -ESTALE;
    case 416:
        snprintf(why, why_bytes, "the range is not inside the object");
        return -ERANGE;
    case 501:
        snprintf(why, why_bytes, "the server cannot do this: %.100s", doc->message);
        return -ENOTSUP;
    default:
        snprintf(why, why_bytes, "the server answers with status %ld%s%.60s%s%.100s", call->answer.status,
                 doc->code[0] != '\0' ? ", " : "", doc->code, doc->message[0] != '\0' ? ": " : "", doc->message);
        return -EIO;
    }
}

/* doc is the error document, zeroed if there was none. */
static enum ash_s3_verdict judge_refusal(struct ash_s3 *s3, struct ash_s3_call *call, const struct ash_s3_doc *doc)
{
    char why[256];
    int rc;

    if (is_passing(call->answer.status, doc->code)) {
        snprintf(why, sizeof(why), "the server is busy or fails (status %ld%s%.60s)", call->answer.status,
                 doc->code[0] != '\0' ? ", " : "", doc->code);
        return say(s3, call, ASH_S3_AGAIN, -ETIMEDOUT, why);
    }
    rc = explain_refusal(s3, call, doc, why, sizeof(why));
    if (rc == 0) rc = explain_status(s3, call, doc, why, sizeof(why));
    say(s3, call, ASH_S3_BAD, rc, why);
    if (corrects_clock(s3, call, doc->code) || renews_keys(s3, call, doc->code)) return ASH_S3_AGAIN_AT_ONCE;
    return ASH_S3_BAD;
}

/* ---- good ones --------------------------------------------------------------------------------------------------- */

static enum ash_s3_verdict judge_body(struct ash_s3 *s3, struct ash_s3_call *call)
{
    if (call->range != NULL &&
        (call->answer.status != 206 || strncmp(call->answer.content_range, call->range, strlen(call->range)) != 0))
        return say(s3, call, ASH_S3_BAD, -EPROTO, "the server answers with another range than the one asked for");
    if (call->into != NULL && call->got_bytes != call->into_bytes)
        return say(s3, call, ASH_S3_AGAIN, -EIO, "the server's answer ends too early");
    return ASH_S3_GOOD;
}

enum ash_s3_verdict ash_s3_call_judge(struct ash_s3 *s3, struct ash_s3_call *call, CURLcode code)
{
    struct ash_s3_doc doc = {0};
    enum ash_s3_verdict verdict;
    bool is_error;

    s3->curl->easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &call->answer.status);
    if (code != CURLE_OK) return judge_transfer(s3, call, code);
    /* An upload may be completed with status 200 and an error in the body. */
    is_error = call->answer.status < 200 || call->answer.status > 299;
    if ((is_error || strcmp(call->method, "POST") == 0) && call->text.size_bytes > 0)
        (void)ash_s3_doc_parse(call->text.data, call->text.size_bytes, "Error", &doc, NULL);
    if (is_error || doc.code[0] != '\0')
        verdict = judge_refusal(s3, call, &doc);
    else
        verdict = judge_body(s3, call);
    ash_s3_doc_fini(&doc);
    return verdict;
}
