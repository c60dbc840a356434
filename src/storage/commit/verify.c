/* Reading manifests: does a committed folder match its checksums? */
#include "storage/commit/commit_priv.h"

#include <dirent.h>
#include <errno.h>
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
#include "storage/io/io_priv.h"

#define MANIFEST_MAX_BYTES ((size_t)64 << 20)

/* The content of a file as one xxh3. */
static int hash_content(int fd, char *buf, uint64_t *hash_out)
{
    XXH3_state_t *hasher = XXH3_createState();
    ssize_t got = 1;

    if (hasher == NULL) return -ENOMEM;
    XXH3_64bits_reset(hasher);
    while (got > 0) {
        got = ash_manifest_read(fd, buf, ASH_PIECE_BYTES);
        if (got > 0) XXH3_64bits_update(hasher, buf, (size_t)got);
    }
    *hash_out = XXH3_64bits_digest(hasher);
    XXH3_freeState(hasher);
    return got < 0 ? (int)got : 0;
}

/* Does the text end in the checksum of itself? */
static bool check_text(const char *text, size_t size_bytes)
{
    char hex[ASH_MANIFEST_HEX_BYTES + 1], *copy;
    const char *tail, *digits;
    bool is_right;

    if (size_bytes < ASH_MANIFEST_TAIL_BYTES) return false;
    tail = text + size_bytes - ASH_MANIFEST_TAIL_BYTES;
    digits = tail + sizeof(ASH_MANIFEST_TAIL_KEY) - 1;
    if (memcmp(tail, ASH_MANIFEST_TAIL_KEY, sizeof(ASH_MANIFEST_TAIL_KEY) - 1) != 0) return false;
    if (memcmp(digits + ASH_MANIFEST_HEX_BYTES, ASH_MANIFEST_TAIL_END, sizeof(ASH_MANIFEST_TAIL_END) - 1) != 0)
        return false;
    copy = malloc(size_bytes);
    if (copy == NULL) return false;
    memcpy(copy, text, size_bytes);
    memcpy(copy + (digits - text), ASH_MANIFEST_HEX_ZEROS, ASH_MANIFEST_HEX_BYTES);
    ash_manifest_print_hex(ash_hash_bytes(copy, size_bytes, 0), hex);
    is_right = memcmp(digits, hex, ASH_MANIFEST_HEX_BYTES) == 0;
    free(copy);
    return is_right;
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

/* The sums of a manifest's entry. Returns -EBADMSG where they are not those of a file of size_bytes. */
static int decode_pieces(const json_t *entry, uint64_t size_bytes, struct ash_pieces *pieces_out)
{
    const json_t *list = json_object_get(entry, "pieces");
    int rc;

    if (size_bytes / ASH_PIECE_BYTES > json_array_size(list)) return -EBADMSG;
    rc = ash_pieces_init(pieces_out, size_bytes, NULL);
    if (rc < 0) return rc;
    rc = json_array_size(list) == pieces_out->count ? 0 : -EBADMSG;
    for (size_t i = 0; rc == 0 && i < pieces_out->count; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        char *end = NULL;

        if (text == NULL || strlen(text) != ASH_MANIFEST_HEX_BYTES) rc = -EBADMSG;
        if (rc == 0) pieces_out->sums[i] = strtoull(text, &end, 16);
        if (rc == 0 && *end != '\0') rc = -EBADMSG;
    }
    if (rc < 0) ash_pieces_fini(pieces_out);
    return rc;
}

static int damaged(const char *path, struct ash_err *err)
{
    return ash_err_set(err, -EBADMSG, "%s: it is damaged: its content is not what was saved", path);
}

/* Compare a file with its sums. */
static int check_pieces(const char *path, int fd, char *buf, const json_t *entry, struct ash_err *err)
{
    struct ash_pieces saved = {0}, found = {0};
    uint64_t size = 0;
    int rc = decode_pieces(entry, (uint64_t)json_integer_value(json_object_get(entry, "size")), &saved);

    if (rc < 0) return ash_err_set(err, rc, "%s: its checksums in " ASH_COMMIT_MANIFEST " make no sense", path);
    rc = ash_pieces_init(&found, saved.size_bytes, err);
    if (rc == 0) rc = ash_manifest_sum_content(fd, &found, buf, &size);
    if (rc < 0)
        ash_io_fail(err, rc, path, "read");
    else if (size != saved.size_bytes)
        rc = damaged(path, err);
    for (size_t i = 0; rc == 0 && i < saved.count; i++)
        if (saved.sums[i] != found.sums[i])
            rc = ash_err_set(err, -EBADMSG, "%s: it is damaged: bytes from %zu on are not what was saved", path,
                             i * ASH_PIECE_BYTES);
    ash_pieces_fini(&saved);
    ash_pieces_fini(&found);
    return rc;
}

static int check_content(const char *path, const json_t *entry, struct ash_err *err)
{
    const char *hex = json_string_value(json_object_get(entry, "xxh3"));
    char *buf, found[ASH_MANIFEST_HEX_BYTES + 1];
    uint64_t hash = 0;
    int fd = ash_manifest_open(path, &buf, err), rc;

    if (fd < 0) return fd;
    if (hex == NULL) {
        rc = check_pieces(path, fd, buf, entry, err);
    } else {
        rc = hash_content(fd, buf, &hash);
        ash_manifest_print_hex(hash, found);
        if (rc < 0)
            ash_io_fail(err, rc, path, "read");
        else if (strcmp(found, hex) != 0)
            rc = damaged(path, err);
    }
    close(fd);
    free(buf);
    return rc;
}

static int check_file(const char *dir, const json_t *entry, bool deep, struct ash_err *err)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    json_int_t size = json_integer_value(json_object_get(entry, "size"));
    char path[PATH_MAX];
    struct stat st;

    if (ash_path_join(path, sizeof(path), dir, name) < 0) return ash_io_fail(err, -ENAMETOOLONG, dir, "read");
    if (stat(path, &st) != 0) {
        if (errno != ENOENT && errno != ENOTDIR) return ash_io_fail(err, -errno, path, "read");
        return ash_err_set(err, -EBADMSG, "%s: this file is missing", path);
    }
    if (!S_ISREG(st.st_mode)) return ash_err_set(err, -EBADMSG, "%s: this is not a file any more", path);
    if (st.st_size != size)
        return ash_err_set(err, -EBADMSG, "%s: it has %lld bytes but %lld were saved", path, (long long)st.st_size,
                           (long long)size);
    return deep ? check_content(path, entry, err) : 0;
}

/* Validate a manifest. */
static int check_shape(const char *name, const json_t *manifest, struct ash_err *err)
{
    const json_t *files = json_object_get(manifest, "files"), *entry;
    json_int_t version = json_integer_value(json_object_get(manifest, "version"));
    size_t i;

    if (version != ASH_MANIFEST_VERSION && version != ASH_MANIFEST_VERSION_FILE_SUMS)
        return ash_err_set(err, -ENOTSUP, "%s: this save has another version of " ASH_COMMIT_MANIFEST " than %d", name,
                           ASH_MANIFEST_VERSION);
    if (!json_is_array(files) || !json_is_object(json_object_get(manifest, "state")))
        return ash_err_set(err, -EBADMSG, "%s/" ASH_COMMIT_MANIFEST ": it lists no files or no state", name);
    json_array_foreach(files, i, entry) {
        const char *file = json_string_value(json_object_get(entry, "name"));

        if (file == NULL || !is_inside(file) || json_integer_value(json_object_get(entry, "size")) < 0)
            return ash_err_set(err, -EBADMSG, "%s/" ASH_COMMIT_MANIFEST ": its list of files makes no sense", name);
    }
    return 0;
}

int ash_commit_parse(const char *text, size_t size_bytes, const char *name, json_t **manifest_out, struct ash_err *err)
{
    json_t *manifest = NULL;
    int rc;

    if (!check_text(text, size_bytes))
        return ash_err_set(err, -EBADMSG,
                           "%s/" ASH_COMMIT_MANIFEST ": it is damaged: its content is not what was saved", name);
    if (ash_json_parse(text, size_bytes, name, &manifest, NULL) < 0)
        return ash_err_set(err, -EBADMSG, "%s/" ASH_COMMIT_MANIFEST ": it is not a list of saved files", name);
    rc = check_shape(name, manifest, err);
    if (rc == 0)
        *manifest_out = manifest;
    else
        json_decref(manifest);
    return rc;
}

size_t ash_commit_file_count(const json_t *manifest)
{
    return json_array_size(json_object_get(manifest, "files"));
}

int ash_commit_file(const json_t *manifest, size_t index, const char **name_out, struct ash_pieces *pieces_out,
                    struct ash_err *err)
{
    const json_t *entry = json_array_get(json_object_get(manifest, "files"), index);
    const char *name = json_string_value(json_object_get(entry, "name"));
    int rc;

    if (json_object_get(entry, "xxh3") != NULL)
        return ash_err_set(err, -ENOTSUP, "%s: this save is of an older version, without checksums of pieces", name);
    rc = decode_pieces(entry, (uint64_t)json_integer_value(json_object_get(entry, "size")), pieces_out);
    if (rc < 0) return ash_err_set(err, rc, "%s: its checksums in " ASH_COMMIT_MANIFEST " make no sense", name);
    *name_out = name;
    return 0;
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
    rc = ash_commit_parse(text, size_bytes, dir, manifest_out, err);
    free(text);
    return rc;
}

static int check_files(const char *dir, const json_t *manifest, bool deep, struct ash_err *err)
{
    const json_t *files = json_object_get(manifest, "files"), *entry;
    size_t i;

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

/* Does a manifest list this file, or files of a folder of this name? */
static bool is_listed(const json_t *manifest, const char *name)
{
    const json_t *files = json_object_get(manifest, "files"), *entry;
    size_t length = strlen(name), i;

    json_array_foreach(files, i, entry) {
        const char *listed = json_string_value(json_object_get(entry, "name"));

        if (listed != NULL && strncmp(listed, name, length) == 0 && (listed[length] == '\0' || listed[length] == '/'))
            return true;
    }
    return false;
}

int ash_commit_check_replace(const char *dir, const char *file, struct ash_err *err)
{
    DIR *listing = opendir(dir);
    json_t *manifest = NULL;
    struct dirent *entry;
    int rc = 0;

    if (listing == NULL && errno == ENOENT) return 0;
    if (listing == NULL) return ash_io_fail(err, -errno, dir, "write to");
    if (!ash_dir_is_empty(dir) && (ash_commit_verify(dir, false, &manifest, NULL) < 0 || !is_listed(manifest, file)))
        rc = ash_err_set(err, -EEXIST, "'%s' holds other files, which would be lost: choose another folder", dir);
    while (rc == 0 && manifest != NULL && (entry = readdir(listing)) != NULL) {
        const char *name = entry->d_name;

        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, ASH_COMMIT_MANIFEST) == 0) continue;
        if (!is_listed(manifest, name))
            rc = ash_err_set(err, -EEXIST, "'%s' holds %.200s, which would be lost: choose another folder", dir, name);
    }
    json_decref(manifest);
    closedir(listing);
    return rc;
}
