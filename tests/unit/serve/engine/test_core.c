/* The engine loop: whatever shares the passes, however the work is cut, and whatever is cached, preempted, drafted or
 * cancelled, tokens are those of one request at a time and log-probabilities are the evaluation's, to the bit. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "unit/serve/engine/core_oracle.h"

#define CASES (SANITIZED_THREADS ? 6 : SANITIZED ? 15 : 60)

struct shape {
    struct ash_core_opts opts;
    size_t threads, pages, cancels;
    struct ash_kv_opts kv;
};

static struct ash_model *draft_now; /* that drafts in the case, or NULL */
static struct ash_eagle *eagle_now; /* likewise */
static char tier_dir[] = "/tmp/ashlar-test-core-XXXXXX";

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
    shape.opts.draft = draft_now;
    shape.opts.eagle = eagle_now;
    shape.opts.step_seconds = draw(2) == 0 ? 1e-9 : 0.0;
    return shape;
}

/* Tiers of a few pages, some of which an earlier case left in the folder; now and then some are damaged. */
static void draw_tiers(const struct ash_model *model, struct shape *shape)
{
    size_t page = ASH_CACHE_PAGE_TOKENS * ash_cache_token_bytes(model);
    size_t file = ash_kv_page_file_bytes(ash_cache_pages_for(POSITIONS) * ASH_CACHE_PAGE_TOKENS, page);
    size_t pages = draw(3) == 0 ? 1 + draw(6) : 20 + draw(60);

    if (draw(2) == 0) shape->kv.host_bytes = (1 + draw(draw(2) == 0 ? 12 : 200)) * page;
    if (draw(4) != 0 || shape->kv.host_bytes == 0) shape->kv.dir = tier_dir;
    shape->kv.dir_bytes = pages * file;
    shape->kv.reads_always = true; /* of so small a model no page is worth it */
    if (shape->kv.dir != NULL || shape->kv.host_bytes > 0) shape->opts.kv = &shape->kv;
}

/* What a crash, a disk or another hand may do to a file: cut it, change a byte, put another page there. */
static void damage(const char *name, const char *other)
{
    char path[512], from[512];
    struct stat stat_of;
    int fd;

    snprintf(path, sizeof(path), "%s/%s", tier_dir, name);
    snprintf(from, sizeof(from), "%s/%s", tier_dir, other);
    if (draw(3) == 0 && strcmp(name, other) != 0 && access(from, F_OK) == 0) {
        assert_int_equal(rename(from, path), 0);
        return;
    }
    fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &stat_of), 0);
    assert_int_equal(stat_of.st_mode & 0777, 0600);
    if (draw(3) == 0) {
        assert_int_equal(ftruncate(fd, (off_t)draw((size_t)stat_of.st_size)), 0);
    } else {
        off_t at = (off_t)draw((size_t)stat_of.st_size);
        uint8_t byte = 0;

        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte = (uint8_t)(byte ^ (1u << draw(8)));
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    close(fd);
}

static void damage_some(void)
{
    struct dirent **files = NULL;
    int count = scandir(tier_dir, &files, NULL, alphasort);

    for (int i = 2; i < count; i++) /* . and .. come first */
        if (draw(4) == 0 && access(tier_dir, F_OK) == 0) {
            char path[512];

            snprintf(path, sizeof(path), "%s/%s", tier_dir, files[i]->d_name);
            if (access(path, F_OK) == 0) damage(files[i]->d_name, files[2 + (int)draw((size_t)count - 2)]->d_name);
        }
    for (int i = 0; i < count; i++)
        free(files[i]);
    free(files);
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

/* exec NULL: one of the CPU's. fingerprint 0: without tiers. */
static struct ash_core_stats run_tiers(struct ash_model *model, struct ash_exec *exec, struct work *works,
                                       uint64_t seed, uint64_t fingerprint)
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
    if (fingerprint != 0) draw_tiers(model, &shape);
    if (exec == NULL) exec = &execs[shape.threads - 1];
    if (ash_core_open(model, exec, &shape.opts, &core, &err) < 0) fail_msg("%s", err.text);
    if (ash_core_kv(core) != NULL) ash_kv_arm(ash_core_kv(core), fingerprint);
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

static struct ash_core_stats run_case(struct ash_model *model, struct ash_exec *exec, struct work *works, uint64_t seed)
{
    return run_tiers(model, exec, works, seed, 0);
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

/* Pages go to host memory and to a folder, and come back in later cases, which are restarts; two models take turns, and
 * none may see pages of the other. */
static void tiers_change_no_answer(void **state)
{
    struct ash_model *models[3] = {make_model(false, false), make_model(false, true), make_model(false, false)};
    struct work *works[2] = {make_work(models[0], 300, false), make_work(models[1], 301, false)};
    struct ash_kv_tier_stats all[ASH_KV_TIERS] = {{0}};

    (void)state;
    for (uint64_t i = 0; i < case_count() / 2 + 1; i++) {
        size_t which = draw(8) == 0;
        bool is_device = i % 7 == 6 && !SANITIZED_THREADS; /* which has the pages of the CPU */
        struct ash_core_stats stats = is_device ? run_tiers(models[2], &device, works[0], 9000 + i, 1)
                                                : run_tiers(models[which], NULL, works[which], 9000 + i, 1 + which);

        for (size_t t = 0; t < ASH_KV_TIERS; t++) {
            all[t].pages_read += stats.kv.tiers[t].pages_read;
            all[t].evictions += stats.kv.tiers[t].evictions;
            all[t].damaged += stats.kv.tiers[t].damaged;
        }
        if (i % 3 == 1) damage_some();
    }
    print_message("host memory: %llu pages found, %llu evicted; folder: %llu, %llu, %llu damaged\n",
                  (unsigned long long)all[ASH_KV_HOST].pages_read, (unsigned long long)all[ASH_KV_HOST].evictions,
                  (unsigned long long)all[ASH_KV_DIR].pages_read, (unsigned long long)all[ASH_KV_DIR].evictions,
                  (unsigned long long)all[ASH_KV_DIR].damaged);
    if (!SANITIZED) { /* the few cases of a sanitizer need not meet everything */
        assert_true(all[ASH_KV_HOST].evictions > 0);
        assert_true(all[ASH_KV_DIR].pages_read > 20 && all[ASH_KV_DIR].evictions > 0 && all[ASH_KV_DIR].damaged > 0);
    }
    for (size_t i = 0; i < 2; i++)
        free(works[i]);
    for (size_t i = 0; i < 3; i++)
        ash_model_close(models[i]);
}

/* A draft model of the same weights, whose drafts hold, one of others, whose drafts rarely do, a head, and one of
 * EAGLE-3. */
static void a_draft_model_changes_no_answer(void **state)
{
    struct ash_model *model = make_model(false, false);
    struct ash_eagle eagle = make_eagle(8, 2 * VOCAB / 3);
    struct ash_model *drafts[] = {make_model(false, false), make_seeded(6, false, false), make_head(7), eagle.model};
    struct work *works = make_work(model, 400, false);
    uint64_t drafted[4] = {0}, accepted[4] = {0};

    (void)state;
    for (uint64_t i = 0; i < case_count(); i++) {
        struct ash_core_stats stats;

        draft_now = drafts[i % 4];
        eagle_now = i % 4 == 3 ? &eagle : NULL;
        stats = run_case(model, NULL, works, 7000 + i);
        drafted[i % 4] += stats.drafted;
        accepted[i % 4] += stats.accepted;
    }
    draft_now = NULL;
    eagle_now = NULL;
    for (size_t i = 0; i < 4; i++)
        print_message("draft %zu: %llu of %llu accepted\n", i, (unsigned long long)accepted[i],
                      (unsigned long long)drafted[i]);
    if (!SANITIZED) { /* as above */
        assert_true(drafted[0] > 0 && drafted[1] > 0 && accepted[0] * drafted[1] > accepted[1] * drafted[0]);
        assert_true(drafted[2] > 0 && drafted[3] > 0);
    }
    free(works);
    for (size_t i = 0; i < 3; i++)
        ash_model_close(drafts[i]);
    ash_eagle_close(&eagle);
    ash_model_close(model);
}

/* Two prompts take turns in a pool that holds one of them: each but the first turn of both is read. */
static void pages_that_left_the_pool_come_back(void **state)
{
    enum { PROMPT = 390, TURNS = 6 };
    struct ash_model *model = make_model(false, false);
    struct work *works = calloc(2, sizeof(*works));
    size_t page = ASH_CACHE_PAGE_TOKENS * ash_cache_token_bytes(model);
    struct ash_kv_opts kv = {.host_bytes = 20 * page, .reads_always = true};
    struct ash_core_opts opts = {.max_seqs = 1, .max_batch_rows = 64, .kv_bytes = 7 * page, .kv = &kv};
    struct ash_core *core = NULL;
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_core_open(model, &execs[1], &opts, &core, &err), 0);
    ash_kv_arm(ash_core_kv(core), 5);
    for (size_t turn = 0; turn < TURNS; turn++) {
        struct work *work = &works[turn % 2];

        for (size_t i = 0; i < PROMPT; i++)
            work->prompt[i] = (int32_t)((i * (3 + turn % 2) + i / 7 + turn % 2) % VOCAB);
        work->take_max = SIZE_MAX;
        work->request = (struct ash_request){.prompt = work->prompt,
                                             .prompt_count = PROMPT,
                                             .sampler = ash_sampler_defaults(),
                                             .max_tokens = 4,
                                             .wants_logprobs = true,
                                             .take = take,
                                             .done = take_end,
                                             .ctx = work};
        memset(&work->got, 0, sizeof(work->got));
        work->is_done = false;
        assert_int_equal(ash_core_submit(core, &work->request, &err), 0);
        while (ash_core_step(core) > 0)
            continue;
        assert_int_equal(work->end.cached_tokens, turn < 2 ? 0 : (PROMPT - 1) / ASH_CACHE_PAGE_TOKENS * 64);
        if (turn < 2) work->want.count = work->got.count;
        if (turn < 2) memcpy(work->want.answer, work->got.answer, sizeof(work->want.answer));
        if (turn < 2) memcpy(work->want.logprobs, work->got.logprobs, sizeof(work->want.logprobs));
        assert_int_equal(work->got.count, work->want.count);
        assert_memory_equal(work->got.answer, work->want.answer, sizeof(work->want.answer));
        assert_memory_equal(work->got.logprobs, work->want.logprobs, sizeof(work->want.logprobs));
    }
    assert_int_equal(ash_core_get_stats(core).kv.tiers[ASH_KV_HOST].pages_read, (TURNS - 2) * 6);
    ash_core_close(core);
    free(works);
    ash_model_close(model);
}

static void a_device_that_runs_ahead_gives_the_same(void **state)
{
    struct ash_model *model, *there, *head;
    struct work *works;
    uint64_t ahead = 0, steps = 0;

    (void)state;
    if (SANITIZED_THREADS) skip();
    model = make_model(false, false);
    there = make_model(false, false);
    head = make_head(7);
    works = make_work(model, 200, true);
    /* half of them draft, and never run ahead: as many as it takes */
    for (uint64_t i = 0; i < case_count() / 10 || (ahead <= 20 && i < CASES); i++) {
        struct ash_core_stats stats;

        draft_now = i % 3 == 2 ? head : NULL;
        stats = run_case(there, &device, works, 5000 + i);
        ahead += stats.ahead;
        steps += stats.steps;
    }
    print_message("%llu of %llu steps ran ahead\n", (unsigned long long)ahead, (unsigned long long)steps);
    assert_true(ahead > 20);
    draft_now = NULL;
    ash_model_close(head);
    free(works);
    ash_model_close(model);
    ash_model_close(there);
}

static int setup_folder(void **state)
{
    return mkdtemp(tier_dir) == NULL ? -1 : setup(state);
}

static int teardown_folder(void **state)
{
    (void)teardown(state);
    return ash_dir_remove(tier_dir, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_those_of_one_at_a_time),
        cmocka_unit_test(a_device_that_runs_ahead_gives_the_same),
        cmocka_unit_test(tiers_change_no_answer),
        cmocka_unit_test(a_draft_model_changes_no_answer),
        cmocka_unit_test(pages_that_left_the_pool_come_back),
    };

    return cmocka_run_group_tests(tests, setup_folder, teardown_folder);
}
