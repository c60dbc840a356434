/* What a process of a job on several nodes finds in the job's folder: whether all see the same one, and where the
 * others are. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "collective/group_priv.h"

void ash_group_check_folder(struct ash_group_root *root)
{
    if (root->opts.job_dir == NULL || root->infos[0].folder == 0) return; /* the first rank reports the error */
    for (size_t r = 0; r < root->size; r++) {
        if (root->infos[r].folder == root->infos[0].folder) continue;
        if (root->rank == 0)
            ash_log(ASH_LOG_WARN,
                    "rank %zu (host %s) does not see the job's folder %s as rank 0 does: processes that are lost "
                    "cannot come back",
                    r, root->infos[r].watch.host, root->opts.job_dir);
        root->opts.job_dir = NULL;
        return;
    }
}

/* Does it lead nowhere from other hosts? */
static bool is_inner(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

void ash_group_find_address(const struct ash_group_root *root, char address[ASH_SOCKET_ADDR_BYTES])
{
    struct ash_membership_address contacts[ASH_MEMBERSHIP_CONTACTS_MAX];
    size_t count = root->opts.job_dir != NULL ? ash_membership_read_contacts(root->opts.job_dir, contacts) : 0;
    char other[ASH_SOCKET_ADDR_BYTES];

    snprintf(address, ASH_SOCKET_ADDR_BYTES, "127.0.0.1");
    ash_socket_address_towards(root->host, address, ASH_SOCKET_ADDR_BYTES);
    for (size_t i = 0; i < count && is_inner(address); i++)
        if (ash_socket_address_towards(contacts[i].address, other, sizeof(other)) == 0 && !is_inner(other))
            memcpy(address, other, sizeof(other));
}
