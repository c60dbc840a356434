/* Input files of a tokenizing run and their formats: folders become the files in them, in the order of their names; a
 * file's ending, or else its beginning, decides between text, JSON lines and Parquet. */
#include "train/data/tokenize_priv.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "storage/parquet/parquet.h"
#include "train/data/text_source.h"

#define FOLDER_DEPTH_MAX 32
#define FIRST_LINE_BYTES ((size_t)64 << 10)

/* A file's content by its ending. */
enum content {
    CONTENT_UNKNOWN, /* decided by the first line */
    CONTENT_TEXT,
    CONTENT_JSONL,
    CONTENT_JSON, /* JSON lines, or a document that cannot be read */
    CONTENT_PARQUET,
};

static const struct {
    const char *ending;
    enum content content;
} endings[] = {
    {".txt", CONTENT_TEXT},     {".text", CONTENT_TEXT}, {".md", CONTENT_TEXT},         {".jsonl", CONTENT_JSONL},
    {".ndjson", CONTENT_JSONL}, {".json", CONTENT_JSON}, {".parquet", CONTENT_PARQUET},
};

static bool has_ending(const char *name, size_t length, const char *ending)
{
    size_t ending_length = strlen(ending);

    return length > ending_length && strncmp(name + length - ending_length, ending, ending_length) == 0;
}

static enum content content_of(const char *name)
{
    static const char *const packed[] = {".gz", ".zst"};
    size_t length = strlen(name);

    for (size_t i = 0; i < ASH_COUNT(packed); i++)
        if (has_ending(name, length, packed[i])) {
            length -= strlen(packed[i]);
            break;
        }
    for (size_t i = 0; i < ASH_COUNT(endings); i++)
        if (has_ending(name, length, endings[i].ending)) return endings[i].content;
    return CONTENT_UNKNOWN;
}

/* ---- one file ---------------------------------------------------------------------------------------------------- */

/* Is the first line a JSON object (field NULL), or one with a text of that name? A line that continues beyond
 * size_bytes counts if it begins as one. */
static bool is_json_line(const char *head, size_t size_bytes, const char *field)
{
    const char *end;
    json_t *json = NULL;
    bool is_line;

    while (size_bytes > 0 && strchr(" \t\r\n", *head) != NULL && *head != '\0') {
        head++;
        size_bytes--;
    }
    if (size_bytes == 0 || *head != '{') return false;
    end = memchr(head, '\n', size_bytes);
    if (end == NULL && size_bytes >= FIRST_LINE_BYTES / 2) return true;
    if (ash_json_parse_line(head, end != NULL ? (size_t)(end - head) : size_bytes, "", 1, &json, NULL) < 0)
        return false;
    is_line = json_is_object(json) && (field == NULL || json_is_string(json_object_get(json, field)));
    json_decref(json);
    return is_line;
}

int ash_input_file_settle(struct ash_input_file *file, const char *head, size_t size_bytes, const char *field,
                          struct ash_err *err)
{
    enum content content = content_of(file->path);

    if (content == CONTENT_JSON && !is_json_line(head, size_bytes, NULL))
        return ash_err_set(err, -EINVAL,
                           "%s: this is JSON, but not a JSON object per line; make lines of it (jq -c '.[]' FILE), or "
                           "take it as it is with --format text",
                           file->path);
    file->jsonl = content == CONTENT_JSONL || content == CONTENT_JSON ||
                  (content == CONTENT_UNKNOWN && is_json_line(head, size_bytes, field));
    file->is_settled = true;
    return 0;
}

/* Read the beginning of a file and detect its format. */
static int look_inside(struct ash_input_file *file, const struct ash_input_opts *opts, struct ash_err *err)
{
    struct ash_text_source *source = NULL;
    char *head = NULL;
    size_t filled = 0, count = 1;
    int rc = ash_text_source_open(file->path, &source, err);

    if (rc < 0) return rc;
    file->is_packed = ash_text_source_is_packed(source);
    if (file->is_settled) goto done;
    head = malloc(FIRST_LINE_BYTES);
    if (head == NULL) rc = ash_err_set(err, -ENOMEM, "%s: out of memory", file->path);
    while (rc == 0 && count > 0 && filled < FIRST_LINE_BYTES) {
        rc = ash_text_source_read(source, head + filled, FIRST_LINE_BYTES - filled, &count, err);
        filled += rc == 0 ? count : 0;
    }
    if (rc == 0) rc = ash_input_file_settle(file, head, filled, opts->field, err);

done:
    free(head);
    ash_text_source_close(source);
    return rc;
}

static int64_t nanoseconds(const struct timespec *time)
{
    return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

/* Find the column now, not when the work comes to this file. */
static int look_at_table(struct ash_input_file *file, const struct ash_input_opts *opts, struct ash_err *err)
{
    struct ash_parquet *table = NULL;
    int rc = ash_parquet_open(file->path, opts->field, &table, err);

    if (rc < 0) return rc;
    file->is_parquet = file->is_settled = true;
    file->jsonl = false;
    file->rows = ash_parquet_rows(table);
    ash_parquet_close(table);
    return 0;
}

/* A pipe is another one each time: its key is the moment. */
static int describe(struct ash_input_file *file, const struct stat *st, const struct ash_input_opts *opts,
                    struct ash_err *err)
{
    struct timespec now;

    file->jsonl = opts->format == ASH_FORMAT_JSONL;
    file->is_settled = opts->format != ASH_FORMAT_AUTO;
    file->is_stream = !S_ISREG(st->st_mode);
    if (file->is_stream && opts->format == ASH_FORMAT_PARQUET)
        return ash_err_set(err, -EINVAL, "%s: Parquet is read from files, not from a pipe; name the file", file->path);
    if (file->is_stream) {
        clock_gettime(CLOCK_REALTIME, &now);
        file->mtime_ns = nanoseconds(&now);
        return 0;
    }
    file->size_bytes = (uint64_t)st->st_size;
    file->mtime_ns = nanoseconds(&st->st_mtim);
    if (opts->format == ASH_FORMAT_PARQUET || (opts->format == ASH_FORMAT_AUTO && ash_parquet_detect(file->path) == 1))
        return look_at_table(file, opts, err);
    return look_inside(file, opts, err);
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

static int add_file(struct ash_input_files *files, const char *path, const struct stat *st,
                    const struct ash_input_opts *opts, struct ash_err *err)
{
    struct ash_input_file *file;

    if (ash_array_reserve(&files->items, &files->capacity, files->count + 1, sizeof(*files->items)) < 0)
        return ash_err_set(err, -ENOMEM, "out of memory for the list of files");
    file = &files->items[files->count];
    *file = (struct ash_input_file){.path = strdup(path)};
    if (file->path == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the list of files");
    files->count++;
    return describe(file, st, opts, err);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int select_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* State of a walk over folders. */
struct walk {
    struct ash_input_files *files;
    const struct ash_input_opts *opts;
    bool wants_parquet; /* only Parquet files; else only others */
    size_t left_out;    /* files of other endings */
};

static int add_folder(struct walk *walk, const char *dir, int depth, struct ash_err *err);

/* One entry of a folder: the files below a subfolder, or a file with a fitting ending. */
static int add_entry(struct walk *walk, const char *dir, const char *name, int depth, struct ash_err *err)
{
    enum content content = content_of(name);
    char path[PATH_MAX];
    struct stat st;

    if (ash_path_join(path, sizeof(path), dir, name) < 0)
        return ash_err_set(err, -ENAMETOOLONG, "%s: the path is too long", dir);
    if (stat(path, &st) < 0) return ash_err_set(err, -errno, "%s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode)) return add_folder(walk, path, depth + 1, err);
    walk->left_out += content == CONTENT_UNKNOWN;
    if (!S_ISREG(st.st_mode) || content == CONTENT_UNKNOWN || (content == CONTENT_PARQUET) != walk->wants_parquet)
        return 0;
    return add_file(walk->files, path, &st, walk->opts, err);
}

static int add_folder(struct walk *walk, const char *dir, int depth, struct ash_err *err)
{
    struct dirent **entries = NULL;
    int rc = 0, count;

    if (depth > FOLDER_DEPTH_MAX)
        return ash_err_set(err, -ELOOP, "%s: folders are more than %d deep", dir, FOLDER_DEPTH_MAX);
    count = scandir(dir, &entries, select_visible, by_name);
    if (count < 0) return ash_err_set(err, -errno, "%s: cannot list the folder: %s", dir, strerror(errno));
    for (int i = 0; i < count; i++) {
        if (rc == 0) rc = add_entry(walk, dir, entries[i]->d_name, depth, err);
        free(entries[i]);
    }
    free(entries);
    return rc;
}

/* A folder with Parquet files is a dataset: what else is there (a README.md, facts in JSON) is no text of it. */
static int walk_folder(struct ash_input_files *files, const char *path, const struct ash_input_opts *opts,
                       struct ash_err *err)
{
    struct walk walk = {.files = files, .opts = opts, .wants_parquet = true};
    size_t before = files->count;
    int rc = 0;

    if (opts->format == ASH_FORMAT_AUTO || opts->format == ASH_FORMAT_PARQUET) rc = add_folder(&walk, path, 1, err);
    if (rc < 0 || files->count > before) return rc;
    walk.wants_parquet = false;
    walk.left_out = 0;
    if (opts->format != ASH_FORMAT_PARQUET) rc = add_folder(&walk, path, 1, err);
    if (rc == 0 && files->count > before && walk.left_out > 0)
        ash_log(ASH_LOG_WARN, "%s: %zu files are left out, whose endings are not those of text: name them one by one",
                path, walk.left_out);
    if (rc < 0 || files->count > before) return rc;
    return ash_err_set(err, -ENOENT,
                       "%s: there is no text in this folder (.parquet, or .txt, .text, .md, .jsonl, .ndjson, .json, or "
                       "these with .gz or .zst); name other files one by one",
                       path);
}

int ash_input_files_add(struct ash_input_files *files, const char *path, const struct ash_input_opts *opts,
                        struct ash_err *err)
{
    struct stat st;

    if (strcmp(path, "-") == 0) return add_file(files, path, &(struct stat){.st_mode = S_IFIFO}, opts, err);
    if (stat(path, &st) < 0) return ash_err_set(err, -errno, "%s: %s", path, strerror(errno));
    return S_ISDIR(st.st_mode) ? walk_folder(files, path, opts, err) : add_file(files, path, &st, opts, err);
}

void ash_input_files_fini(struct ash_input_files *files)
{
    for (size_t i = 0; i < files->count; i++)
        free(files->items[i].path);
    free(files->items);
    *files = (struct ash_input_files){0};
}
