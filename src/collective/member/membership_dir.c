/* The folder of a job: `key`, `contacts` (who was in the last epoch), `epochs/N` (the register). All files appear whole
 * or not at all. */
#include "collective/member/membership_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"

#define PATH_BYTES 4096

int ash_membership_make_job_dir(const char *path, struct ash_err *err)
{
    char name[PATH_BYTES];
    uint8_t key[ASH_MAC_KEY_BYTES];
    int fd, rc = ash_mac_random(key, sizeof(key));

    if (rc == 0 && mkdir(path, 0700) < 0 && errno != EEXIST) rc = -errno;
    snprintf(name, sizeof(name), "%s/epochs", path);
    if (rc == 0 && mkdir(name, 0700) < 0 && errno != EEXIST) rc = -errno;
    snprintf(name, sizeof(name), "%s/key", path);
    if (rc == 0) {
        fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0) {
            rc = errno == EEXIST ? 0 : -errno;
        } else {
            if (write(fd, key, sizeof(key)) != (ssize_t)sizeof(key)) rc = -EIO;
            close(fd);
        }
    }
    return rc < 0 ? ash_err_set(err, rc, "the job's folder '%s' cannot be made: %s", path, strerror(-rc)) : 0;
}

static int read_key(const char *job_dir, uint8_t key[ASH_MAC_KEY_BYTES], struct ash_err *err)
{
    char name[PATH_BYTES];
    ssize_t got;
    int fd;

    snprintf(name, sizeof(name), "%s/key", job_dir);
    fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return ash_err_set(err, -errno, "the job's key '%s' cannot be read: %s", name, strerror(errno));
    got = read(fd, key, ASH_MAC_KEY_BYTES);
    close(fd);
    if (got != ASH_MAC_KEY_BYTES)
        return ash_err_set(err, -EINVAL, "the job's key '%s' has not %d bytes", name, ASH_MAC_KEY_BYTES);
    return 0;
}

int ash_membership_read_key(struct ash_membership *agent, struct ash_err *err)
{
    memcpy(agent->key, &agent->opts.job, sizeof(agent->opts.job)); /* no secret: keeps other jobs out, not people */
    return agent->job_dir != NULL ? read_key(agent->job_dir, agent->key, err) : 0;
}

uint64_t ash_membership_folder_mark(const char *job_dir)
{
    uint8_t key[ASH_MAC_KEY_BYTES];

    return job_dir != NULL && read_key(job_dir, key, NULL) == 0 ? ash_hash_bytes(key, sizeof(key), 1) | 1 : 0;
}

size_t ash_membership_read_contacts(const char *job_dir,
                                    struct ash_membership_address contacts_out[ASH_MEMBERSHIP_CONTACTS_MAX])
{
    char name[PATH_BYTES];
    size_t count = 0;
    FILE *file;

    snprintf(name, sizeof(name), "%s/contacts", job_dir);
    file = fopen(name, "re");
    while (file != NULL && count < ASH_MEMBERSHIP_CONTACTS_MAX) {
        struct ash_membership_address *entry = &contacts_out[count];

        memset(entry, 0, sizeof(*entry));
        if (fscanf(file, "%63s %d", entry->address, &entry->port) != 2) break;
        if (entry->port > 0 && entry->port < 65536) count++;
    }
    if (file != NULL) fclose(file);
    return count;
}

void ash_membership_next_contact(struct ash_membership *agent, struct ash_membership_address *address_out)
{
    struct ash_membership_address found[ASH_MEMBERSHIP_CONTACTS_MAX];
    size_t count = agent->job_dir != NULL ? ash_membership_read_contacts(agent->job_dir, found) : 0;

    memset(address_out, 0, sizeof(*address_out));
    if (count > 0 && agent->contact % (count + 1) < count) {
        *address_out = found[agent->contact % (count + 1)];
    } else {
        snprintf(address_out->address, sizeof(address_out->address), "%.63s", agent->host);
        address_out->port = agent->opts.port;
    }
    agent->contact++;
}

/* Write a file under another name first. Returns 0, or -EEXIST if it exists and may not be replaced. */
static int put_file(const char *path, const char *text, bool replaces, uint64_t id)
{
    char draft[PATH_BYTES + 32];
    int fd, rc = 0;
    size_t bytes = strlen(text);

    snprintf(draft, sizeof(draft), "%s.%llx", path, (unsigned long long)id);
    fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return -errno;
    if (write(fd, text, bytes) != (ssize_t)bytes) rc = -EIO;
    close(fd);
    if (rc == 0 && replaces && rename(draft, path) < 0) rc = -errno;
    if (rc == 0 && !replaces && link(draft, path) < 0) rc = -errno;
    if (!replaces || rc < 0) unlink(draft);
    return rc;
}

void ash_membership_write_contacts(const struct ash_membership *agent, const struct ash_view *view)
{
    char name[PATH_BYTES];
    struct ash_str text = {0};
    int rc = 0;

    if (agent->job_dir == NULL || view->cards == NULL) return;
    for (size_t r = 0; r < view->size && r < ASH_MEMBERSHIP_CONTACTS_MAX && rc == 0; r++) {
        const struct ash_membership_address *address = ash_view_card(view, r);

        rc = ash_str_addf(&text, "%.63s %d\n", address->address, (int)address->port);
    }
    snprintf(name, sizeof(name), "%s/contacts", agent->job_dir);
    if (rc == 0) put_file(name, text.data, true, agent->opts.id); /* joiners have the job's address, too */
    ash_str_fini(&text);
}

/* Has another process restarted the job? Its folder then has another key, and all that this process could still do
 * is theirs. */
static bool is_replaced(const struct ash_membership *agent)
{
    uint8_t key[ASH_MAC_KEY_BYTES];

    return read_key(agent->job_dir, key, NULL) == 0 && memcmp(key, agent->key, sizeof(key)) != 0;
}

int ash_membership_decide(void *ctx, uint32_t epoch, uint64_t proposal, uint64_t *winner_out)
{
    struct ash_membership *agent = ctx;
    char name[PATH_BYTES], text[32];
    unsigned long long winner = 0;
    FILE *file;
    int rc;

    if (is_replaced(agent)) {
        *winner_out = ~proposal; /* of no process known here */
        return 0;
    }
    snprintf(name, sizeof(name), "%s/epochs/%u", agent->job_dir, epoch);
    snprintf(text, sizeof(text), "%llx\n", (unsigned long long)proposal);
    rc = put_file(name, text, false, agent->opts.id);
    if (rc == 0) return 1;
    if (rc != -EEXIST) return rc;
    file = fopen(name, "re");
    if (file == NULL) return -errno;
    rc = fscanf(file, "%llx", &winner) == 1 ? 0 : -EIO;
    fclose(file);
    if (rc < 0) return rc;
    *winner_out = winner;
    return winner == proposal;
}
