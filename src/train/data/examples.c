/* examples: a folder of whole examples, mapped and checked. */
#include "train/data/examples.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/hash.h"
#include "storage/safetensors/safetensors.h"
#include "train/data/examples_priv.h"

struct ash_examples {
    struct ash_safetensors *file;
    enum ash_examples_kind kind;
    const int32_t *ids;
    const uint8_t *targets;
    const int64_t *starts; /* [count + 1] */
    const float *margins;  /* [count / 2], or NULL */
    size_t count, tokens, vocab_size;
    uint64_t hash, tokenizer_hash;
};

bool ash_examples_exist(const char *dir)
{
    char path[PATH_MAX];

    return ash_path_join(path, sizeof(path), dir, ASH_EXAMPLES_FILE) >= 0 && ash_path_exists(path);
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static const struct ash_tensor_view *find(const struct ash_examples *examples, const char *name, enum ash_dtype dtype,
                                          struct ash_err *err)
{
    const struct ash_tensor_view *view = ash_safetensors_find(examples->file, name);

    if (view != NULL && view->dtype == dtype && view->dim_count == 1) return view;
    ash_err_set(err, -EINVAL, "there is no tensor '%s' of type %s with one dimension", name, ash_dtype_name(dtype));
    return NULL;
}

static int check_bounds(const struct ash_examples *examples, struct ash_err *err)
{
    size_t end = 0;

    for (size_t i = 0; i <= examples->count; i++) {
        int64_t start = examples->starts[i];

        if (start < 0 || (uint64_t)start > examples->tokens || (i > 0 && (size_t)start <= end) ||
            (i == 0 && start != 0))
            return ash_err_set(err, -EBADMSG, "example %zu starts at token %" PRId64 ": starts must ascend from 0", i,
                               start);
        end = (size_t)start;
    }
    return end == examples->tokens ? 0 : ash_err_set(err, -EBADMSG, "the examples end before the tokens do");
}

static int check_tokens(const struct ash_examples *examples, struct ash_err *err)
{
    for (size_t i = 0; i < examples->tokens; i++) {
        if (examples->ids[i] < 0 || (size_t)examples->ids[i] >= examples->vocab_size)
            return ash_err_set(err, -EBADMSG, "token %zu has the id %d, but the vocabulary has %zu", i,
                               examples->ids[i], examples->vocab_size);
        if (examples->targets[i] > 1)
            return ash_err_set(err, -EBADMSG, "token %zu has the mark %d: it must be 0 or 1", i, examples->targets[i]);
    }
    for (size_t i = 0; examples->margins != NULL && i < examples->count / 2; i++)
        if (!isfinite(examples->margins[i]))
            return ash_err_set(err, -EBADMSG, "the margin of pair %zu is not a number", i);
    return 0;
}

static int parse_number(const struct ash_examples *examples, const char *key, int base, uint64_t *value_out,
                        struct ash_err *err)
{
    const char *text = ash_safetensors_metadata(examples->file, key);
    char *end = NULL;

    errno = 0;
    *value_out = text != NULL ? strtoull(text, &end, base) : 0;
    if (text != NULL && end != text && *end == '\0' && errno == 0) return 0;
    return ash_err_set(err, -EINVAL, "the metadata have no number '%s'", key);
}

static int read_metadata(struct ash_examples *examples, struct ash_err *err)
{
    const char *format = ash_safetensors_metadata(examples->file, "format");
    const char *kind = ash_safetensors_metadata(examples->file, "kind");
    uint64_t vocab = 0;
    int rc;

    if (format == NULL || strcmp(format, ASH_EXAMPLES_FORMAT) != 0 || kind == NULL)
        return ash_err_set(err, -EINVAL, "this is no file of examples: `ashlar data chat` writes them");
    examples->kind = strcmp(kind, "pairs") == 0 ? ASH_EXAMPLES_PAIRS : ASH_EXAMPLES_SINGLE;
    rc = parse_number(examples, "vocab_size", 10, &vocab, err);
    if (rc == 0) rc = parse_number(examples, "tokenizer_hash", 16, &examples->tokenizer_hash, err);
    examples->vocab_size = vocab;
    return rc;
}

static int read_tensors(struct ash_examples *examples, struct ash_err *err)
{
    const struct ash_tensor_view *ids = find(examples, "ids", ASH_I32, err);
    const struct ash_tensor_view *targets = ids != NULL ? find(examples, "targets", ASH_U8, err) : NULL;
    const struct ash_tensor_view *starts = targets != NULL ? find(examples, "starts", ASH_I64, err) : NULL;
    const struct ash_tensor_view *margins = ash_safetensors_find(examples->file, "margins");
    size_t pair = examples->kind == ASH_EXAMPLES_PAIRS ? 2 : 1;

    if (starts == NULL) return -EINVAL;
    if (targets->dims[0] != ids->dims[0] || starts->dims[0] < 2 || (starts->dims[0] - 1) % pair != 0)
        return ash_err_set(err, -EINVAL, "ids, targets and starts do not belong together");
    examples->count = starts->dims[0] - 1;
    if (margins != NULL && (margins->dtype != ASH_F32 || pair == 1 || ash_tensor_count(margins) != examples->count / 2))
        return ash_err_set(err, -EINVAL, "there is not one margin for each pair");
    examples->tokens = ids->dims[0];
    examples->ids = ids->data;
    examples->targets = targets->data;
    examples->starts = starts->data;
    examples->margins = margins != NULL ? margins->data : NULL;
    return 0;
}

static void find_hash(struct ash_examples *examples)
{
    uint64_t hash = ash_hash_bytes(examples->ids, examples->tokens * sizeof(*examples->ids), examples->kind);

    hash = ash_hash_bytes(examples->targets, examples->tokens, hash);
    hash = ash_hash_bytes(examples->starts, (examples->count + 1) * sizeof(*examples->starts), hash);
    if (examples->margins != NULL) hash = ash_hash_bytes(examples->margins, examples->count / 2 * sizeof(float), hash);
    examples->hash = hash;
}

/* Takes over file. */
static int open_file(struct ash_safetensors *file, const char *name, struct ash_examples **examples_out,
                     struct ash_err *err)
{
    struct ash_examples *examples = calloc(1, sizeof(*examples));
    int rc;

    if (examples == NULL) {
        ash_safetensors_close(file);
        return ash_err_set(err, -ENOMEM, "out of memory for examples");
    }
    examples->file = file;
    rc = read_metadata(examples, err);
    if (rc == 0) rc = read_tensors(examples, err);
    if (rc == 0) rc = check_bounds(examples, err);
    if (rc == 0) rc = check_tokens(examples, err);
    if (rc < 0) {
        ash_examples_close(examples);
        return ash_err_prefix(err, rc, "%s", name);
    }
    find_hash(examples);
    *examples_out = examples;
    return 0;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

int ash_examples_open(const char *dir, struct ash_examples **examples_out, struct ash_err *err)
{
    struct ash_safetensors *file = NULL;
    char path[PATH_MAX];
    int rc;

    if (!ash_examples_exist(dir))
        return ash_err_set(err, -ENOENT, "'%s' holds no examples: `ashlar data chat` makes such folders", dir);
    if (ash_path_join(path, sizeof(path), dir, ASH_EXAMPLES_FILE) < 0)
        return ash_err_set(err, -ENAMETOOLONG, "'%s' is too long a path", dir);
    rc = ash_safetensors_open(path, &file, err);
    return rc < 0 ? rc : open_file(file, path, examples_out, err);
}

void ash_examples_close(struct ash_examples *examples)
{
    if (examples == NULL) return;
    ash_safetensors_close(examples->file);
    free(examples);
}

enum ash_examples_kind ash_examples_get_kind(const struct ash_examples *examples)
{
    return examples->kind;
}

size_t ash_examples_count(const struct ash_examples *examples)
{
    return examples->count;
}

struct ash_example ash_examples_at(const struct ash_examples *examples, size_t index)
{
    size_t start, end;

    ash_assert(index < examples->count);
    start = (size_t)examples->starts[index];
    end = (size_t)examples->starts[index + 1];
    return (struct ash_example){examples->ids + start, examples->targets + start, end - start};
}

float ash_examples_margin(const struct ash_examples *examples, size_t pair)
{
    ash_assert(pair < examples->count / 2);
    return examples->margins != NULL ? examples->margins[pair] : 0.0f;
}

uint64_t ash_examples_hash(const struct ash_examples *examples)
{
    return examples->hash;
}

uint64_t ash_examples_tokenizer_hash(const struct ash_examples *examples)
{
    return examples->tokenizer_hash;
}

size_t ash_examples_vocab_size(const struct ash_examples *examples)
{
    return examples->vocab_size;
}
