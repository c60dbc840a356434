/* A dataset against a plain list of all tokens: windows, documents and targets, purity, epochs, direct entry, threads,
 * bad folders. */
#include "unit/storage/scratch.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

#include "base/assert.h"
#include "train/data/dataset.h"
#include "train/data/dataset_folder.h"

#define TOKENS_MAX 4000
#define SEQ_MAX 64
#define EOS 7

static struct ash_err err;

/* The data, written down a second time. */
static int32_t all_ids[TOKENS_MAX];
static size_t all_docs[TOKENS_MAX]; /* document of each token */
static size_t all_count;

/* A folder of small shards with documents of 1 to 40 tokens. Ids number the tokens, so a window is known by its first
 * id. */
static void make_folder(const char *dir, size_t documents, size_t shard_tokens)
{
    struct ash_folder *folder = NULL;
    json_t *key = json_pack("{s:s}", "kind", "test"), *saved = NULL;

    all_count = 0;
    assert_int_equal(ash_folder_open(dir, &folder, &err), 0);
    assert_int_equal(ash_folder_claim(folder, key, true, &saved, &err), 0);
    assert_int_equal(ash_folder_begin(folder,
                                      &(struct ash_folder_opts){.vocab_size = TOKENS_MAX,
                                                                .tokenizer_hash = 99,
                                                                .eos_id = EOS,
                                                                .shard_tokens = shard_tokens},
                                      &err),
                     0);
    for (size_t d = 0; d < documents; d++) {
        size_t count = 1 + d * 17 % 40;

        for (size_t i = 0; i < count; i++) {
            all_ids[all_count + i] = (int32_t)(all_count + i);
            all_docs[all_count + i] = d;
        }
        assert_true(ash_folder_add(folder, all_ids + all_count, count, &err) >= 0);
        all_count += count;
        assert_true(all_count < TOKENS_MAX - SEQ_MAX);
    }
    assert_int_equal(ash_folder_finish(folder, NULL, &err), 0);
    ash_folder_close(folder);
    json_decref(key);
}

struct buffers {
    int32_t ids[SEQ_MAX], targets[SEQ_MAX];
    struct ash_doc docs[SEQ_MAX];
    struct ash_sample sample;
};

static void read_sample(const struct ash_dataset *dataset, uint64_t step, uint64_t slot, uint64_t slots,
                        struct buffers *b)
{
    memset(b, 0xee, sizeof(*b));
    b->sample = (struct ash_sample){.ids = b->ids, .targets = b->targets, .docs = b->docs};
    assert_int_equal(ash_dataset_read(dataset, step, slot, slots, &b->sample, NULL), 0);
}

static void check_window(const struct buffers *b, size_t seq)
{
    size_t first = (size_t)b->ids[0], doc = 0, row = 0;

    assert_int_equal(first % seq, 0);
    for (size_t r = 0; r < seq; r++) {
        size_t t = first + r;
        bool last = t + 1 == all_count || all_docs[t + 1] != all_docs[t];

        assert_int_equal(b->ids[r], all_ids[t]);
        assert_int_equal(b->targets[r], last ? -1 : all_ids[t + 1]);
        if (!last && r + 1 < seq) continue;
        assert_true(doc < b->sample.doc_count);
        assert_int_equal(b->docs[doc].row, row);
        assert_int_equal(b->docs[doc].count, r + 1 - row);
        assert_int_equal(b->docs[doc].pos, 0);
        row = r + 1;
        doc++;
    }
    assert_int_equal(doc, b->sample.doc_count);
}

static void test_windows(void **state)
{
    static const size_t seqs[] = {1, 2, 7, 32, SEQ_MAX};

    (void)state;
    make_folder(scratch_dir, 80, 200);
    for (size_t s = 0; s < ASH_COUNT(seqs); s++) {
        struct ash_dataset *dataset = NULL;
        struct buffers b;

        assert_int_equal(ash_dataset_open(scratch_dir, seqs[s], 5, &dataset, &err), 0);
        assert_int_equal(ash_dataset_tokens(dataset), all_count);
        assert_int_equal(ash_dataset_windows(dataset), all_count / seqs[s]);
        assert_int_equal(ash_dataset_vocab_size(dataset), TOKENS_MAX);
        assert_int_equal(ash_dataset_eos_id(dataset), EOS);
        for (size_t n = 0; n < 2 * ash_dataset_windows(dataset); n++) {
            size_t targets = 0;

            read_sample(dataset, n, 0, 1, &b);
            check_window(&b, seqs[s]);
            for (size_t i = 0; i < seqs[s]; i++)
                targets += b.targets[i] >= 0;
            assert_int_equal(ash_dataset_count_targets(dataset, n, 0, 1), targets);
        }
        ash_dataset_close(dataset);
    }
    ash_dataset_close(NULL);
}

/* Block order: every window once in an epoch, and never more blocks at a time than are mixed. */
static void test_block_order(void **state)
{
    enum { SEQ = 4, BLOCK = 30 / SEQ, MIXED = 3, EPOCHS = 3 };
    struct ash_dataset *dataset = NULL;
    size_t windows, changed = 0, firsts[EPOCHS] = {0};
    struct buffers b;

    (void)state;
    make_folder(scratch_dir, 80, 200);
    assert_int_equal(ash_dataset_open(scratch_dir, SEQ, 5, &dataset, &err), 0);
    ash_dataset_order_by_blocks(dataset, 30, MIXED);
    windows = ash_dataset_windows(dataset);
    assert_true(windows % BLOCK != 0 && windows / BLOCK % MIXED != 0); /* with rests at both levels */
    for (size_t e = 0; e < EPOCHS; e++) {
        bool seen[TOKENS_MAX / SEQ] = {false}, at_hand[TOKENS_MAX / SEQ] = {false};
        size_t blocks = 0;

        for (size_t i = 0; i < windows; i++) {
            size_t window;

            read_sample(dataset, e * windows + i, 0, 1, &b);
            window = (size_t)b.ids[0] / SEQ;
            assert_true(window < windows && !seen[window]);
            seen[window] = true;
            changed += window != i;
            if (i == 0) firsts[e] = window;
            if (i % (MIXED * BLOCK) == 0) {
                memset(at_hand, 0, sizeof(at_hand));
                blocks = 0;
            }
            blocks += !at_hand[window / BLOCK];
            at_hand[window / BLOCK] = true;
            assert_true(blocks <= MIXED + (i >= windows / BLOCK * BLOCK));
        }
    }
    assert_true(changed > windows * EPOCHS / 2);
    assert_true(firsts[0] != firsts[1] || firsts[1] != firsts[2]);
    ash_dataset_close(dataset);
}

/* Every epoch is every window once, epochs differ, seeds differ, and step and slot are one number. */
static void test_epochs(void **state)
{
    enum { SEQ = 16, SLOTS = 3, EPOCHS = 4 };
    struct ash_dataset *dataset = NULL, *other = NULL;
    size_t order[EPOCHS][TOKENS_MAX / SEQ], windows, changed = 0, reseeded = 0;
    struct buffers b;

    (void)state;
    make_folder(scratch_dir, 80, 200);
    assert_int_equal(ash_dataset_open(scratch_dir, SEQ, 5, &dataset, &err), 0);
    assert_int_equal(ash_dataset_open(scratch_dir, SEQ, 6, &other, &err), 0);
    windows = ash_dataset_windows(dataset);
    for (size_t e = 0; e < EPOCHS; e++) {
        bool seen[TOKENS_MAX / SEQ] = {false};

        for (size_t i = 0; i < windows; i++) {
            size_t n = e * windows + i;

            read_sample(dataset, n / SLOTS, n % SLOTS, SLOTS, &b);
            order[e][i] = (size_t)b.ids[0] / SEQ;
            assert_true(order[e][i] < windows);
            assert_false(seen[order[e][i]]);
            seen[order[e][i]] = true;
            changed += e > 0 && order[e][i] != order[0][i];
            read_sample(dataset, n, 0, 1, &b);
            assert_int_equal(b.ids[0] / SEQ, order[e][i]);
            read_sample(other, n, 0, 1, &b);
            reseeded += (size_t)b.ids[0] / SEQ != order[e][i];
        }
    }
    assert_true(changed > windows * (EPOCHS - 1) / 2);
    assert_true(reseeded > windows * EPOCHS / 2);
    /* entered backwards, in a dataset that has read nothing yet */
    ash_dataset_close(other);
    other = NULL;
    assert_int_equal(ash_dataset_open(scratch_dir, SEQ, 5, &other, &err), 0);
    for (size_t n = EPOCHS * windows; n-- > 0;) {
        read_sample(other, n, 0, 1, &b);
        assert_int_equal(b.ids[0] / SEQ, order[n / windows][n % windows]);
    }
    read_sample(other, UINT64_MAX / SLOTS - 1, SLOTS - 1, SLOTS, &b);
    check_window(&b, SEQ);
    ash_dataset_close(dataset);
    ash_dataset_close(other);
}

struct reader {
    const struct ash_dataset *dataset;
    pthread_t thread;
    size_t first, stride;
    uint64_t sum;
};

static uint64_t sum_sample(const struct ash_dataset *dataset, size_t n, struct buffers *b)
{
    uint64_t sum = 0;

    b->sample = (struct ash_sample){.ids = b->ids, .targets = b->targets, .docs = b->docs};
    if (ash_dataset_read(dataset, n, 0, 1, &b->sample, NULL) < 0) return 0;
    for (size_t r = 0; r < 32; r++)
        sum = sum * 31 + (uint64_t)(b->ids[r] + 3 * b->targets[r]);
    return sum * 31 + b->sample.doc_count;
}

static void *read_some(void *arg)
{
    struct reader *reader = arg;
    struct buffers b;

    for (size_t n = reader->first; n < 500; n += reader->stride)
        reader->sum += sum_sample(reader->dataset, n, &b);
    return NULL;
}

static void test_threads(void **state)
{
    struct ash_dataset *dataset = NULL;
    struct reader readers[3];
    uint64_t expected = 0, sum = 0;
    struct buffers b;

    (void)state;
    make_folder(scratch_dir, 80, 200);
    assert_int_equal(ash_dataset_open(scratch_dir, 32, 5, &dataset, &err), 0);
    for (size_t n = 0; n < 500; n++)
        expected += sum_sample(dataset, n, &b);
    for (size_t i = 0; i < ASH_COUNT(readers); i++) {
        readers[i] = (struct reader){.dataset = dataset, .first = i, .stride = ASH_COUNT(readers)};
        assert_int_equal(pthread_create(&readers[i].thread, NULL, read_some, &readers[i]), 0);
    }
    for (size_t i = 0; i < ASH_COUNT(readers); i++) {
        pthread_join(readers[i].thread, NULL);
        sum += readers[i].sum;
    }
    assert_int_equal(sum, expected);
    ash_dataset_close(dataset);
}

/* The cut into shards is not part of what a window holds; the hash tells one cut from another, and one content from
 * another. */
static void test_cut_does_not_matter(void **state)
{
    struct ash_dataset *many = NULL, *one = NULL, *file = NULL;
    struct buffers a, b;

    (void)state;
    make_folder(scratch_path("many"), 80, 100);
    make_folder(scratch_path("one"), 80, 1000000);
    assert_int_equal(ash_dataset_open(scratch_path("many"), 32, 5, &many, &err), 0);
    assert_int_equal(ash_dataset_open(scratch_path("one"), 32, 5, &one, &err), 0);
    assert_int_equal(ash_dataset_open(scratch_path("one/shard-00000.safetensors"), 32, 5, &file, &err), 0);
    for (size_t n = 0; n < 100; n++) {
        read_sample(many, n, 0, 1, &a);
        read_sample(one, n, 0, 1, &b);
        assert_memory_equal(a.ids, b.ids, sizeof(a.ids));
        assert_memory_equal(a.targets, b.targets, sizeof(a.targets));
        read_sample(file, n, 0, 1, &b);
        assert_memory_equal(a.ids, b.ids, sizeof(a.ids));
    }
    assert_int_equal(ash_dataset_hash(one), ash_dataset_hash(file));
    assert_int_not_equal(ash_dataset_hash(one), ash_dataset_hash(many));
    assert_int_equal(ash_dataset_eos_id(file), -1);
    ash_dataset_close(many);
    ash_dataset_close(one);
    ash_dataset_close(file);
}

static void refuse(const char *path, size_t seq, int code, const char *says)
{
    struct ash_dataset *dataset = NULL;

    err.text[0] = '\0';
    assert_int_equal(ash_dataset_open(path, seq, 1, &dataset, &err), code);
    assert_null(dataset);
    if (strstr(err.text, says) == NULL) fail_msg("'%s' does not say '%s'", err.text, says);
}

static void replace_in_manifest(const char *from, const char *to)
{
    char *text = NULL, *place;
    size_t size_bytes = 0;
    char out[8192];
    int n;

    assert_int_equal(ash_file_read(scratch_path("manifest.json"), sizeof(out) - 256, &text, &size_bytes, &err), 0);
    place = strstr(text, from);
    assert_non_null(place);
    n = snprintf(out, sizeof(out), "%.*s%s%s", (int)(place - text), text, to, place + strlen(from));
    scratch_write("manifest.json", out, (size_t)n);
    free(text);
}

static void refuse_change(const char *from, const char *to, const char *says)
{
    make_folder(scratch_dir, 20, 200);
    replace_in_manifest(from, to);
    refuse(scratch_dir, 8, -EINVAL, says);
}

static void test_bad_folders(void **state)
{
    (void)state;
    refuse(scratch_path("nothing"), 8, -ENOENT, "No such file");
    refuse(scratch_dir, 8, -ENOENT, "manifest.json");
    make_folder(scratch_dir, 20, 200);
    refuse(scratch_dir, 0, -EINVAL, "at least one token");
    refuse(scratch_dir, 100000, -EINVAL, "fewer than one sequence");
    refuse_change("ashlar-data-1", "other", "format");
    refuse_change("\"vocab_size\": 4000", "\"vocab_size\": 4001", "another tokenizer");
    refuse_change("\"vocab_size\": 4000", "\"vocab_size\": \"many\"", "vocab_size");
    refuse_change("0000000000000063", "0000000000000064", "another tokenizer");
    refuse_change("0000000000000063", "63", "tokenizer_hash");
    refuse_change("\"eos_token_id\": 7", "\"eos_token_id\": 4000", "eos_token_id");
    refuse_change("shard-00001", "../shard-00001", "plain file name");
    refuse_change("0.safetensors\",\n      \"tokens\": ", "0.safetensors\", \"tokens\": 1", "list describes");
    refuse_change("\"hash\": \"", "\"hash\": \"0", "16 hexadecimal digits");
    refuse_change("\"file\"", "\"fill\"", "shards[0]");
    refuse_change("\"shards\": [", "\"shards\": [], \"x\": [", "no shards");
    replace_in_manifest("{", "");
    refuse(scratch_dir, 8, -EINVAL, "JSON");
    make_folder(scratch_dir, 20, 200);
    assert_int_equal(unlink(scratch_path("shard-00001.safetensors")), 0);
    refuse(scratch_dir, 8, -ENOENT, "shard-00001");
    make_folder(scratch_dir, 20, 200);
    scratch_write("shard-00001.safetensors", "short", 5);
    refuse(scratch_dir, 8, -EINVAL, "shard-00001");
}

static void test_damaged_id(void **state)
{
    struct ash_dataset *dataset = NULL;
    struct buffers b = {0};
    char *text = NULL;
    size_t size_bytes = 0, failed = 0;

    (void)state;
    make_folder(scratch_dir, 80, 100000);
    assert_int_equal(ash_file_read(scratch_path("shard-00000.safetensors"), 1 << 20, &text, &size_bytes, &err), 0);
    text[size_bytes - 1] = '\xff'; /* high byte of the last id */
    scratch_write("shard-00000.safetensors", text, size_bytes);
    free(text);
    assert_int_equal(ash_dataset_open(scratch_dir, 1, 1, &dataset, &err), 0);
    b.sample = (struct ash_sample){.ids = b.ids, .targets = b.targets, .docs = b.docs};
    for (size_t n = 0; n < ash_dataset_windows(dataset); n++)
        if (ash_dataset_read(dataset, n, 0, 1, &b.sample, &err) == -EBADMSG) failed++;
    assert_int_equal(failed, 2); /* as an id, and as the target before it */
    assert_non_null(strstr(err.text, "shard-00000"));
    ash_dataset_close(dataset);
}

static void test_folder_is_locked_and_swept(void **state)
{
    struct ash_folder *folder = NULL, *second = NULL;
    json_t *key = json_pack("{s:s}", "kind", "test"), *saved = NULL;

    (void)state;
    scratch_write("shard-00003.safetensors.tmp-12-0", "x", 1);
    scratch_write("shard-00003.safetensors.spill.abcdef", "x", 1);
    scratch_write("manifest.json.tmp-12-0", "x", 1);
    scratch_write("shard-notes.txt.tmp-12", "x", 1);
    scratch_write("shard-00003.safetensors", "x", 1);
    assert_int_equal(ash_folder_open(scratch_dir, &folder, &err), 0);
    assert_int_equal(ash_folder_open(scratch_dir, &second, &err), -EBUSY);
    assert_null(second);
    assert_false(ash_path_exists(scratch_path("shard-00003.safetensors.tmp-12-0")));
    assert_false(ash_path_exists(scratch_path("shard-00003.safetensors.spill.abcdef")));
    assert_false(ash_path_exists(scratch_path("manifest.json.tmp-12-0")));
    assert_true(ash_path_exists(scratch_path("shard-00003.safetensors")));
    assert_int_equal(ash_folder_claim(folder, key, false, &saved, &err), -EEXIST);
    assert_non_null(strstr(err.text, "other data"));
    assert_int_equal(ash_folder_claim(folder, key, true, &saved, &err), 0);
    assert_false(ash_path_exists(scratch_path("shard-00003.safetensors")));
    assert_true(ash_path_exists(scratch_path("shard-notes.txt.tmp-12")));
    ash_folder_close(folder);
    ash_folder_close(NULL);
    json_decref(key);
}

static int claim(json_t *key, size_t *shards_out, json_t **saved_out)
{
    struct ash_folder *folder = NULL;
    int rc;

    err.text[0] = '\0';
    assert_int_equal(ash_folder_open(scratch_dir, &folder, &err), 0);
    rc = ash_folder_claim(folder, key, false, saved_out, &err);
    if (rc >= 0) *shards_out = ash_folder_manifest(folder)->shard_count;
    ash_folder_close(folder);
    return rc;
}

/* A run that ends early is taken up again by the same key only; its shards are checked before anything is added. */
static void test_folder_is_resumed(void **state)
{
    static const int32_t ids[10] = {1, 2, 3};
    json_t *key = json_pack("{s:i, s:i}", "a", 1, "b", 2), *other = json_pack("{s:i, s:i}", "a", 1, "b", 3);
    json_t *progress = json_pack("{s:i}", "next", 42), *saved = NULL;
    struct ash_folder *folder = NULL;
    size_t shards = 0;

    (void)state;
    assert_int_equal(ash_folder_open(scratch_dir, &folder, &err), 0);
    assert_int_equal(ash_folder_claim(folder, key, false, &saved, &err), 0);
    assert_int_equal(
        ash_folder_begin(
            folder, &(struct ash_folder_opts){.vocab_size = 50, .tokenizer_hash = 1, .eos_id = -1, .shard_tokens = 20},
            &err),
        0);
    assert_int_equal(ash_folder_add(folder, ids, 10, &err), 0);
    assert_int_equal(ash_folder_add(folder, ids, 10, &err), 1);
    assert_int_equal(ash_folder_save_state(folder, progress, &err), 0);
    assert_int_equal(ash_folder_add(folder, ids, 10, &err), 0);
    ash_folder_close(folder);
    assert_int_equal(claim(other, &shards, &saved), -EEXIST);
    assert_non_null(strstr(err.text, "not the same: b"));
    assert_int_equal(claim(key, &shards, &saved), 1);
    assert_int_equal(shards, 1);
    assert_true(json_equal(saved, progress));
    json_decref(saved);
    saved = NULL;

    folder = NULL;
    assert_int_equal(ash_folder_open(scratch_dir, &folder, &err), 0);
    assert_int_equal(ash_folder_claim(folder, key, false, &saved, &err), 1);
    assert_int_equal(
        ash_folder_begin(
            folder, &(struct ash_folder_opts){.vocab_size = 51, .tokenizer_hash = 1, .eos_id = -1, .shard_tokens = 20},
            &err),
        -EINVAL);
    ash_folder_close(folder);
    json_decref(saved);

    folder = NULL;
    assert_int_equal(ash_folder_open(scratch_dir, &folder, &err), 0);
    assert_int_equal(ash_folder_claim(folder, key, false, &saved, &err), 1);
    assert_false(ash_folder_is_complete(folder));
    assert_int_equal(
        ash_folder_begin(
            folder, &(struct ash_folder_opts){.vocab_size = 50, .tokenizer_hash = 1, .eos_id = -1, .shard_tokens = 20},
            &err),
        0);
    assert_int_equal(ash_folder_add(folder, ids, 10, &err), 0);
    assert_int_equal(ash_folder_finish(folder, key, &err), 0);
    ash_folder_close(folder);
    json_decref(saved);
    assert_int_equal(claim(key, &shards, &saved), 1);
    assert_int_equal(shards, 2);
    json_decref(saved);
    scratch_write("state.json", "{\"format\": \"x\"}", 15);
    assert_int_equal(claim(key, &shards, &saved), -EEXIST);
    assert_non_null(strstr(err.text, "another kind"));
    scratch_write("state.json", "{", 1);
    assert_int_equal(claim(key, &shards, &saved), -EINVAL);
    json_decref(key);
    json_decref(other);
    json_decref(progress);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_windows, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_epochs, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_block_order, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_threads, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_cut_does_not_matter, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_bad_folders, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_damaged_id, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_folder_is_locked_and_swept, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_folder_is_resumed, scratch_open, scratch_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
