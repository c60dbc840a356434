/* The engine loop: whatever shares the passes, however the work is cut, and whatever is cached, preempted, drafted or
 * cancelled, tokens are those of one request at a time and log-probabilities are the evaluation's, to the bit. */
#include "unit/serve/engine/core_oracle.h"

#define CASES (SANITIZED_THREADS ? 6 : SANITIZED ? 15 : 60)

struct shape {
    struct ash_core_opts opts;
    size_t threads, pages, cancels;
};

static struct shape draw_shape(const struct ash_model *model)
{
    struct shape shape = {.threads = 1 + draw(3), .cancels = draw(3) == 0 ? draw(REQUESTS) : 0};
    size_t least = ash_cache_pages_for(POSITIONS);

    shape.opts.vocab_trie = trie;
    shape.opts.max_seqs = 1 + draw(draw(2) == 0 ? 4 : 16);
    shape.opts.max_batch_rows = shape.opts.max_seqs + draw(draw(2) == 0 ? 8 : 100);
    shape.pages = draw(2) == 0 ? least + draw(4) : least + draw(60);
    shape.opts.kv_bytes = shape.pages * ASH_CACHE_PAGE_TOKENS * ash_cache_token_bytes(model);
    shape.opts.has_no_prefix_cache = draw(3) == 0;
    shape.opts.speculate = draw(2) == 0 ? draw(7) : 0;
    shape.opts.step_seconds = draw(2) == 0 ? 1e-9 : 0.0;
    return shape;
}

static void check_work(const struct work *work, size_t index, const struct shape *shape, uint64_t seed)
{
    const struct ash_request *request = &work->request;
    size_t count = work->got.count;
    bool is_same = memcmp(work->got.answer, work->want.answer, count * sizeof(int32_t)) == 0;

    if (request->wants_logprobs) {
        is_same &= memcmp(work->got.logprobs, work->want.logprobs, count * sizeof(float)) == 0;
        for (size_t i = 0; i < count; i++)
            is_same &= memcmp(work->got.tops[i], work->want.tops[i], request->top_logprobs * 8) == 0;
    }
    for (size_t i = 1; i <= work->got.prompt_told; i++)
        is_same &= memcmp(&work->got.prompt_logprobs[i], &work->want.prompt_logprobs[i], sizeof(float)) == 0 &&
                   memcmp(work->got.prompt_tops[i], work->want.prompt_tops[i], request->prompt_top_logprobs * 8) == 0;
    if (work->got.finish != ASH_FINISH_CANCELLED) {
        is_same &= work->got.finish == work->want.finish && count == work->want.count &&
                   work->got.stop_id == work->want.stop_id && work->got.prompt_told == work->want.prompt_told;
        if (request->pooling != ASH_POOLING_NONE)
            is_same &= memcmp(work->got.hidden, work->want.hidden, sizeof(work->got.hidden)) == 0;
    } else {
        is_same &= count <= work->want.count;
    }
    if (!is_same)
        fail_msg("seed %llu, request %zu: finish %d, %zu tokens instead of %d, %zu (rc %d %s; sequences %zu, rows %zu, "
                 "pages %zu, prefix cache %d, drafts %zu, threads %zu)",
                 (unsigned long long)seed, index, work->got.finish, count, work->want.finish, work->want.count,
                 work->end.rc, work->end.err.text, shape->opts.max_seqs, shape->opts.max_batch_rows, shape->pages,
                 !shape->opts.has_no_prefix_cache, shape->opts.speculate, shape->threads);
}

/* exec NULL: one of the CPU's. */
static struct ash_core_stats run_case(struct ash_model *model, struct ash_exec *exec, struct work *works, uint64_t seed)
{
    struct ash_core *core = NULL;
    struct ash_core_stats stats;
    struct ash_err err = {0};
    struct shape shape;
    size_t next = 0;
    int more;

    seed_now = seed;
    counter = 0;
    shape = draw_shape(model);
    if (exec == NULL) exec = &execs[shape.threads - 1];
    if (ash_core_open(model, exec, &shape.opts, &core, &err) < 0) fail_msg("%s", err.text);
    do { /* they arrive a few at a time, or all at once */
        size_t arrive = draw(3) == 0 ? draw(REQUESTS) : draw(3);

        for (; arrive > 0 && next < REQUESTS; arrive--)
            submit(core, &works[next++]);
        more = ash_core_step(core);
        if (!ash_core_is_consistent(core)) fail_msg("seed %llu: pages are lost", (unsigned long long)seed);
        if (next > 0 && shape.cancels > 0 && draw(4) == 0) {
            struct work *work = &works[draw(next)];

            if (!work->is_done) ash_core_cancel(core, &work->request);
            assert_true(work->is_done);
            shape.cancels--;
        }
    } while (more > 0 || next < REQUESTS);
    stats = ash_core_get_stats(core);
    assert_int_equal(stats.running + stats.waiting + stats.pages_held, 0);
    for (size_t i = 0; i < REQUESTS; i++) {
        assert_true(works[i].is_done);
        check_work(&works[i], i, &shape, seed);
    }
    ash_core_close(core);
    return stats;
}

static size_t case_count(void)
{
    const char *asked = getenv("ASHLAR_TEST_CASES"); /* for long runs */

    return asked != NULL ? strtoul(asked, NULL, 10) : CASES;
}

/* The drawn cases must have met what they are there for. */
static void answers_are_those_of_one_at_a_time(void **state)
{
    static const bool precisions[][2] = {{false, false}, {true, true}, {false, true}};
    struct ash_core_stats all = {0};

    (void)state;
    for (size_t p = 0; p < 3; p++) {
        struct ash_model *model = make_model(precisions[p][0], precisions[p][1]);
        struct work *works = make_work(model, 100 + p, false);

        for (uint64_t i = 0; i < case_count() / 3 + 1; i++) {
            struct ash_core_stats stats = run_case(model, NULL, works, 1000 * (p + 1) + i);

            all.preemptions += stats.preemptions;
            all.prefix_hits += stats.prefix_hits;
            all.accepted += stats.accepted;
            all.drafted += stats.drafted;
        }
        free(works);
        ash_model_close(model);
    }
    print_message("%llu preemptions, %llu tokens from the prefix cache, %llu of %llu drafts accepted\n",
                  (unsigned long long)all.preemptions, (unsigned long long)all.prefix_hits,
                  (unsigned long long)all.accepted, (unsigned long long)all.drafted);
    assert_true(all.preemptions > 0 && all.prefix_hits > 500 && all.accepted > 20 && all.drafted > all.accepted);
}

static void a_device_that_runs_ahead_gives_the_same(void **state)
{
    struct ash_model *model, *there;
    struct work *works;
    uint64_t ahead = 0, steps = 0;

    (void)state;
    if (SANITIZED_THREADS) skip();
    model = make_model(false, false);
    there = make_model(false, false);
    works = make_work(model, 200, true);
    /* half of them draft, and never run ahead: as many as it takes */
    for (uint64_t i = 0; i < case_count() / 10 || (ahead <= 20 && i < CASES); i++) {
        struct ash_core_stats stats = run_case(there, &device, works, 5000 + i);

        ahead += stats.ahead;
        steps += stats.steps;
    }
    print_message("%llu of %llu steps ran ahead\n", (unsigned long long)ahead, (unsigned long long)steps);
    assert_true(ahead > 20);
    free(works);
    ash_model_close(model);
    ash_model_close(there);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_those_of_one_at_a_time),
        cmocka_unit_test(a_device_that_runs_ahead_gives_the_same),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
