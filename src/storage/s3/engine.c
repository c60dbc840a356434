/* Many requests at a time with libcurl's multi interface, and the waits between attempts. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "base/math.h"
#include "base/rng.h"
#include "record/metrics.h"
#include "storage/s3/s3_priv.h"

#define WAIT_FIRST_S 0.05 /* doubled at each attempt */
#define WAIT_MOST_S 5.0
#define DRIVE_MS 1000
#define NS_PER_S 1e9

ASH_COUNTER(requests_metric, "ashlar_s3_requests_total", "requests sent to S3, attempts counted singly");
ASH_COUNTER(retries_metric, "ashlar_s3_retries_total", "requests to S3 that were sent again");
ASH_COUNTER(calls_metric, "ashlar_s3_calls_total", "calls of S3 that ended, well or not");
ASH_COUNTER(seconds_metric, "ashlar_s3_call_seconds_total", "time that these took, with all their attempts");
ASH_COUNTER(received_metric, "ashlar_s3_received_bytes_total", "bytes of objects read from S3");
ASH_COUNTER(sent_metric, "ashlar_s3_sent_bytes_total", "bytes of bodies sent to S3");

/* End an attempt: libcurl forgets it. */
static void drop_attempt(struct ash_s3 *s3, struct ash_s3_call *call)
{
    if (call->easy != NULL) {
        s3->curl->multi_remove_handle(s3->multi, call->easy);
        s3->curl->easy_cleanup(call->easy);
    }
    if (call->list != NULL) s3->curl->slist_free_all(call->list);
    call->easy = NULL;
    call->list = NULL;
}

static void unlink_call(struct ash_s3 *s3, const struct ash_s3_call *call)
{
    struct ash_s3_call **at = &s3->calls;

    while (*at != NULL && *at != call)
        at = &(*at)->next;
    if (*at != NULL) *at = call->next;
}

static void finish(struct ash_s3 *s3, struct ash_s3_call *call, int rc)
{
    drop_attempt(s3, call);
    unlink_call(s3, call);
    call->rc = rc;
    call->state = ASH_S3_CALL_DONE;
    ash_metric_add(&calls_metric, 1);
    ash_metric_add(&seconds_metric, (double)(ash_clock_ns() - call->began_ns) / NS_PER_S);
}

static void start_attempt(struct ash_s3 *s3, struct ash_s3_call *call)
{
    int rc = ash_s3_call_prepare(s3, call, &call->err);

    if (rc == 0 && s3->curl->multi_add_handle(s3->multi, call->easy) != CURLM_OK)
        rc = ash_err_set(&call->err, -EIO, "libcurl does not take another request");
    if (rc < 0) {
        finish(s3, call, rc);
        return;
    }
    call->attempts++;
    call->state = ASH_S3_CALL_RUNS;
    ash_metric_add(&requests_metric, 1);
}

/* Seconds before the next attempt: twice as long each time, and a random part of it, so that many clients which failed
 * together do not come back together. */
static double pause_s(struct ash_s3 *s3, const struct ash_s3_call *call)
{
    double most = WAIT_FIRST_S;

    for (unsigned i = 1; i < call->attempts && most < WAIT_MOST_S; i++)
        most *= 2;
    most = most < WAIT_MOST_S ? most : WAIT_MOST_S;
    most *= 0.5 + 0.5 * ash_rng_uniform(s3->jitter, 0, call->attempts + call->began_ns);
    return most > call->answer.retry_after_s ? most : call->answer.retry_after_s;
}

static void try_again(struct ash_s3 *s3, struct ash_s3_call *call, bool is_at_once)
{
    double wait_s = is_at_once ? 0 : pause_s(s3, call);
    double spent_s = (double)(ash_clock_ns() - call->began_ns) / NS_PER_S;

    if (spent_s + wait_s > s3->opts.retry_s && !is_at_once) {
        if (call->attempts > 1) {
            char text[ASH_ERR_TEXT_BYTES];

            snprintf(text, sizeof(text), "%s", call->err.text);
            ash_err_set(&call->err, call->rc, "%.400s (%u attempts in %.0f s)", text, call->attempts, spent_s);
        }
        finish(s3, call, call->rc);
        return;
    }
    if (s3->opts.on_retry != NULL && !is_at_once) s3->opts.on_retry(s3->opts.on_retry_ctx, call->err.text, wait_s);
    drop_attempt(s3, call);
    ash_metric_add(&retries_metric, 1);
    call->due_ns = ash_clock_ns() + (uint64_t)(wait_s * NS_PER_S);
    call->state = ASH_S3_CALL_WAITS;
}

static void end_attempt(struct ash_s3 *s3, struct ash_s3_call *call, CURLcode code)
{
    enum ash_s3_verdict verdict = ash_s3_call_judge(s3, call, code);

    if (verdict == ASH_S3_GOOD) {
        ash_metric_add(&received_metric, (double)call->got_bytes);
        ash_metric_add(&sent_metric, (double)call->body_bytes);
        finish(s3, call, 0);
    } else if (verdict == ASH_S3_BAD) {
        finish(s3, call, call->rc);
    } else {
        try_again(s3, call, verdict == ASH_S3_AGAIN_AT_ONCE);
    }
}

void ash_s3_submit(struct ash_s3 *s3, struct ash_s3_call *call)
{
    ash_assert(call->state == ASH_S3_CALL_NEW || call->state == ASH_S3_CALL_DONE);
    call->attempts = 0;
    call->has_set_clock = call->has_renewed_keys = false;
    call->began_ns = ash_clock_ns();
    call->due_ns = 0;
    call->state = ASH_S3_CALL_WAITS;
    call->next = s3->calls;
    s3->calls = call;
}

/* Start due calls. Returns milliseconds until the next is due, at most DRIVE_MS; 0 if one ended at once. */
static int start_due(struct ash_s3 *s3)
{
    uint64_t now_ns = ash_clock_ns();
    struct ash_s3_call *call, *next;
    int wait_ms = DRIVE_MS;

    for (call = s3->calls; call != NULL; call = next) {
        next = call->next;
        if (call->state != ASH_S3_CALL_WAITS) continue;
        if (call->due_ns > now_ns) {
            wait_ms = (int)ash_min((size_t)wait_ms, (size_t)((call->due_ns - now_ns) / 1000000 + 1));
            continue;
        }
        start_attempt(s3, call);
        if (call->state == ASH_S3_CALL_DONE) wait_ms = 0;
    }
    return wait_ms;
}

/* End the calls that libcurl has finished. Returns their number. */
static size_t take_ended(struct ash_s3 *s3)
{
    const CURLMsg *message;
    size_t count = 0;
    int left = 0;

    while ((message = s3->curl->multi_info_read(s3->multi, &left)) != NULL) {
        CURLcode code = message->data.result;
        void *call = NULL;

        if (message->msg != CURLMSG_DONE) continue;
        s3->curl->easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &call);
        end_attempt(s3, call, code);
        count++;
    }
    return count;
}

/* One round of everything that does not wait. *wait_ms_out: longest wait for the next, 0 if there are events. */
static int turn(struct ash_s3 *s3, int *wait_ms_out, struct ash_err *err)
{
    int running = 0, wait_ms = start_due(s3);

    if (ash_interrupt_ends_wait((uint64_t)(s3->opts.interrupt_s * NS_PER_S)))
        return ash_err_set(err, -EINTR, "stopped");
    if (s3->curl->multi_perform(s3->multi, &running) != CURLM_OK) return ash_err_set(err, -EIO, "libcurl fails");
    ash_s3_acknowledge(s3);
    *wait_ms_out = take_ended(s3) > 0 ? 0 : wait_ms;
    return 0;
}

int ash_s3_drive_now(struct ash_s3 *s3, struct ash_err *err)
{
    int wait_ms = 0;

    return turn(s3, &wait_ms, err);
}

int ash_s3_drive(struct ash_s3 *s3, struct ash_err *err)
{
    int wait_ms = 0, rc = turn(s3, &wait_ms, err);

    if (rc < 0 || wait_ms == 0) return rc;
    if (s3->curl->multi_poll(s3->multi, NULL, 0, wait_ms, NULL) != CURLM_OK)
        return ash_err_set(err, -EIO, "libcurl cannot wait");
    return 0;
}

int ash_s3_wait(struct ash_s3 *s3, struct ash_s3_call *call, struct ash_err *err)
{
    while (call->state != ASH_S3_CALL_DONE) {
        int rc = ash_s3_drive(s3, err);

        if (rc < 0) return rc;
    }
    return call->rc < 0 ? ash_err_set(err, call->rc, "%s", call->err.text) : 0;
}

int ash_s3_perform(struct ash_s3 *s3, struct ash_s3_call *call, struct ash_err *err)
{
    ash_s3_submit(s3, call);
    return ash_s3_wait(s3, call, err);
}

void ash_s3_call_fini(struct ash_s3 *s3, struct ash_s3_call *call)
{
    drop_attempt(s3, call);
    unlink_call(s3, call);
    ash_str_fini(&call->text);
    call->state = ASH_S3_CALL_NEW;
}
