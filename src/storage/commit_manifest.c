/* Manifests: what a committed folder holds, and whether it still does. The manifest carries a checksum of its own text,
 * so that damage to any byte of a folder is found. */
#include "storage/commit_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/str.h"
#include "storage/io_priv.h"

#define MANIFEST_VERSION 1
#define MANIFEST_MAX_BYTES ((size_t)64 << 20)
#define FOLDERS_DEEP_MAX 8
#define READ_BYTES ((size_t)256 << 10)
#define HEX_BYTES 16
#define HEX_ZEROS "0000000000000000"
/* A manifest's text ends in: TAIL_KEY, 16 hex digits, TAIL_END. The digits are of the text with zeros in their
 * place. */
#define TAIL_NAME "manifest_xxh3"
#define TAIL_KEY "\"" TAIL_NAME "\": \""
#define TAIL_END "\"\n}\n"
#define TAIL_BYTES (sizeof(TAIL_KEY) - 1 + HEX_BYTES + sizeof(TAIL_END) - 1)

static void print_hex(uint64_t hash, char hex[HEX_BYTES + 1])
{
    snprintf(hex, HEX_BYTES + 1, "%016" PRIx64, hash);
}

/* Read fd to its end through buf. */
static int hash_content(int fd, XXH3_state_t *hasher, char *buf, uint64_t *size_out, uint64_t *hash_out)
{
    uint64_t size = 0;

    XXH3_64bits_reset(hasher);
    for (;;) {
        ssize_t got = read(fd, buf, READ_BYTES);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -errno;
        if (got == 0) break;
        XXH3_64bits_update(hasher, buf, (size_t)got);
        size += (uint64_t)got;
    }
    *size_out = size;
    *hash_out = XXH3_64bits_digest(hasher);
    return 0;
}

/* Checksum a file by reading, not by mapping: a failing disk then gives an error and not a signal. */
static int hash_file(const char *path, bool flush, uint64_t *size_out, uint64_t *hash_out, struct ash_err *err)
{
    XXH3_state_t *hasher = XXH3_createState();
    char *buf = malloc(READ_BYTES);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int rc = fd < 0 ? -errno : 0;

    if (hasher == NULL || buf == NULL) rc = -ENOMEM;
    if (rc == 0 && flush && fsync(fd) != 0) rc = -errno;
    if (rc == 0) rc = hash_content(fd, hasher, buf, size_out, hash_out);
    if (fd >= 0) close(fd);
    free(buf);
    XXH3_freeState(hasher);
    return rc < 0 ? ash_io_fail(err, rc, path, flush ? "write" : "read") : 0;
}

/* Append {"name", "size", "xxh3"} of dir/name to files. */
static int add_file(const char *path, const char *name, json_t *files, struct ash_err *err)
{
    uint64_t size = 0, hash = 0;
    char hex[HEX_BYTES + 1];
    json_t *entry;
    int rc = hash_file(path, true, &size, &hash, err);

    if (rc < 0) return rc;
    print_hex(hash, hex);
    entry = json_pack("{s:s, s:I, s:s}", "name", name, "size", (json_int_t)size, "xxh3", hex);
    if (entry == NULL) return ash_err_set(err, -EINVAL, "%s: this name is not valid UTF-8", path);
    if (json_array_append_new(files, entry) < 0)
        return ash_err_set(err, -ENOMEM, "%s: no memory for the manifest", path);
    return 0;
}

static int add_folder(const char *root, const char *name, int deep, json_t *files, struct ash_err *err);

/* name is relative to root. */
static int add_entry(const char *root, const char *name, int deep, json_t *files, struct ash_err *err)
{
    char path[PATH_MAX];
    struct stat st;

    if (ash_path_join(path, sizeof(path), root, name) < 0) return ash_io_fail(err, -ENAMETOOLONG, root, "list");
    if (lstat(path, &st) != 0) return ash_io_fail(err, -errno, path, "read");
    if (S_ISDIR(st.st_mode)) return add_folder(root, name, deep + 1, files, err);
    if (!S_ISREG(st.st_mode)) return ash_err_set(err, -EINVAL, "%s: only files and folders can be committed", path);
    if (strcmp(name, ASH_COMMIT_MANIFEST) == 0)
        return ash_err_set(err, -EEXIST, "%s: this name is kept for the list of files", path);
    return add_file(path, name, files, err);
}

static int no_dots(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static int compare_entries(const struct dirent **left, const struct dirent **right)
{
    return strcmp((*left)->d_name, (*right)->d_name);
}

/* Files of a folder in the order of their names, then the folder itself is flushed. */
static int add_folder(const char *root, const char *name, int deep, json_t *files, struct ash_err *err)
{
    char path[PATH_MAX], child[PATH_MAX];
    struct dirent **entries = NULL;
    int count, rc = 0;

    if (deep > FOLDERS_DEEP_MAX)
        return ash_err_set(err, -ELOOP, "%s/%s: folders are more than %d deep", root, name, FOLDERS_DEEP_MAX);
    if (ash_path_join(path, sizeof(path), root, name) < 0) return ash_io_fail(err, -ENAMETOOLONG, root, "list");
    count = scandir(path, &entries, no_dots, compare_entries);
    if (count < 0) return ash_io_fail(err, -errno, path, "list");
    for (int i = 0; i < count; i++) {
        const char *base = entries[i]->d_name;
        if (rc == 0 && ash_path_join(child, sizeof(child), name, base) < 0)
            rc = ash_io_fail(err, -ENAMETOOLONG, path, "list");
        if (rc == 0) rc = add_entry(root, child, deep, files, err);
        free(entries[i]);
    }
    free(entries);
    return rc < 0 ? rc : ash_dir_sync(path, err);
}

/* The manifest's text, its own checksum filled in. */
static int print_manifest(const json_t *manifest, struct ash_str *text)
{
    char *dump = json_dumps(manifest, JSON_INDENT(2));
    char hex[HEX_BYTES + 1];
    int rc = dump != NULL ? ash_str_addf(text, "%s\n", dump) : -ENOMEM;

    free(dump);
    if (rc < 0) return rc;
    print_hex(ash_hash_bytes(text->data, text->size_bytes, 0), hex);
    memcpy(text->data + text->size_bytes - (sizeof(TAIL_END) - 1) - HEX_BYTES, hex, HEX_BYTES);
    return 0;
}

/* The manifest of files and state (NULL: empty), taking over files. NULL when out of memory. */
static json_t *make_manifest(json_t *files, json_t *state)
{
    return json_pack("{s:i, s:o, s:o, s:s}", "version", MANIFEST_VERSION, "files", files, "state",
                     state != NULL ? json_incref(state) : json_object(), TAIL_NAME, HEX_ZEROS);
}

int ash_manifest_write(const char *dir, json_t *state, struct ash_err *err)
{
    json_t *files = NULL, *manifest;
    struct ash_str text = {0};
    char path[PATH_MAX];
    int rc;

    if (state != NULL && !json_is_object(state))
        return ash_err_set(err, -EINVAL, "%s: its state is not an object", dir);
    if (ash_path_join(path, sizeof(path), dir, ASH_COMMIT_MANIFEST) < 0)
        return ash_io_fail(err, -ENAMETOOLONG, dir, "write");
    files = json_array();
    rc = add_folder(dir, "", 0, files, err);
    if (rc < 0) {
        json_decref(files);
        return rc;
    }
    manifest = make_manifest(files, state);
    rc = manifest != NULL ? print_manifest(manifest, &text) : -ENOMEM;
    json_decref(manifest);
    if (rc < 0) ash_err_set(err, rc, "%s: no memory for the manifest", dir);
    if (rc == 0) rc = ash_file_replace(path, text.data, text.size_bytes, err);
    ash_str_fini(&text);
    return rc;
}

/* Does the text end in the checksum of itself? (The digits are zeroed for a moment.) */
static bool check_text(char *text, size_t size_bytes)
{
    char hex[HEX_BYTES + 1], found[HEX_BYTES], *tail, *digits;

    if (size_bytes < TAIL_BYTES) return false;
    tail = text + size_bytes - TAIL_BYTES;
    digits = tail + sizeof(TAIL_KEY) - 1;
    if (memcmp(tail, TAIL_KEY, sizeof(TAIL_KEY) - 1) != 0) return false;
    if (memcmp(digits + HEX_BYTES, TAIL_END, sizeof(TAIL_END) - 1) != 0) return false;
    memcpy(found, digits, HEX_BYTES);
    memcpy(digits, HEX_ZEROS, HEX_BYTES);
    print_hex(ash_hash_bytes(text, size_bytes, 0), hex);
    memcpy(digits, found, HEX_BYTES);
    return memcmp(found, hex, HEX_BYTES) == 0;
}

static int load_manifest(const char *dir, json_t **manifest_out, struct ash_err *err)
{
    char path[PATH_MAX], *text = NULL;
    size_t size_bytes = 0;
    int rc;

    if (ash_path_join(path, sizeof(path), dir, ASH_COMMIT_MANIFEST) < 0)
        return ash_io_fail(err, -ENAMETOOLONG, dir, "read");
    rc = ash_file_read(path, MANIFEST_MAX_BYTES, &text, &size_bytes, err);
    if (rc == -ENOENT || rc == -ENOTDIR)
        return ash_err_set(err, -ENOENT, "%s: it has no " ASH_COMMIT_MANIFEST ": this save was not finished", dir);
    if (rc < 0) return rc;
    if (!check_text(text, size_bytes))
        rc = ash_err_set(err, -EBADMSG, "%s: it is damaged: its content is not what was saved", path);
    else if (ash_json_parse(text, size_bytes, path, manifest_out, NULL) < 0)
        rc = ash_err_set(err, -EBADMSG, "%s: it is not a list of saved files", path);
    free(text);
    return rc;
}

/* A relative path that stays inside its folder. */
static bool is_inside(const char *name)
{
    for (;;) {
        const char *slash = strchrnul(name, '/');
        size_t length = (size_t)(slash - name);
        if (length == 0 || (length == 1 && name[0] == '.') || (length == 2 && name[0] == '.' && name[1] == '.'))
            return false;
        if (*slash == '\0') return true;
        name = slash + 1;
    }
}

static int check_hash(const char *path, const char *hex, struct ash_err *err)
{
    uint64_t size = 0, hash = 0;
    char found[HEX_BYTES + 1];
    int rc = hash_file(path, false, &size, &hash, err);

    if (rc < 0) return rc;
    print_hex(hash, found);
    if (strcmp(found, hex) == 0) return 0;
    return ash_err_set(err, -EBADMSG, "%s: it is damaged: its content is not what was saved", path);
}

static int check_file(const char *dir, const json_t *entry, bool deep, struct ash_err *err)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    const char *hex = json_string_value(json_object_get(entry, "xxh3"));
    json_int_t size = json_integer_value(json_object_get(entry, "size"));
    char path[PATH_MAX];
    struct stat st;

    if (name == NULL || hex == NULL || !is_inside(name) || ash_path_join(path, sizeof(path), dir, name) < 0)
        return ash_err_set(err, -EBADMSG, "%s/" ASH_COMMIT_MANIFEST ": its list of files makes no sense", dir);
    if (stat(path, &st) != 0) {
        if (errno != ENOENT && errno != ENOTDIR) return ash_io_fail(err, -errno, path, "read");
        return ash_err_set(err, -EBADMSG, "%s: this file is missing", path);
    }
    if (!S_ISREG(st.st_mode)) return ash_err_set(err, -EBADMSG, "%s: this is not a file any more", path);
    if (st.st_size != size)
        return ash_err_set(err, -EBADMSG, "%s: it has %lld bytes but %lld were saved", path, (long long)st.st_size,
                           (long long)size);
    return deep ? check_hash(path, hex, err) : 0;
}

static int check_files(const char *dir, const json_t *manifest, bool deep, struct ash_err *err)
{
    const json_t *files = json_object_get(manifest, "files"), *entry;
    size_t i;

    if (json_integer_value(json_object_get(manifest, "version")) != MANIFEST_VERSION)
        return ash_err_set(err, -ENOTSUP, "%s: this save has another version of " ASH_COMMIT_MANIFEST " than %d", dir,
                           MANIFEST_VERSION);
    if (!json_is_array(files) || !json_is_object(json_object_get(manifest, "state")))
        return ash_err_set(err, -EBADMSG, "%s/" ASH_COMMIT_MANIFEST ": it lists no files or no state", dir);
    json_array_foreach(files, i, entry) {
        int rc = check_file(dir, entry, deep, err);
        if (rc < 0) return rc;
    }
    return 0;
}

int ash_commit_verify(const char *dir, bool deep, json_t **manifest_out, struct ash_err *err)
{
    json_t *manifest = NULL;
    int rc = load_manifest(dir, &manifest, err);

    if (rc < 0) return rc;
    rc = check_files(dir, manifest, deep, err);
    if (rc == 0 && manifest_out != NULL)
        *manifest_out = manifest;
    else
        json_decref(manifest);
    return rc;
}
