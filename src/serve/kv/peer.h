/* peer - reads pages from the shelves of other processes (shelf.h), found by their descriptions. Of one thread. What
 * another process says is checked: its pages become pages only as page files of the prefix that is asked for. */
#ifndef ASH_SERVE_KV_PEER_H
#define ASH_SERVE_KV_PEER_H

#include "ashlar/transfer.h"
#include "serve/kv/page_file.h"

struct ash_kv_peer;

/* Pages are read into buffers [count] of buffer_bytes each, which are borrowed until close. The caller owns
 * *peer_out. */
int ash_kv_peer_open(void *const *buffers, size_t count, size_t buffer_bytes, struct ash_kv_peer **peer_out,
                     struct ash_err *err);
/* NULL is a no-op. */
void ash_kv_peer_close(struct ash_kv_peer *peer);
/* Read the file of the page with this name and prefix into one of the buffers, and check it. Returns 0, -ENOENT (it is
 * not there), -EBADMSG or -ESTALE as ash_kv_page_file_check, or why the other process cannot be read. Waits, a few
 * seconds at most. */
int ash_kv_peer_read(struct ash_kv_peer *peer, const struct ash_port_description *from, struct ash_kv_name name,
                     const struct ash_kv_prefix *prefix, size_t page_bytes, void *buffer);

/* How far another process is with a prompt. */
struct ash_kv_job {
    size_t pages;  /* of its first ones that are there */
    bool is_over;  /* no more will come */
    uint64_t beat; /* another one each time, as long as that process runs */
};

/* Look at a job of a shelf (ash_kv_shelf_open_job). Returns 0 or why the other process cannot be read. Waits as
 * ash_kv_peer_read. */
int ash_kv_peer_look(struct ash_kv_peer *peer, const struct ash_port_description *from, uint64_t job,
                     struct ash_kv_job *job_out);

#endif
