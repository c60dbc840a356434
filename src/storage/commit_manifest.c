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

#define MANIFEST_VERSION 2
#define MANIFEST_VERSION_FILE_SUMS 1 /* one xxh3 for each file */
#define MANIFEST_MAX_BYTES ((size_t)64 << 20)
#define FOLDERS_DEEP_MAX 8
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

/* ---- sums of files ----------------------------------------------------------------------------------------------- */

/* Read up to size_bytes. Returns how many there were, or a negative errno. */
static ssize_t read_some(int fd, char *buf, size_t size_bytes)
{
    size_t done = 0;

    while (done < size_bytes) {
        ssize_t got = read(fd, buf + done, size_bytes - done);

        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -errno;
        if (got == 0) break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

/* Sum a file of pieces->size_bytes, piece by piece, as far as it goes. *size_out: how far that is. */
static int sum_content(int fd, struct ash_pieces *pieces, char *buf, uint64_t *size_out)
{
    uint64_t at = 0;

    for (;;) {
        ssize_t got = read_some(fd, buf, ASH_PIECE_BYTES);

        if (got < 0) return (int)got;
        if (got == 0) break;
        if (at + (uint64_t)got <= pieces->size_bytes) ash_pieces_add(pieces, at, buf, (size_t)got);
        at += (uint64_t)got;
        if (at > pieces->size_bytes) break;
    }
    *size_out = at;
    return 0;
}

/* The same as one xxh3. */
static int hash_content(int fd, char *buf, uint64_t *hash_out)
{
    XXH3_state_t *hasher = XXH3_createState();
    ssize_t got = 1;

    if (hasher == NULL) return -ENOMEM;
    XXH3_64bits_reset(hasher);
    while (got > 0) {
        got = read_some(fd, buf, ASH_PIECE_BYTES);
        if (got > 0) XXH3_64bits_update(hasher, buf, (size_t)got);
    }
    *hash_out = XXH3_64bits_digest(hasher);
    XXH3_freeState(hasher);
    return got < 0 ? (int)got : 0;
}

/* Open a file to sum it, by reading, not by mapping: a failing disk then gives an error and not a signal. *buf_out has
 * room for a piece. */
static int open_to_sum(const char *path, char **buf_out, struct ash_err *err)
{
    char *buf = aligned_alloc(4096, ASH_PIECE_BYTES);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc = -errno;

    if (fd >= 0 && buf != NULL) {
        *buf_out = buf;
        return fd;
    }
    if (fd >= 0) close(fd);
    free(buf);
    return ash_io_fail(err, buf == NULL ? -ENOMEM : rc, path, "read");
}

/* Flush and sum a file that was written without sums. The caller frees *pieces_out. */
static int sum_file(const char *path, struct ash_pieces *pieces_out, struct ash_err *err)
{
    struct ash_pieces pieces = {0};
    uint64_t size = 0;
    struct stat st;
    char *buf;
    int fd = open_to_sum(path, &buf, err), rc = 0;

    if (fd < 0) return fd;
    if (fsync(fd) != 0 || fstat(fd, &st) != 0) rc = -errno;
    if (rc == 0) rc = ash_pieces_init(&pieces, (uint64_t)st.st_size, err);
    if (rc == 0) rc = sum_content(fd, &pieces, buf, &size);
    if (rc == 0 && size != pieces.size_bytes) rc = -EIO;
    close(fd);
    free(buf);
    if (rc < 0) {
        ash_pieces_fini(&pieces);
        return ash_io_fail(err, rc, path, "write");
    }
    *pieces_out = pieces;
    return 0;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* What is being listed. */
struct listing {
    const char *root;
    const struct ash_commit_sums *known;
    size_t known_count;
    json_t *files;
};

/* The sums as a list of hexadecimal numbers; NULL when out of memory. */
static json_t *encode_pieces(const struct ash_pieces *pieces)
{
    json_t *list = json_array();
    char hex[HEX_BYTES + 1];

    for (size_t i = 0; i < pieces->count; i++) {
        print_hex(pieces->sums[i], hex);
        if (json_array_append_new(list, json_string(hex)) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* Append {"name", "size", "pieces"} of a file. */
static int add_sums(const struct listing *listing, const char *name, const struct ash_pieces *pieces,
                    struct ash_err *err)
{
    json_t *sums = encode_pieces(pieces), *entry;

    if (sums == NULL) return ash_err_set(err, -ENOMEM, "%s: no memory for the manifest", listing->root);
    entry = json_pack("{s:s, s:I, s:o}", "name", name, "size", (json_int_t)pieces->size_bytes, "pieces", sums);
    if (entry == NULL) return ash_err_set(err, -EINVAL, "%s/%s: this name is not valid UTF-8", listing->root, name);
    if (json_array_append_new(listing->files, entry) < 0)
        return ash_err_set(err, -ENOMEM, "%s: no memory for the manifest", listing->root);
    return 0;
}

static int add_file(const struct listing *listing, const char *path, const char *name, struct ash_err *err)
{
    struct ash_pieces pieces = {0};
    int rc;

    for (size_t i = 0; i < listing->known_count; i++)
        if (strcmp(listing->known[i].name, name) == 0) return add_sums(listing, name, listing->known[i].pieces, err);
    rc = sum_file(path, &pieces, err);
    if (rc == 0) rc = add_sums(listing, name, &pieces, err);
    ash_pieces_fini(&pieces);
    return rc;
}

static int add_folder(const struct listing *listing, const char *name, int deep, struct ash_err *err);

/* name is relative to root. */
static int add_entry(const struct listing *listing, const char *name, int deep, struct ash_err *err)
{
    char path[PATH_MAX];
    struct stat st;

    if (ash_path_join(path, sizeof(path), listing->root, name) < 0)
        return ash_io_fail(err, -ENAMETOOLONG, listing->root, "list");
    if (lstat(path, &st) != 0) return ash_io_fail(err, -errno, path, "read");
    if (S_ISDIR(st.st_mode)) return add_folder(listing, name, deep + 1, err);
    if (!S_ISREG(st.st_mode)) return ash_err_set(err, -EINVAL, "%s: only files and folders can be committed", path);
    if (strcmp(name, ASH_COMMIT_MANIFEST) == 0)
        return ash_err_set(err, -EEXIST, "%s: this name is kept for the list of files", path);
    return add_file(listing, path, name, err);
}

static int is_listed(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
           strcmp(entry->d_name, ASH_COMMIT_MARK) != 0;
}

static int compare_entries(const struct dirent **left, const struct dirent **right)
{
    return strcmp((*left)->d_name, (*right)->d_name);
}

/* Files of a folder in the order of their names, then the folder itself is flushed. */
static int add_folder(const struct listing *listing, const char *name, int deep, struct ash_err *err)
{
    char path[PATH_MAX], child[PATH_MAX];
    struct dirent **entries = NULL;
    int count, rc = 0;

    if (deep > FOLDERS_DEEP_MAX)
        return ash_err_set(err, -ELOOP, "%s/%s: folders are more than %d deep", listing->root, name, FOLDERS_DEEP_MAX);
    if (ash_path_join(path, sizeof(path), listing->root, name) < 0)
        return ash_io_fail(err, -ENAMETOOLONG, listing->root, "list");
    count = scandir(path, &entries, is_listed, compare_entries);
    if (count < 0) return ash_io_fail(err, -errno, path, "list");
    for (int i = 0; i < count; i++) {
        const char *base = entries[i]->d_name;
        if (rc == 0 && ash_path_join(child, sizeof(child), name, base) < 0)
            rc = ash_io_fail(err, -ENAMETOOLONG, path, "list");
        if (rc == 0) rc = add_entry(listing, child, deep, err);
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

int ash_manifest_write(const char *dir, const struct ash_commit_sums *known, size_t known_count, json_t *state,
                       struct ash_err *err)
{
    struct listing listing = {.root = dir, .known = known, .known_count = known_count};
    json_t *manifest;
    struct ash_str text = {0};
    char path[PATH_MAX];
    int rc;

    if (state != NULL && !json_is_object(state))
        return ash_err_set(err, -EINVAL, "%s: its state is not an object", dir);
    if (ash_path_join(path, sizeof(path), dir, ASH_COMMIT_MANIFEST) < 0)
        return ash_io_fail(err, -ENAMETOOLONG, dir, "write");
    listing.files = json_array();
    rc = add_folder(&listing, "", 0, err);
    if (rc < 0) {
        json_decref(listing.files);
        return rc;
    }
    manifest = make_manifest(listing.files, state);
    rc = manifest != NULL ? print_manifest(manifest, &text) : -ENOMEM;
    json_decref(manifest);
    if (rc < 0) ash_err_set(err, rc, "%s: no memory for the manifest", dir);
    if (rc == 0) rc = ash_file_replace(path, text.data, text.size_bytes, err);
    ash_str_fini(&text);
    return rc;
}

/* Does the text end in the checksum of itself? */
static bool check_text(const char *text, size_t size_bytes)
{
    char hex[HEX_BYTES + 1], *copy;
    const char *tail, *digits;
    bool is_right;

    if (size_bytes < TAIL_BYTES) return false;
    tail = text + size_bytes - TAIL_BYTES;
    digits = tail + sizeof(TAIL_KEY) - 1;
    if (memcmp(tail, TAIL_KEY, sizeof(TAIL_KEY) - 1) != 0) return false;
    if (memcmp(digits + HEX_BYTES, TAIL_END, sizeof(TAIL_END) - 1) != 0) return false;
    copy = malloc(size_bytes);
    if (copy == NULL) return false;
    memcpy(copy, text, size_bytes);
    memcpy(copy + (digits - text), HEX_ZEROS, HEX_BYTES);
    print_hex(ash_hash_bytes(copy, size_bytes, 0), hex);
    is_right = memcmp(digits, hex, HEX_BYTES) == 0;
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

        if (text == NULL || strlen(text) != HEX_BYTES) rc = -EBADMSG;
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
    if (rc == 0) rc = sum_content(fd, &found, buf, &size);
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
    char *buf, found[HEX_BYTES + 1];
    uint64_t hash = 0;
    int fd = open_to_sum(path, &buf, err), rc;

    if (fd < 0) return fd;
    if (hex == NULL) {
        rc = check_pieces(path, fd, buf, entry, err);
    } else {
        rc = hash_content(fd, buf, &hash);
        print_hex(hash, found);
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

/* Does what a manifest says make sense? */
static int check_shape(const char *name, const json_t *manifest, struct ash_err *err)
{
    const json_t *files = json_object_get(manifest, "files"), *entry;
    json_int_t version = json_integer_value(json_object_get(manifest, "version"));
    size_t i;

    if (version != MANIFEST_VERSION && version != MANIFEST_VERSION_FILE_SUMS)
        return ash_err_set(err, -ENOTSUP, "%s: this save has another version of " ASH_COMMIT_MANIFEST " than %d", name,
                           MANIFEST_VERSION);
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
