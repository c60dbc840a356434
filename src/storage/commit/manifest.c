/* Writing manifests: the contents of a committed folder. The manifest carries a checksum of its own text, so that
 * damage to any byte of a folder is found. */
#include "storage/commit/commit_priv.h"

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

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/str.h"
#include "storage/io/io_priv.h"

#define FOLDERS_DEEP_MAX 8
void ash_manifest_print_hex(uint64_t hash, char hex[ASH_MANIFEST_HEX_BYTES + 1])
{
    snprintf(hex, ASH_MANIFEST_HEX_BYTES + 1, "%016" PRIx64, hash);
}

/* ---- sums of files ----------------------------------------------------------------------------------------------- */

ssize_t ash_manifest_read(int fd, char *buf, size_t size_bytes)
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

int ash_manifest_sum_content(int fd, struct ash_pieces *pieces, char *buf, uint64_t *size_out)
{
    uint64_t at = 0;

    for (;;) {
        ssize_t got = ash_manifest_read(fd, buf, ASH_PIECE_BYTES);

        if (got < 0) return (int)got;
        if (got == 0) break;
        if (at + (uint64_t)got <= pieces->size_bytes) ash_pieces_add(pieces, at, buf, (size_t)got);
        at += (uint64_t)got;
        if (at > pieces->size_bytes) break;
    }
    *size_out = at;
    return 0;
}

int ash_manifest_open(const char *path, char **buf_out, struct ash_err *err)
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
    int fd = ash_manifest_open(path, &buf, err), rc = 0;

    if (fd < 0) return fd;
    if (fsync(fd) != 0 || fstat(fd, &st) != 0) rc = -errno;
    if (rc == 0) rc = ash_pieces_init(&pieces, (uint64_t)st.st_size, err);
    if (rc == 0) rc = ash_manifest_sum_content(fd, &pieces, buf, &size);
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

/* State of a listing. */
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
    char hex[ASH_MANIFEST_HEX_BYTES + 1];

    for (size_t i = 0; i < pieces->count; i++) {
        ash_manifest_print_hex(pieces->sums[i], hex);
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
    char hex[ASH_MANIFEST_HEX_BYTES + 1];
    int rc = dump != NULL ? ash_str_addf(text, "%s\n", dump) : -ENOMEM;

    free(dump);
    if (rc < 0) return rc;
    ash_manifest_print_hex(ash_hash_bytes(text->data, text->size_bytes, 0), hex);
    memcpy(text->data + text->size_bytes - (sizeof(ASH_MANIFEST_TAIL_END) - 1) - ASH_MANIFEST_HEX_BYTES, hex,
           ASH_MANIFEST_HEX_BYTES);
    return 0;
}

/* The manifest of files and state (NULL: empty), taking over files. NULL when out of memory. */
static json_t *make_manifest(json_t *files, json_t *state)
{
    return json_pack("{s:i, s:o, s:o, s:s}", "version", ASH_MANIFEST_VERSION, "files", files, "state",
                     state != NULL ? json_incref(state) : json_object(), ASH_MANIFEST_TAIL_NAME,
                     ASH_MANIFEST_HEX_ZEROS);
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
