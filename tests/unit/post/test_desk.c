/* The desk of samplers: whoever draws, in whatever order, and whoever is lost or says nothing, the answers are those of
 * a plain loop over the tasks. DESK_CASES and DESK_SEED draw more. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/rng.h"
#include "base/socket.h"
#include "base/thread.h"
#include "post/rl/desk.h"

#define SAMPLERS 4
#define ORDERS 3
#define PIECES 3
#define PROMPT 3
#define SECONDS 300.0 /* only for what hangs */
#define FACTS "weights 12\nprecision 0\n"

enum habit { DRAWS, DIES, STALLS, SENDS_BYTES, HABITS };

struct sampler {
    const char *dir;
    enum habit habit;
    uint32_t works; /* until its habit shows */
    atomic_bool *ends;
    uint64_t drawn;
    pthread_t thread;
};

/* Token t of an answer: a function of its task. */
static int32_t token_of(uint64_t seed, uint32_t t)
{
    return (int32_t)(ash_hash_mix(seed + t) >> 40);
}

/* Of a whole answer. */
static uint32_t length_of(uint64_t seed)
{
    return 1 + (uint32_t)(ash_hash_mix(seed) % 12);
}

/* Tokens of an answer after each of the orders that draw it, one after the other. */
static const uint32_t reach[PIECES + 1] = {0, 5, 8, 12};

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static bool send_all(int fd, struct ash_str *out)
{
    int rc = out->rc < 0 ? out->rc : ash_socket_send(fd, out->data, out->size_bytes, ash_deadline_in(SECONDS));

    ash_str_clear(out);
    return rc == 0;
}

static void add_answer(struct ash_str *out, const struct ash_wire_task *task)
{
    int32_t ids[64];
    float logps[64];
    uint32_t at = task->count - PROMPT, count = least(task->more, length_of(task->seed) - at);

    for (uint32_t t = 0; t < count; t++) {
        ids[t] = token_of(task->seed, at + t);
        logps[t] = -(float)t;
    }
    (void)ash_wire_add_answer(out, &(struct ash_wire_answer){.order = task->order,
                                                             .group = task->group,
                                                             .answer = task->answer,
                                                             .has_ended = at + count == length_of(task->seed),
                                                             .count = count,
                                                             .ids = ids,
                                                             .logps = logps});
}

/* A message of answers to the tasks of a body. */
static void answer_all(struct ash_str *out, struct ash_wire_reader *body)
{
    struct ash_wire_times times = {.sampling = 1};
    ssize_t start = ash_wire_begin(out, ASH_WIRE_ANSWERS);
    struct ash_wire_task task;

    (void)ash_str_add(out, &times, sizeof(times));
    while (body != NULL && ash_wire_next_task(body, &task) > 0)
        add_answer(out, &task);
    ash_wire_end(out, (size_t)start);
}

static void *sample(void *arg)
{
    struct sampler *self = arg;
    struct ash_desk_place place = {0};
    struct ash_str out = {0};
    uint8_t *body = malloc(1 << 20);
    int fd = -1;
    bool is_good = body != NULL && ash_desk_find(self->dir, &place) == 0;

    while (is_good && fd < 0 && !atomic_load(self->ends)) /* the desk may have closed before */
        fd = ash_socket_connect(place.host, (int)place.port, ash_deadline_in(0.05), NULL);
    is_good = fd >= 0 && ash_wire_add_text(&out, ASH_WIRE_HELLO, FACTS) == 0 && send_all(fd, &out);
    while (is_good) {
        struct ash_wire_head head;
        struct ash_wire_reader reader;
        struct ash_wire_work work;

        if (ash_socket_recv(fd, &head, sizeof(head), ash_deadline_in(SECONDS)) < 0) break;
        if (head.size_bytes > 1 << 20 || ash_socket_recv(fd, body, head.size_bytes, ash_deadline_in(SECONDS)) < 0)
            break;
        if (head.kind == ASH_WIRE_BYE || head.kind == ASH_WIRE_REFUSED) break;
        if (head.kind != ASH_WIRE_WORK) continue; /* welcome: work follows by itself */
        if (self->habit != DRAWS && self->works-- == 0) {
            if (self->habit == SENDS_BYTES)
                is_good = ash_str_adds(&out, "GET / HTTP/1.1\r\n\r\n") == 0 && send_all(fd, &out);
            while (self->habit == STALLS && !atomic_load(self->ends))
                usleep(1000);
            break;
        }
        reader = (struct ash_wire_reader){body, head.size_bytes, 0};
        (void)ash_wire_read(&reader, &work, sizeof(work));
        answer_all(&out, &reader);
        self->drawn++;
        is_good = send_all(fd, &out);
    }
    if (fd >= 0) close(fd);
    ash_str_fini(&out);
    free(body);
    return NULL;
}

/* The next answer that is expected. */
struct expected {
    uint64_t seed, order;
    uint32_t groups, samples, next;
    uint32_t piece;
};

static uint64_t seed_of(const struct expected *expected, uint32_t answer)
{
    return ash_hash_mix(expected->seed ^ (expected->order << 32) ^ answer);
}

/* Answers that have ended in an earlier piece get no task. */
static void skip_ended(struct expected *expected)
{
    while (expected->next < expected->groups * expected->samples &&
           length_of(seed_of(expected, expected->next)) <= reach[expected->piece])
        expected->next++;
}

static int take(void *ctx, const struct ash_wire_answer *answer)
{
    struct expected *expected = ctx;
    uint32_t first = reach[expected->piece];
    uint64_t seed;

    skip_ended(expected);
    seed = seed_of(expected, expected->next);
    assert_int_equal(answer->answer, expected->next);
    assert_int_equal(answer->count, least(length_of(seed), reach[expected->piece + 1]) - first);
    for (uint32_t t = 0; t < answer->count; t++)
        assert_int_equal(answer->ids[t], token_of(seed, first + t));
    expected->next++;
    return 0;
}

static void submit(struct ash_desk *desk, const struct expected *expected)
{
    struct ash_wire_work work = {.serial = expected->order};
    struct ash_str tasks = {0};
    int32_t prompt[PROMPT] = {7, 8, 9};

    for (uint32_t a = 0; a < expected->groups * expected->samples; a++)
        assert_int_equal(ash_wire_add_task(&tasks, &(struct ash_wire_task){.order = expected->order,
                                                                           .seed = seed_of(expected, a),
                                                                           .group = a / expected->samples,
                                                                           .answer = a,
                                                                           .more = reach[1],
                                                                           .count = PROMPT,
                                                                           .ids = prompt}),
                         0);
    assert_int_equal(ash_desk_submit(desk, expected->order, &work, &tasks, NULL), 0);
    ash_str_fini(&tasks);
}

/* What continues an order, with other weights. */
static void follow(struct ash_desk *desk, const struct expected *expected, uint32_t piece)
{
    struct ash_wire_work work = {.serial = expected->order + piece * ORDERS};
    struct ash_desk_continued continued = {expected->order + (piece - 1) * ORDERS, reach[piece + 1] - reach[piece]};

    assert_int_equal(ash_desk_follow(desk, expected->order + piece * ORDERS, &work, &continued, NULL), 0);
}

/* Wait for an order and what continues it, which is handed out as they come. */
static void wait_for(struct ash_desk *desk, struct expected *expected, uint32_t pieces)
{
    for (uint32_t piece = 0; piece < pieces; piece++) {
        struct ash_err err = {0};
        int rc;

        expected->piece = piece;
        expected->next = 0;
        rc = ash_desk_wait(desk, expected->order + piece * ORDERS, take, expected, &err);
        if (rc < 0)
            fail_msg("seed %llu, order %llu, piece %u: %s", (unsigned long long)expected->seed,
                     (unsigned long long)expected->order, piece, err.text);
        skip_ended(expected);
        assert_int_equal(expected->next, expected->groups * expected->samples);
    }
}

static void run_case(const char *dir, uint64_t seed)
{
    uint64_t drawn = 0;
    struct ash_desk_opts opts = {
        .dir = dir, .host = "127.0.0.1", .facts = FACTS, .silence_s = 0.1, .patience_s = SECONDS};
    struct sampler samplers[SAMPLERS];
    struct expected orders[ORDERS];
    struct ash_desk *desk = NULL;
    atomic_bool ends = false;

    assert_int_equal(ash_desk_open(&opts, &desk, NULL), 0);
    for (size_t i = 0; i < SAMPLERS; i++) {
        samplers[i] = (struct sampler){.dir = dir, .habit = DRAWS, .ends = &ends};
        if (i > 0) samplers[i].habit = (enum habit)ash_rng_below(seed, 0, drawn++, HABITS);
        samplers[i].works = (uint32_t)ash_rng_below(seed, 0, drawn++, 4);
        assert_int_equal(ash_thread_start(&samplers[i].thread, sample, &samplers[i]), 0);
    }
    for (uint64_t i = 0; i < ORDERS; i++) {
        orders[i] = (struct expected){.seed = seed, .order = i + 1};
        orders[i].groups = 1 + (uint32_t)ash_rng_below(seed, 0, drawn++, 9);
        orders[i].samples = 1 + (uint32_t)ash_rng_below(seed, 0, drawn++, 3);
        submit(desk, &orders[i]);
    }
    for (uint32_t piece = 1; piece < PIECES; piece++)
        for (size_t i = 0; i < ORDERS; i++)
            follow(desk, &orders[i], piece);
    for (size_t i = 0; i < ORDERS; i++)
        wait_for(desk, &orders[i], PIECES);
    atomic_store(&ends, true);
    ash_desk_close(desk);
    for (size_t i = 0; i < SAMPLERS; i++)
        pthread_join(samplers[i].thread, NULL);
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static void test_answers_do_not_depend_on_samplers(void **state)
{
    char dir[] = "/dev/shm/ashlar-desk-XXXXXX", path[64];
    uint64_t seed = number_of("DESK_SEED", 1), cases = number_of("DESK_CASES", 12);

    (void)state;
    assert_non_null(mkdtemp(dir));
    for (uint64_t i = 0; i < cases; i++)
        run_case(dir, seed + i);
    snprintf(path, sizeof(path), "%s/samplers.json", dir);
    unlink(path);
    rmdir(dir);
}

static void test_without_samplers_the_wait_ends(void **state)
{
    char dir[] = "/dev/shm/ashlar-desk-XXXXXX", path[64];
    struct ash_desk_opts opts = {.dir = dir, .host = "127.0.0.1", .facts = FACTS, .silence_s = 0.1, .patience_s = 0.01};
    struct expected order = {.seed = 1, .order = 1, .groups = 1, .samples = 1};
    struct ash_desk *desk = NULL;
    struct ash_err err = {0};

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(ash_desk_open(&opts, &desk, NULL), 0);
    submit(desk, &order);
    assert_int_equal(ash_desk_wait(desk, 1, take, &order, &err), -ETIMEDOUT);
    assert_non_null(strstr(err.text, "rollout.patience"));
    ash_desk_close(desk);
    snprintf(path, sizeof(path), "%s/samplers.json", dir);
    unlink(path);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_answers_do_not_depend_on_samplers),
                                       cmocka_unit_test(test_without_samplers_the_wait_ends)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
